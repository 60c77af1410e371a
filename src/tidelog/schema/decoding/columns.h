/* Columns in Arrow's layout that grow value by value, and what reads bytes into them.

   A value is one append to a column. A row that turns out bad is taken back by `truncate`, which needs no note of where
   the row began: how long a column of n values is follows from its own offsets. */
#ifndef TIDELOG_COLUMNS_H
#define TIDELOG_COLUMNS_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#error "values are copied as they stand, which is right on little-endian machines alone"
#endif

#define DEPTH_MAX 128      /* of values in values, also of those that are skipped */
#define EMPTY_ITEMS 65536  /* of a row, beside one for each byte: an array of nulls takes none */

/* In the order of FAULTS in faults.py. */
typedef enum {
    FINE, NO_MEMORY, CUT_SHORT, LEFT_OVER, BAD_NUMBER, OUT_OF_RANGE, BAD_LENGTH, BAD_BOOLEAN, BAD_UTF8, BAD_BRANCH,
    BAD_SYMBOL, TOO_DEEP, TOO_MANY, TOO_LARGE, TWICE, REFUSED, BAD_WIRE_TYPE, NOT_JSON, WRONG_KIND, BAD_ESCAPE,
    BAD_DATE, BAD_TIME, BAD_BASE64
} Fault;

typedef enum { BITS, FIXED, BINARY, LIST, STRUCT } Kind;

typedef struct { uint8_t *data; size_t size, capacity; } Vector;

typedef struct Column {
    int32_t kind, width, count, index;
    struct Column **children;
    int64_t length;
    int has_nulls;
    Vector values, offsets, validity;
} Column;

/* What is to be done with one value of the input; what its numbers mean is the format's own. */
typedef struct Action {
    int32_t op, flags;
    int64_t a, b;
    Column *column; /* none: the value is skipped */
    int32_t count, texts;
    struct Action **children;
    const uint8_t **text;
    int64_t *text_size;
} Action;

typedef struct {
    const uint8_t *p, *end;
    int64_t *budget; /* items that may still come in this row, and steps back */
    int depth;
    int64_t column, detail; /* where and why it failed */
} Reader;

/* --- memory --- */

static int reserve(Vector *v, size_t more) {
    if (v->size + more <= v->capacity) return 1;
    size_t wanted = v->capacity ? v->capacity * 2 : 256;
    while (wanted < v->size + more) wanted *= 2;
    uint8_t *data = realloc(v->data, wanted);
    if (!data) return 0;
    v->data = data;
    v->capacity = wanted;
    return 1;
}

static inline int push(Vector *v, const void *data, size_t size) {
    if (v->size + size > v->capacity && !reserve(v, size)) return 0;
    if (size) memcpy(v->data + v->size, data, size);
    v->size += size;
    return 1;
}

/* Bit `index`, which is at most one past the last. */
static inline int put_bit(Vector *bits, int64_t index, int bit) {
    size_t byte = (size_t)index >> 3;
    if (byte >= bits->size) {
        uint8_t none = 0;
        if (!push(bits, &none, 1)) return 0;
    }
    uint8_t mask = (uint8_t)(1u << (index & 7));
    if (bit) bits->data[byte] |= mask;
    else bits->data[byte] &= (uint8_t)~mask;
    return 1;
}

/* --- one value more --- */

static inline Fault end_value(Column *c) {
    if (c->has_nulls && !put_bit(&c->validity, c->length, 1)) return NO_MEMORY;
    c->length++;
    return FINE;
}

static inline Fault append_fixed(Column *c, const void *value) {
    return push(&c->values, value, (size_t)c->width) ? end_value(c) : NO_MEMORY;
}

static inline Fault append_bit(Column *c, int bit) {
    return put_bit(&c->values, c->length, bit) ? end_value(c) : NO_MEMORY;
}

static inline Fault put_offset(Column *c, int64_t offset) {
    if (offset > INT32_MAX) return TOO_LARGE;
    int32_t end = (int32_t)offset;
    return push(&c->offsets, &end, 4) ? FINE : NO_MEMORY;
}

/* A text whose bytes are in `values` already. */
static inline Fault end_bytes(Column *c) {
    Fault fault = put_offset(c, (int64_t)c->values.size);
    return fault ? fault : end_value(c);
}

static inline Fault append_bytes(Column *c, const uint8_t *p, int64_t size) {
    if ((int64_t)c->values.size + size > INT32_MAX) return TOO_LARGE;
    return push(&c->values, p, (size_t)size) ? end_bytes(c) : NO_MEMORY;
}

static inline Fault end_list(Column *c) {
    Fault fault = put_offset(c, c->children[0]->length);
    return fault ? fault : end_value(c);
}

static Fault append_null(Column *c) {
    static const uint8_t zeros[16] = {0};
    Fault fault = FINE;
    if (!c->has_nulls) {
        size_t bytes = (size_t)(c->length + 7) >> 3;
        if (!reserve(&c->validity, bytes + 1)) return NO_MEMORY;
        memset(c->validity.data, 0xff, bytes);
        c->validity.size = bytes;
        c->has_nulls = 1;
    }
    if (c->kind == BITS) fault = put_bit(&c->values, c->length, 0) ? FINE : NO_MEMORY;
    else if (c->kind == FIXED) fault = push(&c->values, zeros, (size_t)c->width) ? FINE : NO_MEMORY;
    else if (c->kind == BINARY) fault = put_offset(c, (int64_t)c->values.size);
    else if (c->kind == LIST) fault = put_offset(c, c->children[0]->length);
    else for (int i = 0; i < c->count && !fault; i++) fault = append_null(c->children[i]);
    if (fault) return fault;
    if (!put_bit(&c->validity, c->length, 0)) return NO_MEMORY;
    c->length++;
    return FINE;
}

/* Back to n values, whatever was begun after them. */
static void truncate_column(Column *c, int64_t n) {
    if (c->kind == BITS) c->values.size = (size_t)(n + 7) >> 3;
    else if (c->kind == FIXED) c->values.size = (size_t)n * (size_t)c->width;
    else if (c->kind == STRUCT) {
        for (int i = 0; i < c->count; i++) truncate_column(c->children[i], n);
    } else {
        int32_t end;
        c->offsets.size = (size_t)(n + 1) * 4;
        memcpy(&end, c->offsets.data + (size_t)n * 4, 4);
        if (c->kind == BINARY) c->values.size = (size_t)end;
        else truncate_column(c->children[0], end);
    }
    if (c->has_nulls) c->validity.size = (size_t)(n + 7) >> 3;
    c->length = n;
}

/* --- numbers and texts --- */

static inline int get_varint(Reader *r, uint64_t *value) {
    const uint8_t *p = r->p;
    if (p < r->end && *p < 0x80) {
        *value = *p;
        r->p = p + 1;
        return 1;
    }
    uint64_t v = 0;
    for (int shift = 0; shift < 70 && p < r->end; shift += 7) {
        uint64_t b = *p++;
        if (shift == 63 && (b & 0x7e)) return 0;
        v |= (b & 0x7f) << shift;
        if (b < 0x80) {
            *value = v;
            r->p = p;
            return 1;
        }
    }
    return 0;
}

static inline int64_t unzigzag(uint64_t v) { return (int64_t)(v >> 1 ^ -(v & 1)); }

static Fault varint_fault(const Reader *r) {
    for (const uint8_t *p = r->p; p < r->end; p++)
        if (*p < 0x80) return BAD_NUMBER;
    return r->end - r->p >= 10 ? BAD_NUMBER : CUT_SHORT;
}

static int is_utf8(const uint8_t *p, const uint8_t *end) {
    while (p < end) {
        uint64_t eight;
        while (end - p >= 8 && (memcpy(&eight, p, 8), !(eight & 0x8080808080808080ull))) p += 8;
        if (p >= end) break;
        uint8_t b = *p++;
        if (b < 0x80) continue;
        int more = b >= 0xf0 ? 3 : b >= 0xe0 ? 2 : 1;
        if (b < 0xc2 || b > 0xf4 || end - p < more) return 0;
        if ((p[0] & 0xc0) != 0x80) return 0;
        if ((b == 0xe0 && p[0] < 0xa0) || (b == 0xed && p[0] > 0x9f)) return 0;
        if ((b == 0xf0 && p[0] < 0x90) || (b == 0xf4 && p[0] > 0x8f)) return 0;
        for (int i = 1; i < more; i++)
            if ((p[i] & 0xc0) != 0x80) return 0;
        p += more;
    }
    return 1;
}

static inline int digits_fit(__int128 value, int precision) {
    __int128 limit = 1;
    for (int i = 0; i < precision; i++) limit *= 10;
    return value < limit && value > -limit;
}

/* --- maps --- */

static uint64_t hash_of(const uint8_t *p, int64_t n) {
    uint64_t h = 14695981039346656037ull;
    for (int64_t i = 0; i < n; i++) h = (h ^ p[i]) * 1099511628211ull;
    return h ^ h >> 29;
}

static int64_t key_at(const Column *keys, int64_t i, const uint8_t **p, uint8_t *bit) {
    if (keys->kind == BITS) {
        *bit = keys->values.data[i >> 3] >> (i & 7) & 1;
        *p = bit;
        return 1;
    }
    if (keys->kind == FIXED) {
        *p = keys->values.data + i * keys->width;
        return keys->width;
    }
    int32_t from[2];
    memcpy(from, keys->offsets.data + i * 4, 8);
    *p = keys->values.data + from[0];
    return from[1] - from[0];
}

/* Has the last map a key twice? It is not yet ended. */
static Fault check_keys(const Column *map) {
    const Column *keys = map->children[0]->children[0];
    int32_t first;
    memcpy(&first, map->offsets.data + map->length * 4, 4);
    int64_t n = keys->length - first;
    if (n < 2) return FINE;
    size_t slots = 4;
    while ((int64_t)slots < 2 * n) slots *= 2;
    int32_t small[64];
    int32_t *table = slots <= 64 ? small : malloc(slots * 4);
    if (!table) return NO_MEMORY;
    memset(table, 0xff, slots * 4);
    Fault fault = FINE;
    for (int64_t i = 0; i < n && !fault; i++) {
        const uint8_t *key, *other;
        uint8_t bit, other_bit;
        int64_t size = key_at(keys, first + i, &key, &bit);
        size_t slot = hash_of(key, size) & (slots - 1);
        for (; table[slot] >= 0; slot = (slot + 1) & (slots - 1)) {
            int64_t other_size = key_at(keys, first + table[slot], &other, &other_bit);
            if (size == other_size && !memcmp(key, other, (size_t)size)) {
                fault = TWICE;
                break;
            }
        }
        table[slot] = (int32_t)i;
    }
    if (table != small) free(table);
    return fault;
}

static inline Fault failed(Reader *r, const Action *a, Fault fault) {
    if (r->column < 0 && a->column) r->column = a->column->index;
    return fault;
}

#endif
