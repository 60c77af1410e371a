/* JSON, as RFC 8259 has it, into columns. What is not asked for is skipped, but must be JSON too. */
#ifndef TIDELOG_JSON_H
#define TIDELOG_JSON_H

#include <Python.h>

#include "columns.h"

/* In the order of OPS in json_program.py. */
enum {
    J_BOOLEAN, J_INTEGER, J_FLOAT, J_DOUBLE, J_DECIMAL, J_STRING, J_BASE64, J_DATE, J_TIMESTAMP, J_STRUCT, J_LIST, J_MAP,
    J_ANY
};

#define EIGHT_OF(byte) (0x0101010101010101ull * (byte))
#define ZERO_BYTES(v) (((v) - EIGHT_OF(1)) & ~(v) & EIGHT_OF(0x80))

static Fault json_value(const Action *a, Reader *r);
static Fault json_skip(Reader *r);

static inline int json_next(Reader *r) {
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\r' || *r->p == '\t')) r->p++;
    return r->p < r->end ? *r->p : -1;
}

static Fault json_stop(const Reader *r) { return r->p >= r->end ? CUT_SHORT : NOT_JSON; }

/* Of a value that is not of the kind that is wanted: it may be no JSON at all, and that is told where it ends to be. */
static Fault json_other(Reader *r) {
    const uint8_t *begin = r->p;
    if (json_skip(r) == NOT_JSON) return NOT_JSON;
    r->p = begin;
    return WRONG_KIND;
}

static Fault json_word(Reader *r, const char *word, int size) {
    if (r->end - r->p < size || memcmp(r->p, word, (size_t)size)) return NOT_JSON;
    r->p += size;
    return FINE;
}

/* --- texts --- */

static int json_hex(Reader *r, uint32_t *unit) {
    *unit = 0;
    if (r->end - r->p < 4) return 0;
    for (int i = 0; i < 4; i++) {
        uint8_t b = *r->p++, low = b | 0x20;
        if (b >= '0' && b <= '9') *unit = *unit << 4 | (uint32_t)(b - '0');
        else if (low >= 'a' && low <= 'f') *unit = *unit << 4 | (uint32_t)(low - 'a' + 10);
        else return 0;
    }
    return 1;
}

static Fault json_unicode(Reader *r, Vector *out) {
    uint32_t unit, low;
    uint8_t utf8[4];
    int size;
    if (!json_hex(r, &unit)) return BAD_ESCAPE;
    if (unit >= 0xd800 && unit < 0xe000) {
        if (unit >= 0xdc00 || r->end - r->p < 6 || r->p[0] != '\\' || r->p[1] != 'u') return BAD_ESCAPE;
        r->p += 2;
        if (!json_hex(r, &low) || low < 0xdc00 || low >= 0xe000) return BAD_ESCAPE;
        unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
    }
    if (unit < 0x80) utf8[0] = (uint8_t)unit, size = 1;
    else if (unit < 0x800) utf8[0] = (uint8_t)(0xc0 | unit >> 6), size = 2;
    else if (unit < 0x10000) utf8[0] = (uint8_t)(0xe0 | unit >> 12), size = 3;
    else utf8[0] = (uint8_t)(0xf0 | unit >> 18), size = 4;
    for (int i = 1; i < size; i++) utf8[i] = (uint8_t)(0x80 | (unit >> 6 * (size - 1 - i) & 0x3f));
    return !out || push(out, utf8, (size_t)size) ? FINE : NO_MEMORY;
}

static Fault json_escape(Reader *r, Vector *out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (r->p >= r->end) return CUT_SHORT;
    uint8_t b = *r->p++;
    if (b == 'u') return json_unicode(r, out);
    const char *found = b ? strchr(from, b) : NULL;
    if (!found) return BAD_ESCAPE;
    return !out || push(out, to + (found - from), 1) ? FINE : NO_MEMORY;
}

/* Bytes up to a quote, a backslash or a control character. */
static const uint8_t *json_run(const uint8_t *p, const uint8_t *end, int *ascii) {
    for (;;) {
        uint64_t v;
        while (end - p >= 8) {
            memcpy(&v, p, 8);
            if (ZERO_BYTES(v ^ EIGHT_OF('"')) | ZERO_BYTES(v ^ EIGHT_OF('\\')) | (v & EIGHT_OF(0x80)) |
                ((v - EIGHT_OF(0x20)) & ~v & EIGHT_OF(0x80))) break;
            p += 8;
        }
        const uint8_t *stop = end - p > 8 ? p + 8 : end;
        for (; p < stop; p++) {
            if (*p == '"' || *p == '\\' || *p < 0x20) return p;
            if (*p >= 0x80) *ascii = 0;
        }
        if (p >= end) return p;
    }
}

/* The rest of a string, after its first quote; to nowhere where there is no `out`. */
static Fault json_string(Reader *r, Vector *out) {
    for (;;) {
        int ascii = 1;
        const uint8_t *begin = r->p;
        const uint8_t *p = r->p = json_run(begin, r->end, &ascii);
        if (p >= r->end) return CUT_SHORT;
        if (!ascii && !is_utf8(begin, p)) return BAD_UTF8;
        if (out && !push(out, begin, (size_t)(p - begin))) return NO_MEMORY;
        if (*p < 0x20) return NOT_JSON;
        r->p = p + 1;
        if (*p == '"') return FINE;
        Fault fault = json_escape(r, out);
        if (fault) return fault;
    }
}

/* A text that is looked at and not kept: where it stands, or, with escapes in it, in `spare`. */
static Fault json_text(Reader *r, Vector *spare, const uint8_t **text, int64_t *size) {
    const uint8_t *begin = r->p;
    int ascii = 1;
    const uint8_t *p = json_run(begin, r->end, &ascii);
    if (p < r->end && *p == '"') {
        if (!ascii && !is_utf8(begin, p)) return BAD_UTF8;
        *text = begin, *size = p - begin, r->p = p + 1;
        return FINE;
    }
    spare->size = 0;
    Fault fault = json_string(r, spare);
    *text = spare->data, *size = (int64_t)spare->size;
    return fault;
}

/* --- numbers --- */

typedef struct {
    const uint8_t *begin, *end;
    int negative, whole; /* without a fraction or an exponent */
    int exact;           /* all digits are in it */
    uint64_t digits;
    int64_t exponent;
} Number;

static Fault json_digits(Reader *r, Number *n, int fraction) {
    const uint8_t *begin = r->p;
    for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++) {
        uint64_t digit = (uint64_t)(*r->p - '0');
        if (n->digits > (UINT64_MAX - 9) / 10) {
            n->exact &= !digit;
            n->exponent += !fraction;
        } else {
            n->digits = n->digits * 10 + digit;
            n->exponent -= fraction;
        }
    }
    return r->p > begin ? FINE : json_stop(r);
}

static Fault json_number(Reader *r, Number *n) {
    Number none = {r->p, r->p, 0, 1, 1, 0, 0};
    Fault fault;
    *n = none;
    if (r->p < r->end && *r->p == '-') n->negative = 1, r->p++;
    if (r->p < r->end && *r->p == '0') r->p++;
    else if ((fault = json_digits(r, n, 0))) return fault;
    if (r->p < r->end && *r->p == '.') {
        n->whole = 0, r->p++;
        if ((fault = json_digits(r, n, 1))) return fault;
    }
    if (r->p < r->end && (*r->p | 0x20) == 'e') {
        int negative = 0;
        int64_t exponent = 0;
        n->whole = 0, r->p++;
        if (r->p < r->end && (*r->p == '+' || *r->p == '-')) negative = *r->p++ == '-';
        if (r->p >= r->end || *r->p < '0' || *r->p > '9') return json_stop(r);
        for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++)
            if (exponent < 1000000) exponent = exponent * 10 + (*r->p - '0');
        n->exponent += negative ? -exponent : exponent;
    }
    n->end = r->p;
    return FINE;
}

static Fault number_as_double(const Number *n, double *value) {
    static const double tens[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (n->exact && n->digits <= 1ull << 53 && n->exponent >= -22 && n->exponent <= 22) {
        double v = (double)n->digits; /* both exact, so that one operation rounds once */
        v = n->exponent < 0 ? v / tens[-n->exponent] : v * tens[n->exponent];
        *value = n->negative ? -v : v;
        return FINE;
    }
    char small[64], *text = small;
    size_t size = (size_t)(n->end - n->begin);
    if (size >= sizeof small && !(text = malloc(size + 1))) return NO_MEMORY;
    memcpy(text, n->begin, size);
    text[size] = 0;
    *value = PyOS_string_to_double(text, NULL, NULL);
    if (text != small) free(text);
    return *value - *value == 0 ? FINE : OUT_OF_RANGE;
}

static Fault number_as_whole(const Number *n, int64_t *value) {
    uint64_t v = n->digits;
    int64_t exponent = n->exponent;
    if (!n->exact) return OUT_OF_RANGE;
    for (; v && exponent > 0; exponent--)
        if (__builtin_mul_overflow(v, (uint64_t)10, &v)) return OUT_OF_RANGE;
    for (; v && exponent < 0; exponent++) {
        if (v % 10) return WRONG_KIND;
        v /= 10;
    }
    if (v > (uint64_t)INT64_MAX + (n->negative != 0)) return OUT_OF_RANGE;
    *value = n->negative ? (int64_t)(0 - v) : (int64_t)v;
    return FINE;
}

static Fault json_integer(Column *c, const Number *n) {
    int64_t v;
    Fault fault = number_as_whole(n, &v);
    if (fault) return fault;
    int bits = c->width * 8 - 1;
    if (bits < 63 && (v >= (int64_t)1 << bits || v < -((int64_t)1 << bits))) return OUT_OF_RANGE;
    return append_fixed(c, &v); /* little-endian: the low bytes come first */
}

/* To `scale` digits behind the point, halves away from zero. */
static Fault json_decimal(Column *c, const Number *n, int precision, int64_t scale) {
    __int128 v = 0;
    int64_t shift = scale;
    int behind = 0, round = 0;
    const uint8_t *p = n->begin + n->negative;
    for (; p < n->end && (*p | 0x20) != 'e'; p++) {
        if (*p == '.') {
            behind = 1;
            continue;
        }
        if (!digits_fit(v, 37)) {
            shift += !behind;
            continue;
        }
        v = v * 10 + (*p - '0');
        shift -= behind;
    }
    if (p < n->end) {
        int64_t exponent = 0;
        int negative = p[1] == '-';
        for (p += 1 + (p[1] == '-' || p[1] == '+'); p < n->end; p++)
            if (exponent < 1000000) exponent = exponent * 10 + (*p - '0');
        shift += negative ? -exponent : exponent;
    }
    for (; v && shift > 0; shift--) {
        if (!digits_fit(v, 37)) return OUT_OF_RANGE;
        v *= 10;
    }
    for (; v && shift < 0; shift++) round = v % 10 >= 5, v /= 10;
    v += shift < 0 ? 0 : round;
    if (!digits_fit(v, precision)) return OUT_OF_RANGE;
    if (n->negative) v = -v;
    return append_fixed(c, &v);
}

static Fault json_numeric(const Action *a, Reader *r) {
    Number n;
    double wide;
    Fault fault = json_number(r, &n);
    if (fault) return fault;
    if (a->op == J_INTEGER) return json_integer(a->column, &n);
    if (a->op == J_DECIMAL) return json_decimal(a->column, &n, (int)a->a, a->b);
    if ((fault = number_as_double(&n, &wide))) return fault;
    if (a->op == J_DOUBLE) return append_fixed(a->column, &wide);
    float narrow = (float)wide;
    if (narrow - narrow != 0) return OUT_OF_RANGE;
    return append_fixed(a->column, &narrow);
}

/* --- dates, times, bytes --- */

static int take_digits(const uint8_t **p, const uint8_t *end, int count, int64_t *value) {
    *value = 0;
    if (end - *p < count) return 0;
    for (; count > 0; count--, ++*p) {
        if (**p < '0' || **p > '9') return 0;
        *value = *value * 10 + (**p - '0');
    }
    return 1;
}

static int take_byte(const uint8_t **p, const uint8_t *end, const char *one_of) {
    if (*p >= end || !**p || !strchr(one_of, **p)) return 0;
    ++*p;
    return 1;
}

static int take_date(const uint8_t **p, const uint8_t *end, int64_t *days) {
    static const uint8_t lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int64_t y, m, d;
    if (!take_digits(p, end, 4, &y) || !take_byte(p, end, "-") || !take_digits(p, end, 2, &m)) return 0;
    if (!take_byte(p, end, "-") || !take_digits(p, end, 2, &d)) return 0;
    int leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
    if (y < 1 || m < 1 || m > 12 || d < 1 || d > lengths[m - 1] + (m == 2 && leap)) return 0;
    y -= m <= 2; /* years that begin in March, in eras of 400 */
    int64_t era = y / 400, year = y - era * 400;
    int64_t day = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    *days = era * 146097 + year * 365 + year / 4 - year / 100 + day - 719468;
    return 1;
}

static int take_zone(const uint8_t **p, const uint8_t *end, int64_t *seconds) {
    int64_t hours, minutes = 0;
    *seconds = 0;
    if (*p >= end || take_byte(p, end, "Zz")) return 1; /* without a zone: UTC */
    int west = **p == '-';
    if (!take_byte(p, end, "+-") || !take_digits(p, end, 2, &hours)) return 0;
    if (*p < end) {
        take_byte(p, end, ":");
        if (!take_digits(p, end, 2, &minutes)) return 0;
    }
    if (hours > 23 || minutes > 59) return 0;
    *seconds = (hours * 60 + minutes) * (west ? -60 : 60);
    return 1;
}

static int take_timestamp(const uint8_t *p, const uint8_t *end, int64_t *micros) {
    int64_t days, hours, minutes, seconds = 0, zone, fraction = 0, unit = 1000000;
    if (!take_date(&p, end, &days) || !take_byte(&p, end, "Tt ")) return 0;
    if (!take_digits(&p, end, 2, &hours) || !take_byte(&p, end, ":") || !take_digits(&p, end, 2, &minutes)) return 0;
    if (take_byte(&p, end, ":") && !take_digits(&p, end, 2, &seconds)) return 0;
    if (hours > 23 || minutes > 59 || seconds > 59) return 0;
    if (take_byte(&p, end, ".,")) {
        if (p >= end || *p < '0' || *p > '9') return 0;
        for (; p < end && *p >= '0' && *p <= '9'; p++)
            if (unit > 1) unit /= 10, fraction += (*p - '0') * unit;
    }
    if (!take_zone(&p, end, &zone) || p != end) return 0;
    *micros = (((days * 24 + hours) * 60 + minutes) * 60 + seconds - zone) * 1000000 + fraction;
    return 1;
}

static int base64_digit(uint8_t b) {
    if (b >= 'A' && b <= 'Z') return b - 'A';
    if (b >= 'a' && b <= 'z') return b - 'a' + 26;
    if (b >= '0' && b <= '9') return b - '0' + 52;
    return b == '+' ? 62 : b == '/' ? 63 : -1;
}

static Fault append_base64(Column *c, const uint8_t *p, int64_t size) {
    if (size % 4) return BAD_BASE64;
    int64_t padded = size && p[size - 1] == '=' ? 1 + (p[size - 2] == '=') : 0;
    for (int64_t i = 0; i < size; i += 4) {
        uint32_t v = 0;
        int64_t kept = i + 4 < size ? 3 : 3 - padded;
        for (int64_t j = i; j < i + 4; j++) {
            int digit = j >= size - padded ? 0 : base64_digit(p[j]);
            if (digit < 0) return BAD_BASE64;
            v = v << 6 | (uint32_t)digit;
        }
        uint8_t bytes[3] = {(uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v};
        if (!push(&c->values, bytes, (size_t)kept)) return NO_MEMORY;
    }
    return end_bytes(c);
}

static Fault json_coded(const Action *a, Reader *r) {
    Vector spare = {0};
    const uint8_t *text = NULL;
    int64_t size = 0, value = 0;
    Fault fault = json_text(r, &spare, &text, &size);
    if (fault) {
        free(spare.data);
        return fault;
    }
    const uint8_t *end = text + size;
    if (a->op == J_BASE64) fault = append_base64(a->column, text, size);
    else if (a->op == J_DATE) {
        fault = take_date(&text, end, &value) && text == end ? FINE : BAD_DATE;
        int32_t days = (int32_t)value;
        if (!fault) fault = append_fixed(a->column, &days);
    } else fault = take_timestamp(text, end, &value) ? append_fixed(a->column, &value) : BAD_TIME;
    free(spare.data);
    return fault;
}

static Fault json_chars(const Action *a, Reader *r) {
    if (*r->p != '"') return json_other(r);
    r->p++;
    if (a->op != J_STRING) return json_coded(a, r);
    Fault fault = json_string(r, &a->column->values);
    return fault ? fault : end_bytes(a->column);
}

/* --- objects and arrays --- */

/* Which member it is; one behind the last was, as a rule. -1: none that is asked for. */
static int json_member(const Action *a, const uint8_t *name, int64_t size, int guess) {
    for (int tried = 0; tried < a->texts; tried++, guess++) {
        if (guess >= a->texts) guess = 0;
        if (a->text_size[guess] == size && !memcmp(a->text[guess], name, (size_t)size)) return guess;
    }
    return -1;
}

static Fault json_struct_member(const Action *a, Reader *r, Vector *spare, int *guess) {
    const uint8_t *name;
    int64_t size;
    Fault fault = json_text(r, spare, &name, &size);
    if (fault) return fault;
    int which = a ? json_member(a, name, size, *guess) : -1;
    if (json_next(r) != ':') return json_stop(r);
    r->p++;
    if (which < 0) return json_skip(r);
    Column *target = a->column->children[which];
    if (target->length > a->column->length) truncate_column(target, a->column->length); /* the last one counts */
    *guess = which + 1;
    return json_value(a->children[which], r);
}

static Fault json_map_member(const Action *a, Reader *r) {
    Column *entries = a->column->children[0], *keys = entries->children[0];
    Fault fault = json_string(r, &keys->values);
    if (fault || (fault = end_bytes(keys))) return fault;
    if (json_next(r) != ':') return json_stop(r);
    r->p++;
    fault = json_value(a->children[0], r);
    return fault ? fault : end_value(entries);
}

static Fault json_members(const Action *a, Reader *r, Vector *spare) {
    int guess = 0;
    if (json_next(r) == '}') return r->p++, FINE;
    for (;;) {
        if (json_next(r) != '"') return json_stop(r);
        r->p++;
        Fault fault = a && a->op == J_MAP ? json_map_member(a, r) : json_struct_member(a, r, spare, &guess);
        if (fault) return fault;
        int next = json_next(r);
        if (next == '}') return r->p++, FINE;
        if (next != ',') return json_stop(r);
        r->p++;
    }
}

static Fault json_object(const Action *a, Reader *r) {
    Vector spare = {0};
    r->p++;
    Fault fault = json_members(a, r, &spare);
    free(spare.data);
    if (fault || !a) return fault;
    if (a->op == J_MAP) return (fault = check_keys(a->column)) ? fault : end_list(a->column);
    for (int i = 0; i < a->count && !fault; i++)
        if (a->column->children[i]->length == a->column->length) fault = append_null(a->column->children[i]);
    return fault ? fault : end_value(a->column);
}

static Fault json_array(const Action *a, Reader *r) {
    r->p++;
    if (json_next(r) == ']') return r->p++, a ? end_list(a->column) : FINE;
    for (;;) {
        Fault fault = a ? json_value(a->children[0], r) : json_skip(r);
        if (fault) return fault;
        int next = json_next(r);
        if (next == ']') return r->p++, a ? end_list(a->column) : FINE;
        if (next != ',') return json_stop(r);
        r->p++;
    }
}

static Fault json_skip(Reader *r) {
    int first = json_next(r);
    Number n;
    Fault fault;
    switch (first) {
        case '"': return r->p++, json_string(r, NULL);
        case 't': return json_word(r, "true", 4);
        case 'f': return json_word(r, "false", 5);
        case 'n': return json_word(r, "null", 4);
        case '{': case '[':
            if (r->depth-- <= 0) return TOO_DEEP;
            fault = first == '{' ? json_object(NULL, r) : json_array(NULL, r);
            r->depth++;
            return fault;
        default: return json_number(r, &n);
    }
}

/* Any value, as the text that it is. */
static Fault json_any(const Action *a, Reader *r) {
    const uint8_t *begin = r->p;
    Fault fault = json_skip(r);
    return fault ? fault : append_bytes(a->column, begin, r->p - begin);
}

static Fault json_nested(const Action *a, Reader *r, int first) {
    if (first != (a->op == J_LIST ? '[' : '{')) return json_other(r);
    if (r->depth-- <= 0) return TOO_DEEP;
    Fault fault = a->op == J_LIST ? json_array(a, r) : json_object(a, r);
    r->depth++;
    return fault;
}

static Fault json_one(const Action *a, Reader *r) {
    int first = json_next(r);
    Fault fault;
    if (first < 0) return CUT_SHORT;
    if (first == 'n') return (fault = json_word(r, "null", 4)) ? fault : append_null(a->column);
    if (a->op == J_ANY) return json_any(a, r);
    if (a->op >= J_STRUCT) return json_nested(a, r, first);
    if (a->op >= J_STRING) return json_chars(a, r);
    if (a->op != J_BOOLEAN) return first == '-' || (first >= '0' && first <= '9') ? json_numeric(a, r) : json_other(r);
    if (first != 't' && first != 'f') return json_other(r);
    fault = first == 't' ? json_word(r, "true", 4) : json_word(r, "false", 5);
    return fault ? fault : append_bit(a->column, first == 't');
}

static Fault json_value(const Action *a, Reader *r) {
    Fault fault = json_one(a, r);
    return fault ? failed(r, a, fault) : FINE;
}

static Fault json_row(const Action *a, Reader *r) {
    Fault fault = json_value(a, r);
    if (fault) return fault;
    return json_next(r) < 0 ? FINE : LEFT_OVER;
}

#endif
