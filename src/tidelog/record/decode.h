/* Records to columns: the loop that touches every record, without Python.
 *
 * A record is, after its length: attributes (one byte), timestamp delta, offset delta, key, value, header count and
 * headers; numbers are zigzag varints, keys and values a length (-1 for null) and bytes. Every length is compared with
 * what is left before a byte of it is used, and a record must end where its length says. Memory for what has a fixed
 * width is the caller's and large enough for all rows; byte strings go to vectors, which grow.
 */
#ifndef TIDELOG_DECODE_H
#define TIDELOG_DECODE_H

#include <stdlib.h>

#include "bytes.h"

/* The faults of fault.py, by the same numbers; NO_MEMORY never leaves as one. */
typedef enum {
    FINE = 0,
    HEADER_CUT,
    BATCH_CUT,
    WRONG_MAGIC,
    WRONG_LENGTH,
    WRONG_CRC,
    WRONG_COUNT,
    SPARSE,
    UNKNOWN_COMPRESSION,
    TOO_MANY_RECORDS,
    WRONG_VARINT,
    WRONG_RECORD_LENGTH,
    WRONG_OFFSET_DELTA,
    WRONG_KEY_LENGTH,
    WRONG_VALUE_LENGTH,
    WRONG_HEADER_COUNT,
    WRONG_HEADER_LENGTH,
    RECORD_NOT_FILLED,
    BATCH_NOT_FILLED,
    COLUMN_FULL,
    NO_MEMORY
} Fault;

#define SHORT_COPY 32 /* bytes that are always copied when there is room: cheaper than asking how many */

typedef struct { /* one batch: where its records are, uncompressed, and what of its header they need */
    const uint8_t *records, *end;
    int64_t base_offset, base_timestamp, append_timestamp, position;
    int32_t count, last_offset_delta;
    int append_time;
} Part;

typedef struct { /* bytes that grow */
    uint8_t *data;
    size_t size, capacity;
} Vector;

typedef struct { /* byte strings of rows; the capacity has SHORT_COPY bytes more than are used */
    int32_t *offsets;
    uint8_t *validity;
    Vector data;
    int64_t nulls;
} Column;

typedef struct {
    int64_t *offsets, *timestamps;
    int32_t *header_offsets;
    Column keys, values;
    int64_t row, header_count;
    Vector header_key_ends, header_keys, header_value_ends, header_value_valid, header_values;
} Sink;

static int vector_reserve(Vector *vector, size_t more) {
    if (more <= vector->capacity - vector->size) return 1;
    size_t capacity = vector->capacity * 2;
    if (capacity < vector->size + more) capacity = vector->size + more;
    if (capacity < 64) capacity = 64;
    uint8_t *grown = realloc(vector->data, capacity);
    if (!grown) return 0;
    vector->data = grown;
    vector->capacity = capacity;
    return 1;
}

static int vector_push(Vector *vector, const void *data, size_t size) {
    if (!vector_reserve(vector, size)) return 0;
    if (size) memcpy(vector->data + vector->size, data, size);
    vector->size += size;
    return 1;
}

static inline Fault take_bytes(Column *column, int64_t row, const uint8_t **cursor, const uint8_t *end,
                               const uint8_t *all_end, Fault wrong) {
    int32_t size;
    if (!get_varint(cursor, end, &size)) return WRONG_VARINT;
    if (size >= 0) {
        const uint8_t *p = *cursor;
        Vector *data = &column->data;
        if (size > end - p) return wrong;
        if (data->size + (size_t)size > INT32_MAX) return COLUMN_FULL;
        if (!vector_reserve(data, (size_t)size + SHORT_COPY)) return NO_MEMORY;
        if (size <= SHORT_COPY && all_end - p >= SHORT_COPY)
            memcpy(data->data + data->size, p, SHORT_COPY);
        else
            memcpy(data->data + data->size, p, (size_t)size);
        data->size += (size_t)size;
        *cursor = p + size;
        column->validity[row >> 3] |= (uint8_t)(1 << (row & 7));
    } else if (size == -1)
        column->nulls++;
    else
        return wrong;
    column->offsets[row + 1] = (int32_t)column->data.size;
    return FINE;
}

static Fault take_header(Sink *sink, const uint8_t **cursor, const uint8_t *end) {
    int32_t size, used;
    if (!get_varint(cursor, end, &size)) return WRONG_VARINT;
    if (size < 0 || size > end - *cursor) return WRONG_HEADER_LENGTH;
    if (sink->header_keys.size + (size_t)size > INT32_MAX) return COLUMN_FULL;
    if (!vector_push(&sink->header_keys, *cursor, (size_t)size)) return NO_MEMORY;
    *cursor += size;
    if (!get_varint(cursor, end, &size)) return WRONG_VARINT;
    if (size < -1 || size > end - *cursor) return WRONG_HEADER_LENGTH;
    uint8_t valid = size >= 0;
    if (valid) {
        if (sink->header_values.size + (size_t)size > INT32_MAX) return COLUMN_FULL;
        if (!vector_push(&sink->header_values, *cursor, (size_t)size)) return NO_MEMORY;
        *cursor += size;
    }
    if (sink->header_count >= INT32_MAX) return COLUMN_FULL;
    used = (int32_t)sink->header_keys.size;
    if (!vector_push(&sink->header_key_ends, &used, 4)) return NO_MEMORY;
    used = (int32_t)sink->header_values.size;
    if (!vector_push(&sink->header_value_ends, &used, 4)) return NO_MEMORY;
    if (!vector_push(&sink->header_value_valid, &valid, 1)) return NO_MEMORY;
    sink->header_count++;
    return FINE;
}

static Fault take_headers(Sink *sink, int32_t count, const uint8_t **cursor, const uint8_t *end) {
    if (count < 0 || count > (end - *cursor) / 2) return WRONG_HEADER_COUNT;
    Fault fault = FINE;
    for (; count > 0 && fault == FINE; count--) fault = take_header(sink, cursor, end);
    return fault;
}

static inline Fault take_record(Sink *sink, const Part *part, int64_t *last_delta, const uint8_t **cursor) {
    int64_t row = sink->row, timestamp;
    int32_t number, delta;
    if (!get_varint(cursor, part->end, &number)) return WRONG_VARINT;
    if (number < 1 || number > part->end - *cursor) return WRONG_RECORD_LENGTH;
    const uint8_t *end = *cursor + number;
    ++*cursor; /* the attributes of a record: unused by Kafka so far */
    if (!get_varlong(cursor, end, &timestamp) || !get_varint(cursor, end, &delta)) return WRONG_VARINT;
    if (delta <= *last_delta || delta > part->last_offset_delta) return WRONG_OFFSET_DELTA;
    *last_delta = delta;
    sink->offsets[row] = wrapping_add(part->base_offset, delta);
    sink->timestamps[row] = part->append_time ? part->append_timestamp : wrapping_add(part->base_timestamp, timestamp);
    Fault fault = take_bytes(&sink->keys, row, cursor, end, part->end, WRONG_KEY_LENGTH);
    if (fault != FINE) return fault;
    fault = take_bytes(&sink->values, row, cursor, end, part->end, WRONG_VALUE_LENGTH);
    if (fault != FINE) return fault;
    if (!get_varint(cursor, end, &number)) return WRONG_VARINT;
    if (number && (fault = take_headers(sink, number, cursor, end)) != FINE) return fault;
    if (*cursor != end) return RECORD_NOT_FILLED;
    sink->header_offsets[row + 1] = (int32_t)sink->header_count;
    sink->row = row + 1;
    return FINE;
}

/* All records of all parts. On a fault: the number of its part, and the row at which that part began. */
static Fault take_parts(Sink *sink, const Part *parts, int64_t count, int64_t *failed, int64_t *first_row) {
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *cursor = parts[i].records;
        int64_t last_delta = -1;
        *failed = i;
        *first_row = sink->row;
        for (int32_t k = 0; k < parts[i].count; k++) {
            Fault fault = take_record(sink, &parts[i], &last_delta, &cursor);
            if (fault != FINE) return fault;
        }
        if (cursor != parts[i].end) return BATCH_NOT_FILLED;
    }
    return FINE;
}

#endif
