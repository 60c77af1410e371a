/* The load generator: a client that is not the bottleneck, in C on librdkafka. One JSON object on stdout says what was measured.
 *
 *   load produce BOOTSTRAP TOPIC MESSAGES SIZE BATCH_BYTES          as fast as it goes, acks=all, one partition
 *   load consume BOOTSTRAP TOPIC MESSAGES                           from the beginning, one partition
 *   load latency BOOTSTRAP TOPIC RATE SECONDS SIZE                  one message a request; ack and end to end, at a fixed rate
 *   load waves   BOOTSTRAP TOPIC PARTITIONS SECONDS SIZE            a message to every partition at once, again when all are acked
 *   load commit  BOOTSTRAP TOPIC PRODUCERS SECONDS RECORDS SIZE     transactions one after the other, a partition for each producer
 *   load mock    PARTITIONS                                         librdkafka's broker in memory, until stdin ends
 *
 * Times are taken when a call is made and when its callback runs. The first tenth of a latency run is not counted. */
#define _GNU_SOURCE
#include "rdkafka.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGES_A_CALL = 1000, TIMEOUT_MS = 60000 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static double cpu(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_utime.tv_usec / 1e6 + u.ru_stime.tv_sec + u.ru_stime.tv_usec / 1e6;
}

static void fail(const char *what, const char *why) {
    fprintf(stderr, "load: %s: %s\n", what, why);
    exit(1);
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char why[512];
    if (rd_kafka_conf_set(conf, name, value, why, sizeof why)) fail(name, why);
}

static rd_kafka_t *start(int type, rd_kafka_conf_t *conf) {
    char why[512];
    const char *authority = getenv("LOAD_SSL_CA");
    if (authority) {
        set(conf, "security.protocol", "ssl");
        set(conf, "ssl.ca.location", authority);
    }
    rd_kafka_t *handle = rd_kafka_new(type, conf, why, sizeof why);
    if (!handle) fail("start", why);
    return handle;
}

static char *payload_of(size_t size) {
    char *payload = malloc(size);
    unsigned seed = 1;
    for (size_t i = 0; i < size; i++) payload[i] = (char)rand_r(&seed);
    return payload;
}

/* Sorted latencies ---------------------------------------------------------------------------------------------------------- */

typedef struct {
    double *ms;
    size_t count, room;
} Latencies;

static void keep(Latencies *l, double ms) {
    if (l->count == l->room) {
        l->room = l->room ? l->room * 2 : 4096;
        l->ms = realloc(l->ms, l->room * sizeof *l->ms);
    }
    l->ms[l->count++] = ms;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double at(const Latencies *l, double share) {
    return l->count ? l->ms[(size_t)(share * (l->count - 1))] : -1;
}

static void print_latencies(const char *name, Latencies *l) {
    qsort(l->ms, l->count, sizeof *l->ms, ascending);
    printf("\"%s\": {\"count\": %zu, \"p50\": %.4f, \"p99\": %.4f, \"p999\": %.4f, \"max\": %.4f}", name, l->count, at(l, 0.5),
           at(l, 0.99), at(l, 0.999), at(l, 1.0));
}

/* Throughput ---------------------------------------------------------------------------------------------------------------- */

static long delivered, failed;

static void count_delivery(rd_kafka_t *handle, const rd_kafka_message_t *message, void *opaque) {
    (void)handle, (void)opaque;
    if (message->err && !failed++) fprintf(stderr, "load: delivery: %s\n", rd_kafka_err2str(message->err));
    delivered++;
}

static rd_kafka_conf_t *producer_conf(const char *bootstrap, const char *batch_bytes, const char *linger_ms) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", bootstrap);
    set(conf, "acks", "all");
    set(conf, "batch.size", batch_bytes);
    set(conf, "batch.num.messages", "1000000");
    set(conf, "linger.ms", linger_ms);
    set(conf, "queue.buffering.max.messages", "2000000");
    set(conf, "queue.buffering.max.kbytes", "262144");
    set(conf, "socket.nagle.disable", "true");
    return conf;
}

static void send_one_and_wait(rd_kafka_t *handle, rd_kafka_topic_t *topic, int partition) {
    rd_kafka_produce(topic, partition, RD_KAFKA_MSG_F_COPY, "warm", 4, NULL, 0, NULL);
    if (rd_kafka_flush(handle, TIMEOUT_MS)) fail("first message", "not acked in time");
}

static void produce(const char *bootstrap, const char *name, long messages, size_t size, const char *batch_bytes) {
    rd_kafka_conf_t *conf = producer_conf(bootstrap, batch_bytes, "5");
    rd_kafka_conf_set_dr_msg_cb(conf, count_delivery);
    rd_kafka_t *handle = start(RD_KAFKA_PRODUCER, conf);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(handle, name, NULL);
    send_one_and_wait(handle, topic, 0);
    char *payload = payload_of(size);
    rd_kafka_message_t call[MESSAGES_A_CALL];
    delivered = failed = 0;
    double began = now(), spent = cpu();
    for (long sent = 0; sent < messages;) {
        int count = messages - sent < MESSAGES_A_CALL ? (int)(messages - sent) : MESSAGES_A_CALL;
        memset(call, 0, sizeof call);
        for (int i = 0; i < count; i++) call[i].payload = payload, call[i].len = size;
        int taken = rd_kafka_produce_batch(topic, 0, 0, call, count);
        sent += taken;
        rd_kafka_poll(handle, taken < count ? 10 : 0);
    }
    while (delivered < messages) rd_kafka_poll(handle, 100);
    double seconds = now() - began;
    printf("{\"seconds\": %.6f, \"messages\": %ld, \"failed\": %ld, \"bytes\": %.0f, \"client_cpu\": %.3f}\n", seconds, messages,
           failed, (double)messages * size, cpu() - spent);
}

typedef struct {
    long count;
    double bytes;
} Received;

static void count_message(rd_kafka_message_t *message, void *opaque) {
    Received *received = opaque;
    if (message->err) {
        if (message->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) fail("consume", rd_kafka_err2str(message->err));
        return;
    }
    received->count++;
    received->bytes += message->len;
}

static rd_kafka_conf_t *consumer_conf(const char *bootstrap) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", bootstrap);
    set(conf, "group.id", "load");
    set(conf, "enable.partition.eof", "true");
    set(conf, "socket.nagle.disable", "true");
    return conf;
}

static void consume(const char *bootstrap, const char *name, long messages) {
    rd_kafka_conf_t *conf = consumer_conf(bootstrap);
    set(conf, "queued.min.messages", "10000000");
    set(conf, "queued.max.messages.kbytes", "262144");
    set(conf, "fetch.message.max.bytes", "10485760");
    set(conf, "fetch.queue.backoff.ms", "2");
    rd_kafka_t *handle = start(RD_KAFKA_CONSUMER, conf);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(handle, name, NULL);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(handle);
    int64_t low, high;
    if (rd_kafka_query_watermark_offsets(handle, name, 0, &low, &high, TIMEOUT_MS)) fail("consume", "no watermarks");
    Received received = {0};
    double began = now(), spent = cpu();
    rd_kafka_consume_start_queue(topic, 0, RD_KAFKA_OFFSET_BEGINNING, queue);
    while (received.count < messages) {
        rd_kafka_consume_callback_queue(queue, 100, count_message, &received);
        if (now() - began > 600) fail("consume", "not done in ten minutes");
    }
    double seconds = now() - began;
    printf("{\"seconds\": %.6f, \"messages\": %ld, \"bytes\": %.0f, \"client_cpu\": %.3f}\n", seconds, received.count, received.bytes,
           cpu() - spent);
}

/* Latency ------------------------------------------------------------------------------------------------------------------- */

typedef struct {
    Latencies latencies;
    double count_from;
    volatile int at_end, stop;
    rd_kafka_queue_t *queue;
    rd_kafka_t *handle;
} Watch;

static void keep_ack(rd_kafka_t *handle, const rd_kafka_message_t *message, void *opaque) {
    (void)handle;
    Watch *watch = opaque;
    double sent;
    delivered++;
    if (message->err) {
        failed++;
        return;
    }
    if (message->len < sizeof sent) return;
    memcpy(&sent, message->payload, sizeof sent);
    if (sent >= watch->count_from) keep(&watch->latencies, (now() - sent) * 1000);
}

static void keep_arrival(rd_kafka_message_t *message, void *opaque) {
    Watch *watch = opaque;
    double sent;
    if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        watch->at_end = 1;
        return;
    }
    if (message->err) fail("latency", rd_kafka_err2str(message->err));
    if (message->len < sizeof sent) return;
    memcpy(&sent, message->payload, sizeof sent);
    if (sent >= watch->count_from) keep(&watch->latencies, (now() - sent) * 1000);
}

static void *watch_arrivals(void *opaque) {
    Watch *watch = opaque;
    while (!watch->stop) rd_kafka_consume_callback_queue(watch->queue, 100, keep_arrival, watch);
    return NULL;
}

static void *watch_acks(void *opaque) {
    Watch *watch = opaque;
    while (!watch->stop) rd_kafka_poll(watch->handle, 100);
    return NULL;
}

static void sleep_until(double when) {
    struct timespec t = {(time_t)when, (long)((when - (time_t)when) * 1e9)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void latency(const char *bootstrap, const char *name, double rate, double seconds, size_t size) {
    Watch acks = {0}, arrivals = {0};
    acks.count_from = arrivals.count_from = 1e18;
    rd_kafka_conf_t *conf = producer_conf(bootstrap, "1000000", "0");
    rd_kafka_conf_set_dr_msg_cb(conf, keep_ack);
    rd_kafka_conf_set_opaque(conf, &acks);
    acks.handle = start(RD_KAFKA_PRODUCER, conf);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(acks.handle, name, NULL);
    send_one_and_wait(acks.handle, topic, 0);
    arrivals.handle = start(RD_KAFKA_CONSUMER, consumer_conf(bootstrap));
    arrivals.queue = rd_kafka_queue_new(arrivals.handle);
    rd_kafka_topic_t *read = rd_kafka_topic_new(arrivals.handle, name, NULL);
    rd_kafka_consume_start_queue(read, 0, RD_KAFKA_OFFSET_END, arrivals.queue);
    pthread_t ack_thread, arrival_thread;
    pthread_create(&ack_thread, NULL, watch_acks, &acks);
    pthread_create(&arrival_thread, NULL, watch_arrivals, &arrivals);
    for (double give_up = now() + 30; !arrivals.at_end;) {
        if (now() > give_up) fail("latency", "the consumer never reached the end");
        usleep(1000);
    }
    char *payload = payload_of(size);
    double began = now();
    acks.count_from = arrivals.count_from = began + seconds / 10;
    long sent = 0;
    delivered = failed = 0;
    for (double due = began; due < began + seconds; due = began + ++sent / rate) {
        sleep_until(due);
        double at_call = now();
        memcpy(payload, &at_call, sizeof at_call);
        rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY, payload, size, NULL, 0, NULL);
    }
    for (double give_up = now() + 30; delivered < sent && now() < give_up;) usleep(1000);
    usleep(300000);
    acks.stop = arrivals.stop = 1;
    pthread_join(ack_thread, NULL);
    pthread_join(arrival_thread, NULL);
    printf("{\"sent\": %ld, \"failed\": %ld, ", sent, failed);
    print_latencies("ack", &acks.latencies);
    printf(", ");
    print_latencies("end_to_end", &arrivals.latencies);
    printf("}\n");
}

static void waves(const char *bootstrap, const char *name, int partitions, double seconds, size_t size) {
    Watch acks = {0};
    acks.count_from = 1e18;
    rd_kafka_conf_t *conf = producer_conf(bootstrap, "1000000", "0");
    rd_kafka_conf_set_dr_msg_cb(conf, keep_ack);
    rd_kafka_conf_set_opaque(conf, &acks);
    rd_kafka_t *handle = start(RD_KAFKA_PRODUCER, conf);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(handle, name, NULL);
    for (int partition = 0; partition < partitions; partition++)
        rd_kafka_produce(topic, partition, RD_KAFKA_MSG_F_COPY, "warm", 4, NULL, 0, NULL);
    if (rd_kafka_flush(handle, TIMEOUT_MS)) fail("waves", "not all partitions were acked in time");
    char *payload = payload_of(size);
    double began = now();
    long count = 0;
    failed = 0;
    for (; now() < began + seconds || count < 3; count++) {
        delivered = 0;
        for (int partition = 0; partition < partitions; partition++) {
            double at_call = now();
            memcpy(payload, &at_call, sizeof at_call);
            rd_kafka_produce(topic, partition, RD_KAFKA_MSG_F_COPY, payload, size, NULL, 0, NULL);
        }
        while (delivered < partitions) rd_kafka_poll(handle, 100);
        acks.count_from = 0; /* all but the first wave */
    }
    printf("{\"waves\": %ld, \"seconds\": %.3f, \"failed\": %ld, ", count, now() - began, failed);
    print_latencies("ack", &acks.latencies);
    printf("}\n");
}

/* Transactions -------------------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *bootstrap, *name;
    int partition, records;
    long transactions;
    double until;
    size_t size;
    rd_kafka_t *handle;
    rd_kafka_topic_t *topic;
    char *payload;
    long failed;
} Committer;

static void expect(const char *what, rd_kafka_error_t *error) {
    if (error) fail(what, rd_kafka_error_string(error));
}

static void count_failure(rd_kafka_t *handle, const rd_kafka_message_t *message, void *opaque) {
    (void)handle;
    if (message->err) ((Committer *)opaque)->failed++;
}

static void commit_one(Committer *c) {
    expect("begin", rd_kafka_begin_transaction(c->handle));
    for (int sent = 0; sent < c->records;) {
        rd_kafka_message_t call[MESSAGES_A_CALL];
        int count = c->records - sent < MESSAGES_A_CALL ? c->records - sent : MESSAGES_A_CALL;
        memset(call, 0, sizeof call);
        for (int i = 0; i < count; i++) call[i].payload = c->payload, call[i].len = c->size;
        int taken = rd_kafka_produce_batch(c->topic, c->partition, 0, call, count);
        sent += taken;
        rd_kafka_poll(c->handle, taken < count ? 10 : 0);
    }
    expect("commit", rd_kafka_commit_transaction(c->handle, TIMEOUT_MS));
}

static void begin_committing(Committer *c) {
    char id[300];
    snprintf(id, sizeof id, "%s-%d", c->name, c->partition);
    rd_kafka_conf_t *conf = producer_conf(c->bootstrap, "1000000", c->records > MESSAGES_A_CALL ? "5" : "0");
    set(conf, "transactional.id", id);
    rd_kafka_conf_set_dr_msg_cb(conf, count_failure);
    rd_kafka_conf_set_opaque(conf, c);
    c->handle = start(RD_KAFKA_PRODUCER, conf);
    c->topic = rd_kafka_topic_new(c->handle, c->name, NULL);
    c->payload = payload_of(c->size);
    expect("init", rd_kafka_init_transactions(c->handle, TIMEOUT_MS));
    commit_one(c); /* connections, metadata, coordinator */
}

static void *commit_all(void *opaque) {
    Committer *c = opaque;
    for (; now() < c->until; c->transactions++) commit_one(c);
    return NULL;
}

static void commit(const char *bootstrap, const char *name, int producers, double seconds, int records, size_t size) {
    Committer *all = calloc((size_t)producers, sizeof *all);
    pthread_t *threads = calloc((size_t)producers, sizeof *threads);
    for (int i = 0; i < producers; i++) {
        all[i] = (Committer){.bootstrap = bootstrap, .name = name, .partition = i, .records = records, .size = size};
        begin_committing(&all[i]);
    }
    double began = now(), spent = cpu();
    for (int i = 0; i < producers; i++) {
        all[i].until = began + seconds;
        pthread_create(&threads[i], NULL, commit_all, &all[i]);
    }
    double done = 0;
    for (int i = 0; i < producers; i++) {
        pthread_join(threads[i], NULL);
        done += all[i].transactions;
        failed += all[i].failed;
    }
    seconds = now() - began;
    printf("{\"seconds\": %.6f, \"transactions\": %.0f, \"messages\": %.0f, \"failed\": %ld, \"bytes\": %.0f, \"client_cpu\": %.3f}\n",
           seconds, done, done * records, failed, done * records * (double)size, cpu() - spent);
}

static void mock(int partitions) {
    rd_kafka_t *handle = start(RD_KAFKA_PRODUCER, rd_kafka_conf_new());
    rd_kafka_mock_cluster_t *cluster = rd_kafka_mock_cluster_new(handle, 1);
    rd_kafka_mock_topic_create(cluster, "bench", partitions, 1);
    printf("{\"bootstrap\": \"%s\", \"librdkafka\": \"%s\"}\n", rd_kafka_mock_cluster_bootstraps(cluster), rd_kafka_version_str());
    fflush(stdout);
    char ignored;
    while (read(0, &ignored, 1) > 0) continue;
    _exit(0);
}

int main(int count, char **word) {
    if (count == 7 && !strcmp(word[1], "produce"))
        produce(word[2], word[3], atol(word[4]), (size_t)atol(word[5]), word[6]);
    else if (count == 5 && !strcmp(word[1], "consume"))
        consume(word[2], word[3], atol(word[4]));
    else if (count == 7 && !strcmp(word[1], "latency"))
        latency(word[2], word[3], atof(word[4]), atof(word[5]), (size_t)atol(word[6]));
    else if (count == 7 && !strcmp(word[1], "waves"))
        waves(word[2], word[3], atoi(word[4]), atof(word[5]), (size_t)atol(word[6]));
    else if (count == 8 && !strcmp(word[1], "commit"))
        commit(word[2], word[3], atoi(word[4]), atof(word[5]), atoi(word[6]), (size_t)atol(word[7]));
    else if (count == 3 && !strcmp(word[1], "mock"))
        mock(atoi(word[2]));
    else
        fail("usage", "see the head of load.c");
    fflush(stdout);
    _exit(0); /* librdkafka's threads need no orderly end, and theirs would take time that belongs to the next run */
}
