/* CRC-32C (Castagnoli, reflected polynomial 0x82f63b78), by the fastest way that this processor has.
 *
 * Hardware (SSE4.2 on x86-64, the CRC extension on ARMv8) has an instruction for 8 bytes with a latency of 3 cycles and
 * a throughput of 1, so three streams run side by side and are joined with tables that say what n zero bytes do to a
 * checksum. Elsewhere 8 bytes at a time go through tables. The choice is made once, by crc32c_init(), at run time: the
 * file is compiled for the plain processor and only the hardware function for more.
 */
#ifndef TIDELOG_CRC32C_H
#define TIDELOG_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#define CRC32C_POLYNOMIAL 0x82f63b78u
#define CRC32C_LONG_BITS 13 /* three streams of 8192 bytes */
#define CRC32C_SHORT_BITS 8 /* three streams of 256 bytes */

typedef uint32_t (*crc32c_function)(uint32_t, const uint8_t *, size_t);

static uint32_t crc32c_bytes[8][256]; /* [k][b]: byte b followed by k zero bytes */
static uint32_t crc32c_long[4][256], crc32c_short[4][256];
static crc32c_function crc32c_chosen;
static const char *crc32c_engine;

static inline uint64_t crc32c_load(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

/* The state is kept inverted outside: these functions take and give the plain register. */
static uint32_t crc32c_by_table(uint32_t crc, const uint8_t *p, size_t n) {
    const uint32_t(*t)[256] = crc32c_bytes;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t v = crc32c_load(p) ^ crc;
        crc = t[7][v & 255] ^ t[6][v >> 8 & 255] ^ t[5][v >> 16 & 255] ^ t[4][v >> 24 & 255] ^ t[3][v >> 32 & 255] ^
              t[2][v >> 40 & 255] ^ t[1][v >> 48 & 255] ^ t[0][v >> 56];
    }
    for (; n > 0; p++, n--) crc = t[0][(crc ^ *p) & 255] ^ crc >> 8;
    return crc;
}

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define CRC32C_HARDWARE "sse4.2"
#define CRC32C_TARGET __attribute__((target("sse4.2")))
#define CRC32C_8(crc, v) __builtin_ia32_crc32di(crc, v)
#define CRC32C_1(crc, v) __builtin_ia32_crc32qi((uint32_t)(crc), v)
static int crc32c_has_hardware(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") != 0;
}
#elif defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))
#define CRC32C_HARDWARE "armv8"
#define CRC32C_TARGET
#define CRC32C_8(crc, v) crc32c_arm_8((uint32_t)(crc), v)
#define CRC32C_1(crc, v) crc32c_arm_1((uint32_t)(crc), v)
static inline uint32_t crc32c_arm_8(uint32_t crc, uint64_t v) {
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(v));
    return crc;
}
static inline uint32_t crc32c_arm_1(uint32_t crc, uint8_t v) {
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)v));
    return crc;
}
static int crc32c_has_hardware(void) {
#if defined(__linux__)
    return (getauxval(AT_HWCAP) & (1 << 7)) != 0; /* HWCAP_CRC32 */
#else
    return 1; /* every Apple processor of this kind has it */
#endif
}
#endif

#ifdef CRC32C_HARDWARE
static inline uint64_t crc32c_shift(const uint32_t t[4][256], uint64_t crc) {
    return t[0][crc & 255] ^ t[1][crc >> 8 & 255] ^ t[2][crc >> 16 & 255] ^ t[3][crc >> 24 & 255];
}

#define CRC32C_THREE(bits, table)                                      \
    while (n >= 3u << (bits)) {                                        \
        const uint8_t *end = p + (1u << (bits));                       \
        uint64_t b = 0, c = 0;                                         \
        for (; p < end; p += 8) {                                      \
            a = CRC32C_8(a, crc32c_load(p));                           \
            b = CRC32C_8(b, crc32c_load(p + (1u << (bits))));          \
            c = CRC32C_8(c, crc32c_load(p + (2u << (bits))));          \
        }                                                              \
        a = crc32c_shift(table, crc32c_shift(table, a) ^ b) ^ c;       \
        p += 2u << (bits);                                             \
        n -= 3u << (bits);                                             \
    }

CRC32C_TARGET static uint32_t crc32c_by_hardware(uint32_t crc, const uint8_t *p, size_t n) {
    uint64_t a = crc;
    CRC32C_THREE(CRC32C_LONG_BITS, crc32c_long)
    CRC32C_THREE(CRC32C_SHORT_BITS, crc32c_short)
    for (; n >= 8; p += 8, n -= 8) a = CRC32C_8(a, crc32c_load(p));
    for (; n > 0; p++, n--) a = CRC32C_1(a, *p);
    return (uint32_t)a;
}
#endif

static uint32_t crc32c_apply(const uint32_t matrix[32], uint32_t v) {
    uint32_t r = 0;
    for (int i = 0; v; i++, v >>= 1)
        if (v & 1) r ^= matrix[i];
    return r;
}

/* table[k][b]: what 2^bits zero bytes make of the register b << 8k: the matrix of one zero byte, squared so often. */
static void crc32c_make_shift(uint32_t table[4][256], int bits) {
    uint32_t matrix[32], squared[32];
    for (int i = 0; i < 32; i++) {
        uint32_t v = 1u << i;
        matrix[i] = crc32c_bytes[0][v & 255] ^ v >> 8;
    }
    for (; bits > 0; bits--) {
        for (int i = 0; i < 32; i++) squared[i] = crc32c_apply(matrix, matrix[i]);
        memcpy(matrix, squared, sizeof matrix);
    }
    for (int k = 0; k < 4; k++)
        for (uint32_t b = 0; b < 256; b++) table[k][b] = crc32c_apply(matrix, b << 8 * k);
}

static void crc32c_init(void) {
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t v = b;
        for (int i = 0; i < 8; i++) v = v & 1 ? v >> 1 ^ CRC32C_POLYNOMIAL : v >> 1;
        crc32c_bytes[0][b] = v;
    }
    for (int k = 1; k < 8; k++)
        for (int b = 0; b < 256; b++) {
            uint32_t v = crc32c_bytes[k - 1][b];
            crc32c_bytes[k][b] = crc32c_bytes[0][v & 255] ^ v >> 8;
        }
    crc32c_make_shift(crc32c_long, CRC32C_LONG_BITS);
    crc32c_make_shift(crc32c_short, CRC32C_SHORT_BITS);
    crc32c_chosen = crc32c_by_table;
    crc32c_engine = "table";
#ifdef CRC32C_HARDWARE
    if (crc32c_has_hardware()) {
        crc32c_chosen = crc32c_by_hardware;
        crc32c_engine = CRC32C_HARDWARE;
    }
#endif
}

static inline uint32_t crc32c_of(uint32_t crc, const uint8_t *p, size_t n) {
    return ~crc32c_chosen(~crc, p, n);
}

#endif
