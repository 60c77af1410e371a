/* Columns to records: the loop that touches every row, without Python.
 *
 * Columns have Arrow's layout: string i is data[offsets[i] .. offsets[i + 1]], null where bit i of validity is 0. They
 * may come from elsewhere, so offsets are checked as they are used; the caller has checked that there are as many as
 * rows. A batch takes rows as long as they fit `capacity`.
 *
 * With an `order` row i is the one that order[i] names: rows that belong together are encoded where they lie.
 */
#ifndef TIDELOG_ENCODE_H
#define TIDELOG_ENCODE_H

#include "bytes.h"

typedef enum { ENCODED = 0, TOO_LARGE, BAD_OFFSETS } Encoded;

typedef struct {
    const uint8_t *validity; /* NULL: no nulls */
    const int32_t *offsets;  /* NULL: all null */
    const uint8_t *data;
    int64_t size;
} Strings;

typedef struct {
    Strings keys, values, header_keys, header_values;
    const int64_t *timestamps;
    const int32_t *header_offsets; /* NULL: no headers */
    int64_t header_total;
    const int32_t *order; /* NULL: as they lie */
    int64_t count;
} Rows;

#define BAD_STRING (-2)

typedef struct { /* size is -1 for null, BAD_STRING where the offsets do not fit the data */
    const uint8_t *data;
    int64_t size;
} String;

static inline String string_at(const Strings *strings, int64_t i) {
    String null = {NULL, -1}, bad = {NULL, BAD_STRING};
    if (!strings->offsets || (strings->validity && !(strings->validity[i >> 3] >> (i & 7) & 1))) return null;
    int64_t start = strings->offsets[i], end = strings->offsets[i + 1];
    if (start < 0 || end < start || end > strings->size) return bad;
    String string = {strings->data + start, end - start};
    return string;
}

static inline int64_t string_cost(String string) {
    return varint_size(string.size) + (string.size > 0 ? string.size : 0);
}

static inline uint8_t *write_string(uint8_t *p, String string) {
    p = put_varint(p, string.size);
    if (string.size > 0) {
        memcpy(p, string.data, (size_t)string.size);
        p += string.size;
    }
    return p;
}

/* Headers number `i` to `end` take how many bytes? BAD_STRING where offsets do not fit. */
static int64_t headers_cost(const Rows *rows, int64_t i, int64_t end) {
    int64_t total = 0;
    for (; i < end; i++) {
        String key = string_at(&rows->header_keys, i), value = string_at(&rows->header_values, i);
        if (key.size < 0 || value.size == BAD_STRING) return BAD_STRING;
        total += string_cost(key) + string_cost(value);
    }
    return total;
}

/* NULL where they are no longer as large as they were: the columns were changed meanwhile. */
static uint8_t *write_headers(uint8_t *p, const uint8_t *record_end, const Rows *rows, int64_t i, int64_t end) {
    for (; i < end; i++) {
        String key = string_at(&rows->header_keys, i), value = string_at(&rows->header_values, i);
        if (key.size < 0 || value.size == BAD_STRING) return NULL;
        if (string_cost(key) + string_cost(value) > record_end - p) return NULL;
        p = write_string(write_string(p, key), value);
    }
    return p;
}

/* -1 where the order names no row. */
static inline int64_t row_at(const Rows *rows, int64_t i) {
    if (!rows->order) return i;
    int64_t row = rows->order[i];
    return row < rows->count ? row : -1;
}

/* Rows from `first` on, `last` at most, as records at `out`. Sets `used` and the row that comes next. TOO_LARGE: the
 * first one alone needs `used` bytes. */
static Encoded put_records(const Rows *rows, int64_t first, int64_t last, uint8_t *out, int64_t capacity, int64_t *used,
                           int64_t *next, int64_t *max_timestamp, int64_t *base_timestamp) {
    uint8_t *p = out, *limit = out + capacity;
    int64_t i, row = row_at(rows, first), base, newest;
    if (row < 0) return BAD_OFFSETS;
    base = newest = rows->timestamps[row];
    for (i = first; i < last; i++) {
        if ((row = row_at(rows, i)) < 0) return BAD_OFFSETS;
        int64_t at = rows->timestamps[row], delta = wrapping_subtract(at, base), start = 0, end = 0;
        String key = string_at(&rows->keys, row), value = string_at(&rows->values, row);
        if (rows->header_offsets) {
            start = rows->header_offsets[row];
            end = rows->header_offsets[row + 1];
            if (start < 0 || end < start || end > rows->header_total) return BAD_OFFSETS;
        }
        int64_t headers = headers_cost(rows, start, end);
        if (key.size == BAD_STRING || value.size == BAD_STRING || headers < 0) return BAD_OFFSETS;
        int64_t size = 1 + varint_size(delta) + varint_size(i - first) + string_cost(key) + string_cost(value) +
                       varint_size(end - start) + headers;
        if (size + varint_size(size) > limit - p) {
            *used = size + varint_size(size);
            if (i == first) return TOO_LARGE;
            break;
        }
        p = put_varint(p, size);
        uint8_t *record_end = p + size;
        *p++ = 0;
        p = put_varint(put_varint(p, delta), i - first);
        p = put_varint(write_string(write_string(p, key), value), end - start);
        p = write_headers(p, record_end, rows, start, end);
        if (p != record_end) return BAD_OFFSETS;
        if (at > newest) newest = at;
    }
    *used = p - out;
    *next = i;
    *base_timestamp = base;
    *max_timestamp = newest;
    return ENCODED;
}

/* The partition of each row: the given one (-1: none), that of its key's hash, `spare` for one without a key. Counts
 * them in `counts`. Returns `count`, or the row that fits nowhere. */
static int64_t place_rows(const Rows *rows, const int32_t *given, int32_t partitions, int32_t spare, int32_t *places,
                          int32_t *counts) {
    for (int64_t i = 0; i < rows->count; i++) {
        int32_t place = given ? given[i] : -1;
        if (place < 0) {
            String key = string_at(&rows->keys, i);
            if (key.size == BAD_STRING) return i;
            place = key.size < 0 ? spare : (murmur2_of(key.data, key.size) & 0x7fffffff) % partitions;
        }
        if (place >= partitions) return i;
        places[i] = place;
        counts[place]++;
    }
    return rows->count;
}

/* Rows by partition, in each as they lie. `counts` become where each one's rows end. */
static void sort_rows(const int32_t *places, int64_t count, int32_t *counts, int32_t partitions, int32_t *order) {
    int32_t begin = 0;
    for (int32_t p = 0; p < partitions; p++) {
        int32_t rows = counts[p];
        counts[p] = begin;
        begin += rows;
    }
    for (int64_t i = 0; i < count; i++) order[counts[places[i]]++] = (int32_t)i;
}

#endif
