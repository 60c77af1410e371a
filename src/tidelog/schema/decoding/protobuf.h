/* Protobuf's wire format into columns. A field that comes again replaces what it had, and a message is merged with it. */
#ifndef TIDELOG_PROTOBUF_H
#define TIDELOG_PROTOBUF_H

#include "columns.h"

/* In the order of OPS in protobuf_program.py. `a` is the field's number, `b` its oneof or -1. */
enum {
    P_INT32, P_INT64, P_UINT32, P_UINT64, P_SINT32, P_SINT64, P_FIXED32, P_FIXED64, P_SFIXED32, P_SFIXED64, P_BOOL,
    P_FLOAT, P_DOUBLE, P_STRING, P_BYTES, P_ENUM, P_MESSAGE, P_TIMESTAMP, P_DURATION, P_WRAPPER
};
enum { P_REPEATED = 1, P_PRESENCE = 2, P_MAP = 4 };
enum { VARINT = 0, EIGHT = 1, SIZED = 2, GROUP = 3, END_GROUP = 4, FOUR = 5 };

#define BYTES_A_STEP 16 /* read once more: what merging may cost is bounded */

static Fault proto_message(const Action *a, Reader *r, Column *c);

static int wire_type(int op) {
    switch (op) {
        case P_FIXED32: case P_SFIXED32: case P_FLOAT: return FOUR;
        case P_FIXED64: case P_SFIXED64: case P_DOUBLE: return EIGHT;
        case P_STRING: case P_BYTES: case P_MESSAGE: case P_TIMESTAMP: case P_DURATION: case P_WRAPPER: return SIZED;
        default: return VARINT;
    }
}

static Fault proto_tag(Reader *r, uint64_t *number, int *type) {
    uint64_t tag;
    if (!get_varint(r, &tag)) return varint_fault(r);
    *number = tag >> 3;
    *type = (int)(tag & 7);
    if (!*number || tag > UINT32_MAX) return BAD_NUMBER;
    return *type > FOUR ? BAD_WIRE_TYPE : FINE;
}

static Fault proto_sized(Reader *r, Reader *inner) {
    uint64_t size;
    if (!get_varint(r, &size)) return varint_fault(r);
    if (size > (uint64_t)(r->end - r->p)) return CUT_SHORT;
    *inner = *r;
    inner->end = r->p + size;
    r->p += size;
    return FINE;
}

static Fault proto_skip(Reader *r, uint64_t number, int type) {
    uint64_t ignored;
    Reader inner;
    Fault fault = FINE;
    if (type == VARINT) return get_varint(r, &ignored) ? FINE : varint_fault(r);
    if (type == SIZED) return proto_sized(r, &inner);
    if (type == EIGHT || type == FOUR) {
        int width = type == EIGHT ? 8 : 4;
        if (r->end - r->p < width) return CUT_SHORT;
        r->p += width;
        return FINE;
    }
    if (type == END_GROUP) return BAD_WIRE_TYPE;
    if (r->depth <= 0) return TOO_DEEP;
    r->depth--;
    for (;;) {
        uint64_t inside;
        if ((fault = proto_tag(r, &inside, &type))) break;
        if (type == END_GROUP) {
            fault = inside == number ? FINE : BAD_WIRE_TYPE;
            break;
        }
        if ((fault = proto_skip(r, inside, type))) break;
    }
    r->depth++;
    return fault;
}

static Fault proto_enum(const Action *a, Column *c, int32_t number) {
    for (int i = 0; i < a->texts; i++) {
        int32_t known;
        memcpy(&known, a->text[i], 4);
        if (known == number) return append_bytes(c, a->text[i] + 4, a->text_size[i] - 4);
    }
    uint8_t digits[12], *p = digits + 12; /* unknown: its number */
    int64_t left = number < 0 ? -(int64_t)number : number;
    do *--p = (uint8_t)('0' + left % 10); while (left /= 10);
    if (number < 0) *--p = '-';
    return append_bytes(c, p, digits + 12 - p);
}

static Fault proto_number(const Action *a, Column *c, uint64_t raw) {
    int32_t narrow = (int32_t)raw;
    int64_t wide = (int64_t)raw;
    unsigned __int128 widest = raw;
    switch (a->op) {
        case P_BOOL: return append_bit(c, raw != 0);
        case P_ENUM: return proto_enum(a, c, narrow);
        case P_SINT32: narrow = (int32_t)((uint32_t)raw >> 1 ^ -(uint32_t)(raw & 1)); return append_fixed(c, &narrow);
        case P_SINT64: wide = unzigzag(raw); return append_fixed(c, &wide);
        case P_UINT32: case P_FIXED32: wide = (uint32_t)raw; return append_fixed(c, &wide);
        case P_UINT64: case P_FIXED64: return append_fixed(c, &widest);
        case P_INT64: case P_SFIXED64: case P_DOUBLE: return append_fixed(c, &wide);
        default: return append_fixed(c, &narrow);
    }
}

static Fault proto_fixed(Reader *r, int width, uint64_t *raw) {
    *raw = 0;
    if (r->end - r->p < width) return CUT_SHORT;
    memcpy(raw, r->p, (size_t)width);
    r->p += width;
    return FINE;
}

/* Seconds and nanoseconds, as google.protobuf has them for times and durations; to microseconds. */
static Fault proto_time(Reader *r, Column *c) {
    int64_t seconds = 0, micros;
    int32_t nanos = 0;
    while (r->p < r->end) {
        uint64_t number, raw;
        int type;
        Fault fault = proto_tag(r, &number, &type);
        if (fault) return fault;
        if (number > 2 || type != VARINT) {
            if ((fault = proto_skip(r, number, type))) return fault;
            continue;
        }
        if (!get_varint(r, &raw)) return varint_fault(r);
        if (number == 1) seconds = (int64_t)raw;
        else nanos = (int32_t)raw;
    }
    int32_t rest = nanos / 1000 - (nanos % 1000 < 0);
    if (__builtin_mul_overflow(seconds, (int64_t)1000000, &micros)) return OUT_OF_RANGE;
    if (__builtin_add_overflow(micros, (int64_t)rest, &micros)) return OUT_OF_RANGE;
    return append_fixed(c, &micros);
}

/* What an absent field is: in a map's entry and in proto3, what its type begins with. */
static Fault proto_absent(const Action *a, Column *c, Reader *r) {
    Reader nothing = {r->p, r->p, r->budget, r->depth, -1, 0};
    if (a->flags & P_PRESENCE) return append_null(c);
    if (a->op == P_STRING || a->op == P_BYTES) return append_bytes(c, NULL, 0);
    if (a->op == P_MESSAGE) return proto_message(a, &nothing, c);
    if (a->op == P_TIMESTAMP || a->op == P_DURATION) return proto_time(&nothing, c);
    if (a->op == P_WRAPPER) return proto_absent(a->children[0], c, r);
    return proto_number(a, c, 0);
}

static Fault proto_value(const Action *a, Reader *r, Column *c);

/* A message with one field, which stands for the field. */
static Fault proto_wrapper(const Action *a, Reader *r, Column *c) {
    const Action *field = a->children[0];
    int64_t length = c->length;
    while (r->p < r->end) {
        uint64_t number;
        int type;
        Fault fault = proto_tag(r, &number, &type);
        if (fault) return fault;
        if (number == 1 && type == wire_type(field->op)) {
            if (c->length > length) truncate_column(c, length);
            fault = proto_value(field, r, c);
        } else fault = proto_skip(r, number, type);
        if (fault) return fault;
    }
    return c->length > length ? FINE : proto_absent(field, c, r);
}

static Fault proto_value(const Action *a, Reader *r, Column *c) {
    int type = wire_type(a->op);
    uint64_t raw;
    Reader inner;
    Fault fault;
    if (type == VARINT) return get_varint(r, &raw) ? proto_number(a, c, raw) : varint_fault(r);
    if (type != SIZED) return (fault = proto_fixed(r, type == EIGHT ? 8 : 4, &raw)) ? fault : proto_number(a, c, raw);
    if ((fault = proto_sized(r, &inner))) return fault;
    if (a->op == P_MESSAGE) fault = proto_message(a, &inner, c);
    else if (a->op == P_WRAPPER) fault = proto_wrapper(a, &inner, c);
    else if (a->op == P_TIMESTAMP || a->op == P_DURATION) fault = proto_time(&inner, c);
    else if (a->op == P_STRING && !is_utf8(inner.p, inner.end)) fault = BAD_UTF8;
    else fault = append_bytes(c, inner.p, inner.end - inner.p);
    if (fault && inner.column >= 0) r->column = inner.column;
    return fault;
}

static Fault proto_items(const Action *a, Reader *r, int type) {
    Column *child = a->column->children[0];
    Reader inner;
    Fault fault;
    if (type == wire_type(a->op)) return proto_value(a, r, child);
    if ((fault = proto_sized(r, &inner))) return fault; /* packed */
    while (inner.p < inner.end)
        if ((fault = proto_value(a, &inner, child))) return fault;
    return FINE;
}

/* A message that has come before is merged: the bytes of both, one after the other, are the message that is meant. */
static Fault proto_merged(const Action *a, Reader *r, Column *c, const Action *parent, const uint8_t *begin) {
    Vector both = {0};
    Reader again = *r, inner;
    again.end = r->p;
    again.p = begin;
    Fault fault = FINE;
    *r->budget -= 1 + (r->p - begin) / BYTES_A_STEP;
    if (*r->budget < 0) return TOO_MANY;
    while (again.p < again.end && !fault) {
        uint64_t number;
        int type;
        if ((fault = proto_tag(&again, &number, &type))) break;
        if (number == (uint64_t)a->a && type == SIZED) {
            if (!(fault = proto_sized(&again, &inner)) && !push(&both, inner.p, (size_t)(inner.end - inner.p)))
                fault = NO_MEMORY;
        } else {
            for (int i = 0; a->b >= 0 && i < parent->count; i++) /* another member of the oneof forgets it */
                if (parent->children[i]->b == a->b && parent->children[i]->a == (int64_t)number) both.size = 0;
            fault = proto_skip(&again, number, type);
        }
    }
    if (!fault) {
        static const uint8_t none[1];
        inner = *r;
        inner.p = both.data ? both.data : none;
        inner.end = inner.p + both.size;
        fault = a->op == P_MESSAGE ? proto_message(a, &inner, c)
              : a->op == P_WRAPPER ? proto_wrapper(a, &inner, c) : proto_time(&inner, c);
        if (fault && inner.column >= 0) r->column = inner.column;
    }
    free(both.data);
    return fault;
}

static Fault proto_field(const Action *field, Reader *r, int type, const Action *parent, Column *c, const uint8_t *begin) {
    int wanted = wire_type(field->op);
    Column *target = field->column;
    if (field->flags & P_REPEATED) {
        if (type != wanted && (type != SIZED || wanted == SIZED)) return proto_skip(r, (uint64_t)field->a, type);
        return proto_items(field, r, type);
    }
    if (type != wanted) return proto_skip(r, (uint64_t)field->a, type);
    for (int i = 0; field->b >= 0 && i < parent->count; i++) {
        const Action *other = parent->children[i];
        if (other != field && other->b == field->b && other->column->length > c->length)
            truncate_column(other->column, c->length);
    }
    if (target->length > c->length) {
        truncate_column(target, c->length);
        if (field->op >= P_MESSAGE) {
            Fault fault = proto_skip(r, (uint64_t)field->a, type);
            return fault ? fault : proto_merged(field, r, target, parent, begin);
        }
    }
    return proto_value(field, r, target);
}

static Fault proto_end(const Action *a, Reader *r, Column *c) {
    Fault fault = FINE;
    for (int i = 0; i < a->count && !fault; i++) {
        const Action *field = a->children[i];
        if (field->flags & P_MAP) fault = check_keys(field->column);
        if (fault) return failed(r, field, fault);
        if (field->flags & P_REPEATED) fault = end_list(field->column);
        else if (field->column->length == c->length) fault = proto_absent(field, field->column, r);
    }
    return fault ? fault : end_value(c);
}

static Fault proto_message(const Action *a, Reader *r, Column *c) {
    int next = 0;
    const uint8_t *begin = r->p;
    if (r->depth <= 0) return TOO_DEEP;
    r->depth--;
    while (r->p < r->end) {
        uint64_t number;
        int type, tried = 0;
        Fault fault = proto_tag(r, &number, &type);
        if (fault) return fault;
        /* Fields mostly come in order: the search begins behind the last, or with the last where it is repeated. */
        for (; tried < a->count; tried++) {
            if (next >= a->count) next = 0;
            if ((uint64_t)a->children[next]->a == number) break;
            next++;
        }
        if (tried < a->count) fault = proto_field(a->children[next], r, type, a, c, begin);
        else fault = proto_skip(r, number, type);
        if (fault) return tried < a->count ? failed(r, a->children[next], fault) : fault;
    }
    r->depth++;
    return proto_end(a, r, c);
}

static Fault proto_row(const Action *a, Reader *r) {
    Fault fault = proto_message(a, r, a->column);
    return fault ? failed(r, a, fault) : FINE;
}

#endif
