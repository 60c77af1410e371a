/* Big-endian numbers, zigzag varints and the hash of keys, without looking past the end. */
#ifndef TIDELOG_BYTES_H
#define TIDELOG_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#define HUGE_FROM (4 << 20)

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define BIG16(v) (v)
#define BIG32(v) (v)
#define BIG64(v) (v)
#else
#define BIG16(v) __builtin_bswap16(v)
#define BIG32(v) __builtin_bswap32(v)
#define BIG64(v) __builtin_bswap64(v)
#endif

static inline int16_t read16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return (int16_t)BIG16(v); }
static inline int32_t read32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return (int32_t)BIG32(v); }
static inline int64_t read64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return (int64_t)BIG64(v); }
static inline void write16(uint8_t *p, int16_t n) { uint16_t v = BIG16((uint16_t)n); memcpy(p, &v, 2); }
static inline void write32(uint8_t *p, int32_t n) { uint32_t v = BIG32((uint32_t)n); memcpy(p, &v, 4); }
static inline void write64(uint8_t *p, int64_t n) { uint64_t v = BIG64((uint64_t)n); memcpy(p, &v, 8); }

/* Deltas wrap around like Java's: the sum of any two is defined. */
static inline int64_t wrapping_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t wrapping_subtract(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

static inline uint64_t zigzag(int64_t v) { return (uint64_t)v << 1 ^ (uint64_t)(v >> 63); }

/* One number of at most `limit` significant bits; 0 when it does not end before `end` or has more bits than that. */
static int get_long_varint(const uint8_t **cursor, const uint8_t *end, int limit, uint64_t *value) {
    const uint8_t *p = *cursor;
    uint64_t v = 0;
    for (int shift = 0; shift < limit && p < end; shift += 7) {
        uint64_t b = *p++;
        uint64_t bits = b & 0x7f;
        if (limit - shift < 7 && bits >> (limit - shift)) return 0;
        v |= bits << shift;
        if (b < 0x80) {
            *cursor = p;
            *value = v;
            return 1;
        }
    }
    return 0;
}

static inline int get_varint(const uint8_t **cursor, const uint8_t *end, int32_t *value) {
    const uint8_t *p = *cursor;
    uint64_t v;
    if (p < end && *p < 0x80) {
        v = *p;
        *cursor = p + 1;
    } else if (end - p > 1 && p[1] < 0x80) {
        v = (uint64_t)(p[0] & 0x7f) | (uint64_t)p[1] << 7;
        *cursor = p + 2;
    } else if (!get_long_varint(cursor, end, 32, &v)) return 0;
    *value = (int32_t)((uint32_t)v >> 1 ^ -(uint32_t)(v & 1));
    return 1;
}

static inline int get_varlong(const uint8_t **cursor, const uint8_t *end, int64_t *value) {
    const uint8_t *p = *cursor;
    uint64_t v;
    if (p < end && *p < 0x80) {
        v = *p;
        *cursor = p + 1;
    } else if (!get_long_varint(cursor, end, 64, &v)) return 0;
    *value = (int64_t)(v >> 1 ^ -(uint64_t)(v & 1));
    return 1;
}

static inline int varint_size(int64_t n) {
    uint64_t v = zigzag(n) | 1;
    return (70 - __builtin_clzll(v)) / 7;
}

static inline uint8_t *put_varint(uint8_t *p, int64_t n) {
    uint64_t v = zigzag(n);
    for (; v >= 0x80; v >>= 7) *p++ = (uint8_t)(v | 0x80);
    *p++ = (uint8_t)v;
    return p;
}

/* The hash of Java's default partitioner. */
static int32_t murmur2_of(const uint8_t *p, ptrdiff_t n) {
    const uint32_t m = 0x5bd1e995u;
    uint32_t h = 0x9747b28cu ^ (uint32_t)n;
    for (; n >= 4; p += 4, n -= 4) {
        uint32_t k = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        k *= m;
        k ^= k >> 24;
        h = h * m ^ k * m;
    }
    if (n > 2) h ^= (uint32_t)p[2] << 16;
    if (n > 1) h ^= (uint32_t)p[1] << 8;
    if (n > 0) h = (h ^ p[0]) * m;
    h ^= h >> 13;
    h *= m;
    h ^= h >> 15;
    return (int32_t)h;
}

/* Large fresh memory comes page by page, at a microsecond or more each; in huge pages it comes 512 at a time. */
static void prefer_huge_pages(void *block, size_t size) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (size >= HUGE_FROM) {
        uintptr_t start = ((uintptr_t)block + 4095) & ~(uintptr_t)4095;
        madvise((void *)start, ((uintptr_t)block + size - start) & ~(uintptr_t)4095, MADV_HUGEPAGE);
    }
#else
    (void)block, (void)size;
#endif
}

#endif
