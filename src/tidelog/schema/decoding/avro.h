/* Avro's binary encoding into columns, by a program that has the writer's schema resolved to the reader's. */
#ifndef TIDELOG_AVRO_H
#define TIDELOG_AVRO_H

#include "columns.h"

/* In the order of OPS in avro_program.py. */
enum {
    A_NULL, A_BOOLEAN, A_INT, A_LONG, A_TIMES, A_DIVIDE, A_TO_FLOAT, A_TO_DOUBLE, A_FLOAT, A_FLOAT_TO_DOUBLE, A_DOUBLE,
    A_BYTES, A_STRING, A_FIXED, A_UUID, A_BYTES_DECIMAL, A_FIXED_DECIMAL, A_ENUM, A_ARRAY, A_MAP, A_UNION, A_RECORD,
    A_DEFAULT, A_MEMBER, A_REFUSED
};

static Fault avro_value(const Action *a, Reader *r);

static inline Fault avro_long(Reader *r, int64_t *value) {
    uint64_t raw;
    if (!get_varint(r, &raw)) return varint_fault(r);
    *value = unzigzag(raw);
    return FINE;
}

static inline Fault avro_bytes(Reader *r, const uint8_t **p, int64_t *size) {
    Fault fault = avro_long(r, size);
    if (fault) return fault;
    if (*size < 0) return BAD_LENGTH;
    if (*size > r->end - r->p) return CUT_SHORT;
    *p = r->p;
    r->p += *size;
    return FINE;
}

static Fault avro_whole(const Action *a, Reader *r) {
    int64_t v;
    Fault fault = avro_long(r, &v);
    Column *c = a->column;
    if (fault) return fault;
    if (a->op == A_INT && (v < INT32_MIN || v > INT32_MAX)) return OUT_OF_RANGE;
    if (!c) return FINE;
    if (a->op == A_INT) {
        int32_t narrow = (int32_t)v;
        return append_fixed(c, &narrow);
    }
    if (a->op == A_TIMES && __builtin_mul_overflow(v, a->a, &v)) return OUT_OF_RANGE;
    if (a->op == A_DIVIDE) v = v / a->a - (v % a->a < 0);
    if (a->op == A_TO_FLOAT) {
        float narrow = (float)v;
        return append_fixed(c, &narrow);
    }
    if (a->op == A_TO_DOUBLE) {
        double wide = (double)v;
        return append_fixed(c, &wide);
    }
    return append_fixed(c, &v);
}

static Fault avro_ieee(const Action *a, Reader *r) {
    int width = a->op == A_DOUBLE ? 8 : 4;
    const uint8_t *p = r->p;
    if (r->end - p < width) return CUT_SHORT;
    r->p += width;
    if (!a->column) return FINE;
    if (a->op != A_FLOAT_TO_DOUBLE) return append_fixed(a->column, p); /* little-endian, as Arrow's */
    float narrow;
    memcpy(&narrow, p, 4);
    double wide = narrow;
    return append_fixed(a->column, &wide);
}

/* Two's complement, big-endian, of any length. */
static Fault append_decimal(Column *c, const uint8_t *p, int64_t size, int precision) {
    __int128 v = size && p[0] & 0x80 ? -1 : 0;
    for (uint8_t sign = (uint8_t)v; size > 16; p++, size--)
        if (p[0] != sign || (p[1] ^ sign) & 0x80) return OUT_OF_RANGE;
    for (int64_t i = 0; i < size; i++) v = (__int128)((unsigned __int128)v << 8 | p[i]);
    if (!digits_fit(v, precision)) return OUT_OF_RANGE;
    return append_fixed(c, &v);
}

static Fault append_uuid(Column *c, const uint8_t *p) {
    static const char digits[] = "0123456789abcdef";
    uint8_t text[36], *q = text;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) *q++ = '-';
        *q++ = (uint8_t)digits[p[i] >> 4];
        *q++ = (uint8_t)digits[p[i] & 15];
    }
    return append_bytes(c, text, 36);
}

static Fault avro_text(const Action *a, Reader *r) {
    const uint8_t *p = r->p;
    int64_t size = a->a;
    if (a->op == A_FIXED || a->op == A_UUID || a->op == A_FIXED_DECIMAL) {
        if (size > r->end - p) return CUT_SHORT;
        r->p += size;
    } else {
        Fault fault = avro_bytes(r, &p, &size);
        if (fault) return fault;
    }
    if (!a->column) return FINE;
    if (a->op == A_UUID) return append_uuid(a->column, p);
    if (a->op == A_BYTES_DECIMAL || a->op == A_FIXED_DECIMAL) return append_decimal(a->column, p, size, (int)a->b);
    if (a->op == A_STRING && !is_utf8(p, p + size)) return BAD_UTF8;
    return append_bytes(a->column, p, size);
}

static Fault avro_choice(const Action *a, Reader *r) {
    int64_t v;
    Fault fault = avro_long(r, &v);
    if (fault) return fault;
    r->detail = v;
    if (a->op == A_UNION) return v < 0 || v >= a->count ? BAD_BRANCH : avro_value(a->children[v], r);
    if (v < 0 || v >= a->texts) return BAD_SYMBOL;
    if (!a->column) return FINE;
    if (a->text_size[v] == 0) return BAD_SYMBOL; /* of the writer's, and not of the reader's */
    return append_bytes(a->column, a->text[v], a->text_size[v]);
}

static Fault avro_item(const Action *a, Reader *r) {
    Column *entries = a->op == A_MAP && a->column ? a->column->children[0] : NULL;
    if (a->op == A_MAP) {
        const uint8_t *p;
        int64_t size;
        Fault fault = avro_bytes(r, &p, &size);
        if (fault) return fault;
        if (entries) {
            if (!is_utf8(p, p + size)) return BAD_UTF8;
            if ((fault = append_bytes(entries->children[0], p, size))) return fault;
        }
    }
    Fault fault = avro_value(a->children[0], r);
    return fault || !entries ? fault : end_value(entries);
}

static Fault avro_items(const Action *a, Reader *r) {
    for (;;) {
        int64_t count, size;
        Fault fault = avro_long(r, &count);
        if (fault) return fault;
        if (!count) break;
        if (count < 0) {
            if (count == INT64_MIN) return BAD_LENGTH;
            count = -count;
            if ((fault = avro_long(r, &size))) return fault;
            if (size < 0) return BAD_LENGTH;
            if (size > r->end - r->p) return CUT_SHORT;
            if (!a->column) {
                r->p += size;
                continue;
            }
        }
        if (count > *r->budget) return TOO_MANY;
        *r->budget -= count;
        for (; count > 0; count--)
            if ((fault = avro_item(a, r))) return fault;
    }
    if (!a->column) return FINE;
    Fault fault = a->op == A_MAP ? check_keys(a->column) : FINE;
    return fault ? fault : end_list(a->column);
}

static Fault avro_default(const Action *a, Reader *r) {
    Reader inner = {a->text[0], a->text[0] + a->text_size[0], r->budget, r->depth, -1, 0};
    return avro_value(a->children[0], &inner);
}

/* One member of a union that has become a struct: the others are null. */
static Fault avro_member(const Action *a, Reader *r) {
    Fault fault = avro_value(a->children[0], r);
    for (int i = 0; i < a->column->count && !fault; i++)
        if (i != a->a) fault = append_null(a->column->children[i]);
    return fault ? fault : end_value(a->column);
}

static Fault avro_nested(const Action *a, Reader *r) {
    Fault fault = FINE;
    if (r->depth <= 0) return TOO_DEEP;
    r->depth--;
    if (a->op == A_ARRAY || a->op == A_MAP) fault = avro_items(a, r);
    else if (a->op == A_MEMBER) fault = avro_member(a, r);
    else if (a->op == A_DEFAULT) fault = avro_default(a, r);
    else {
        for (int i = 0; i < a->count && !fault; i++) fault = avro_value(a->children[i], r);
        if (!fault && a->column) fault = end_value(a->column);
    }
    r->depth++;
    return fault;
}

static Fault avro_one(const Action *a, Reader *r) {
    switch (a->op) {
        case A_NULL: return a->column ? append_null(a->column) : FINE;
        case A_BOOLEAN:
            if (r->p >= r->end) return CUT_SHORT;
            if (*r->p > 1) return BAD_BOOLEAN;
            return r->p++, a->column ? append_bit(a->column, r->p[-1]) : FINE;
        case A_INT: case A_LONG: case A_TIMES: case A_DIVIDE: case A_TO_FLOAT: case A_TO_DOUBLE: return avro_whole(a, r);
        case A_FLOAT: case A_FLOAT_TO_DOUBLE: case A_DOUBLE: return avro_ieee(a, r);
        case A_BYTES: case A_STRING: case A_FIXED: case A_UUID: case A_BYTES_DECIMAL: case A_FIXED_DECIMAL:
            return avro_text(a, r);
        case A_ENUM: case A_UNION: return avro_choice(a, r);
        case A_REFUSED: return r->detail = a->a, REFUSED;
        default: return avro_nested(a, r);
    }
}

static Fault avro_value(const Action *a, Reader *r) {
    Fault fault = avro_one(a, r);
    return fault ? failed(r, a, fault) : FINE;
}

static Fault avro_row(const Action *a, Reader *r) {
    Fault fault = avro_value(a, r);
    return fault ? fault : r->p < r->end ? LEFT_OVER : FINE;
}

#endif
