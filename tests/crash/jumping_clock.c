/* A wall clock that jumps, for one process and those that it starts: LD_PRELOAD it, and name a file of one int64, the
   nanoseconds that the clock is ahead, in JUMPING_CLOCK. CLOCK_MONOTONIC stays what it is. Who waits until a time
   of day waits by the clock that jumps, as the kernel would have it. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL
#define SLICE 20000000LL
#define A_TIME_OF_DAY 1000000000LL /* no machine has been up for that many seconds */

static volatile int64_t still = 0;
static volatile int64_t *ahead = &still;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("JUMPING_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        ahead = mapped;
}

static int64_t wall(void) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
    return now.tv_sec * SECOND + now.tv_nsec + *ahead;
}

static struct timespec spec_of(int64_t nanoseconds) {
    return (struct timespec){nanoseconds / SECOND, nanoseconds % SECOND};
}

int clock_gettime(clockid_t which, struct timespec *told) {
    static int (*vdso)(clockid_t, struct timespec *);
    if (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE) {
        *told = spec_of(wall());
        return 0;
    }
    if (!vdso)
        vdso = dlsym(RTLD_NEXT, "clock_gettime");
    return vdso(which, told);
}

int gettimeofday(struct timeval *told, void *zone) {
    (void)zone;
    int64_t now = wall();
    *told = (struct timeval){now / SECOND, now % SECOND / 1000};
    return 0;
}

time_t time(time_t *told) {
    time_t now = wall() / SECOND;
    if (told)
        *told = now;
    return now;
}

/* The end of the next slice of a wait, by the real clock; 0 where the time has come. */
static int64_t slice(const struct timespec *until) {
    int64_t left = until->tv_sec * SECOND + until->tv_nsec - wall();
    return left <= 0 ? 0 : wall() - *ahead + (left < SLICE ? left : SLICE);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *until) {
    static int (*real)(sem_t *, const struct timespec *);
    if (!real)
        real = dlsym(RTLD_NEXT, "sem_timedwait");
    for (;;) {
        int64_t end = slice(until);
        struct timespec then = spec_of(end);
        if (real(semaphore, &then) == 0)
            return 0;
        if (errno != ETIMEDOUT || end == 0)
            return -1;
    }
}

/* A Python that was built for a glibc before 2.30 has no such call, and locks wait by the time of day: so they do here. */
int sem_clockwait(sem_t *semaphore, clockid_t which, const struct timespec *until) {
    struct timespec now;
    clock_gettime(which, &now);
    int64_t left = (until->tv_sec - now.tv_sec) * SECOND + until->tv_nsec - now.tv_nsec;
    struct timespec then = spec_of(wall() + (left > 0 ? left : 0));
    return sem_timedwait(semaphore, &then);
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!real)
        real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real)
        real = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    if (until->tv_sec < A_TIME_OF_DAY)
        return real(condition, mutex, until); /* by the monotonic clock */
    int64_t end = slice(until);
    struct timespec then = spec_of(end);
    int outcome = real(condition, mutex, &then);
    return outcome == ETIMEDOUT && end != 0 ? 0 : outcome; /* woken for nothing, as a wait may be */
}
