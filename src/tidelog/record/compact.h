/* Compaction: which keys there are and where each was last, and batches without the records that are no longer needed.
 *
 * A key is known by 128 bits of SipHash-2-4 with a secret that is drawn for every map: two keys that meet in one slot
 * would lose a record, and whoever does not know the secret cannot look for such a pair. Slots are probed in a row; the
 * caller says how many may be used, which is less than there are, so every search ends.
 *
 * A batch is walked over twice: first to see that all of it can be read, then to use it. What cannot be read stays.
 */
#ifndef TIDELOG_COMPACT_H
#define TIDELOG_COMPACT_H

#include "bytes.h"
#include "crc32c.h"
#include "decode.h"

#define BATCH_HEADER 61
#define HORIZON_BIT 64
#define KIND_BITS 56 /* append time, transactional, control: what stays of the attributes when the records have gone */

/* What the caller says about a batch. */
#define VERDICT_FILTER 0 /* each record by its key */
#define VERDICT_KEEP 1
#define VERDICT_DROP 2
#define VERDICT_KINDS 3
#define VERDICT_REMEMBER 4    /* when emptied it stays, as an empty batch of its own */
#define VERDICT_SET_HORIZON 8 /* as if it had a tombstone */

typedef struct {
    uint64_t high, low;
    int64_t next; /* the offset behind the last record with this key; 0: the slot is free */
} KeySlot;

typedef struct {
    KeySlot *slots;
    uint64_t size, used, limit;
    uint64_t secret[2];
} KeyTable;

typedef struct {
    const uint8_t *start, *times, *offsets, *end; /* times: the timestamp delta; offsets: what follows it */
    const uint8_t *key;
    int32_t key_size, delta;
    int64_t timestamp; /* as a delta */
    int has_value;
} Found;

typedef struct {
    KeyTable *keys;
    int64_t known_up_to, now, horizon;
    int discard; /* tombstones whose time has come */
    int64_t gap_base, gap_next;
    int32_t gap_epoch;
    Vector out, plain, kept;
    int64_t seen, left, keyless, unreadable;
} Filter;

typedef struct { /* a batch with fewer records, or with a horizon */
    int64_t count, base_timestamp, max_timestamp;
    int horizon;
} Made;

typedef enum { FILTERED, NEEDS_PLAIN, CUT_SHORT, OUT_OF_MEMORY } Progress;
typedef enum { AS_IT_IS, EMPTIED, MADE_ANEW, MADE_NOTHING } Outcome;

/* --- keys ---------------------------------------------------------------------------------------------------------- */

#define ROTATE(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
#define SIP_ROUND                                                                                                      \
    v0 += v1, v1 = ROTATE(v1, 13), v1 ^= v0, v0 = ROTATE(v0, 32);                                                      \
    v2 += v3, v3 = ROTATE(v3, 16), v3 ^= v2;                                                                           \
    v0 += v3, v3 = ROTATE(v3, 21), v3 ^= v0;                                                                           \
    v2 += v1, v1 = ROTATE(v1, 17), v1 ^= v2, v2 = ROTATE(v2, 32)

static void siphash128(const uint8_t *p, size_t n, const uint64_t secret[2], uint64_t *high, uint64_t *low) {
    uint64_t v0 = 0x736f6d6570736575u ^ secret[0], v1 = 0x646f72616e646f6du ^ secret[1] ^ 0xee;
    uint64_t v2 = 0x6c7967656e657261u ^ secret[0], v3 = 0x7465646279746573u ^ secret[1];
    uint64_t last = (uint64_t)n << 56, word;
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&word, p, 8);
        v3 ^= word;
        SIP_ROUND;
        SIP_ROUND;
        v0 ^= word;
    }
    word = 0;
    memcpy(&word, p, n);
    last |= word;
    v3 ^= last;
    SIP_ROUND;
    SIP_ROUND;
    v0 ^= last;
    v2 ^= 0xee;
    for (int i = 0; i < 4; i++) { SIP_ROUND; }
    *high = v0 ^ v1 ^ v2 ^ v3;
    v1 ^= 0xdd;
    for (int i = 0; i < 4; i++) { SIP_ROUND; }
    *low = v0 ^ v1 ^ v2 ^ v3;
}

/* The slot of a key, or the free one where it would go. */
static KeySlot *find_slot(const KeyTable *keys, const uint8_t *key, int32_t size, uint64_t *high, uint64_t *low) {
    siphash128(key, (size_t)size, keys->secret, high, low);
    uint64_t at = (*high >> 32) * keys->size >> 32; /* there are fewer than 2^32 slots */
    for (;;) {
        KeySlot *slot = keys->slots + at;
        if (slot->next == 0 || (slot->high == *high && slot->low == *low)) return slot;
        if (++at == keys->size) at = 0;
    }
}

/* 0: there is no room for another key. */
static int put_key(KeyTable *keys, const Found *found, int64_t offset) {
    uint64_t high, low;
    KeySlot *slot = find_slot(keys, found->key, found->key_size, &high, &low);
    if (slot->next == 0) {
        if (keys->used >= keys->limit) return 0;
        keys->used++;
        slot->high = high;
        slot->low = low;
    }
    if (slot->next <= offset) slot->next = wrapping_add(offset, 1);
    return 1;
}

/* --- records ------------------------------------------------------------------------------------------------------- */

static inline int skip_sized(const uint8_t **cursor, const uint8_t *end, int32_t least, int32_t *size) {
    if (!get_varint(cursor, end, size) || *size < least || *size > end - *cursor) return 0;
    if (*size > 0) *cursor += *size;
    return 1;
}

/* One record; 0 when it is not one. The same checks as take_record's. */
static inline int find_record(const Part *part, const uint8_t **cursor, int64_t *last_delta, Found *found) {
    int32_t size, count;
    found->start = *cursor;
    if (!get_varint(cursor, part->end, &size) || size < 1 || size > part->end - *cursor) return 0;
    const uint8_t *end = *cursor + size;
    found->times = ++*cursor;
    if (!get_varlong(cursor, end, &found->timestamp)) return 0;
    found->offsets = *cursor;
    if (!get_varint(cursor, end, &found->delta)) return 0;
    if (found->delta <= *last_delta || found->delta > part->last_offset_delta) return 0;
    *last_delta = found->delta;
    if (!skip_sized(cursor, end, -1, &found->key_size)) return 0;
    found->key = *cursor - (found->key_size > 0 ? found->key_size : 0);
    if (!skip_sized(cursor, end, -1, &size)) return 0;
    found->has_value = size >= 0;
    if (!get_varint(cursor, end, &count) || count < 0 || count > (end - *cursor) / 2) return 0;
    for (; count > 0; count--)
        if (!skip_sized(cursor, end, 0, &size) || !skip_sized(cursor, end, -1, &size)) return 0;
    found->end = end;
    return *cursor == end;
}

static int is_readable(const Part *part) {
    const uint8_t *cursor = part->records;
    int64_t last_delta = -1;
    Found found;
    if (part->count < 0) return 0;
    for (int32_t i = 0; i < part->count; i++)
        if (!find_record(part, &cursor, &last_delta, &found)) return 0;
    return cursor == part->end;
}

/* How many records have no key, the first `most` of them by number; -1 when one cannot be read, with its number. */
static int64_t find_keyless(const Part *part, int32_t *numbers, int64_t most, int64_t *failed) {
    const uint8_t *cursor = part->records;
    int64_t last_delta = -1, keyless = 0;
    Found found;
    for (*failed = 0; *failed < part->count; ++*failed) {
        if (!find_record(part, &cursor, &last_delta, &found)) return -1;
        if (found.key_size < 0 && keyless++ < most) numbers[keyless - 1] = (int32_t)*failed;
    }
    return cursor == part->end ? keyless : -1;
}

/* Notes the keys from `start` on. The offset of the first record that did not fit, or -1. */
static int64_t note_part(KeyTable *keys, const Part *part, int64_t start) {
    const uint8_t *cursor = part->records;
    int64_t last_delta = -1;
    Found found;
    if (!is_readable(part)) return -1;
    for (int32_t i = 0; i < part->count; i++) {
        if (!find_record(part, &cursor, &last_delta, &found)) return -1; /* only if the bytes have changed since */
        int64_t offset = wrapping_add(part->base_offset, found.delta);
        if (found.key_size >= 0 && offset >= start && !put_key(keys, &found, offset)) return offset;
    }
    return -1;
}

/* --- batches ------------------------------------------------------------------------------------------------------- */

static void part_of(const uint8_t *p, const uint8_t *records, const uint8_t *end, Part *part) {
    part->records = records;
    part->end = end;
    part->base_offset = read64(p);
    part->base_timestamp = read64(p + 27);
    part->append_timestamp = read64(p + 35);
    part->append_time = (read16(p + 21) & 8) != 0;
    part->last_offset_delta = read32(p + 23);
    part->count = read32(p + 57);
    part->position = 0;
}

static void sign_batch(uint8_t *p, size_t size) {
    write32(p + 8, (int32_t)(size - 12));
    write32(p + 17, (int32_t)crc32c_of(0, p + 21, size - 21));
}

/* An empty batch from one offset to another. */
static int put_empty(Vector *out, int64_t base, int64_t next, int32_t epoch) {
    uint8_t p[BATCH_HEADER] = {0};
    write64(p, base);
    write32(p + 12, epoch);
    p[16] = 2;
    write32(p + 23, (int32_t)(wrapping_subtract(next, base) - 1));
    write64(p + 27, -1);
    write64(p + 35, -1);
    write64(p + 43, -1);
    write16(p + 51, -1);
    write32(p + 53, -1);
    sign_batch(p, BATCH_HEADER);
    return vector_push(out, p, BATCH_HEADER);
}

static int close_gap(Filter *f) {
    int done = f->gap_base < 0 || put_empty(&f->out, f->gap_base, f->gap_next, f->gap_epoch);
    f->gap_base = -1;
    return done;
}

/* This batch has no records any more. */
static int put_gap(Filter *f, const uint8_t *p) {
    int64_t base = read64(p), next = wrapping_add(base, (int64_t)read32(p + 23) + 1);
    int32_t epoch = read32(p + 12);
    if (f->gap_base >= 0 && (f->gap_next != base || f->gap_epoch != epoch || wrapping_subtract(next, f->gap_base) > INT32_MAX))
        if (!close_gap(f)) return 0;
    if (f->gap_base < 0) f->gap_base = base;
    f->gap_next = next;
    f->gap_epoch = epoch;
    return 1;
}

/* Nor has this one, but its header is still needed. */
static int put_emptied(Filter *f, const uint8_t *p) {
    if (!close_gap(f) || !vector_push(&f->out, p, BATCH_HEADER)) return 0;
    uint8_t *made = f->out.data + f->out.size - BATCH_HEADER;
    write16(made + 21, (int16_t)(read16(made + 21) & KIND_BITS));
    write64(made + 27, -1);
    write32(made + 57, 0);
    sign_batch(made, BATCH_HEADER);
    return 1;
}

static int put_as_it_is(Filter *f, const uint8_t *p, size_t size) {
    return close_gap(f) && vector_push(&f->out, p, size);
}

/* The header of a batch whose records were made anew: they come behind it, `size` bytes. */
static int begin_batch(Filter *f, const uint8_t *p, size_t size, const Made *made) {
    if (size > (size_t)INT32_MAX - BATCH_HEADER || !close_gap(f)) return 0;
    if (!vector_reserve(&f->out, BATCH_HEADER + size) || !vector_push(&f->out, p, BATCH_HEADER)) return 0;
    uint8_t *head = f->out.data + f->out.size - BATCH_HEADER;
    if (made->horizon) write16(head + 21, (int16_t)(read16(head + 21) | HORIZON_BIT));
    write64(head + 27, made->base_timestamp);
    write64(head + 35, made->max_timestamp);
    write32(head + 57, (int32_t)made->count);
    return 1;
}

static int end_batch(Filter *f, const uint8_t *data, size_t size) {
    if (!vector_push(&f->out, data, size)) return 0;
    sign_batch(f->out.data + f->out.size - size - BATCH_HEADER, BATCH_HEADER + size);
    return 1;
}

static int is_kept(const Filter *f, const Found *found, int64_t offset, int expired, int64_t *keyless) {
    uint64_t high, low;
    if (offset >= f->known_up_to) return 1;
    if (found->key_size < 0) {
        ++*keyless;
        return 0;
    }
    if (find_slot(f->keys, found->key, found->key_size, &high, &low)->next > wrapping_add(offset, 1)) return 0;
    return found->has_value || !expired;
}

static int copy_record(Vector *plain, const Found *found, int64_t shift) {
    uint8_t head[20], delta[10];
    if (shift == 0) return vector_push(plain, found->start, (size_t)(found->end - found->start));
    size_t width = (size_t)(put_varint(delta, wrapping_add(found->timestamp, shift)) - delta);
    size_t rest = (size_t)(found->end - found->offsets);
    uint8_t *p = put_varint(head, (int64_t)(1 + width + rest));
    *p++ = found->times[-1];
    memcpy(p, delta, width);
    p += width;
    return vector_push(plain, head, (size_t)(p - head)) && vector_push(plain, found->offsets, rest);
}

/* Which records of a batch stay; if not all, or if their horizon is to be set, they are in f->plain. */
static Outcome filter_part(Filter *f, const Part *part, const uint8_t *p, int verdict, Made *made) {
    const uint8_t *cursor = part->records;
    int64_t last_delta = -1, kept = 0, keyless = 0;
    int tombstones = 0, dated = (read16(p + 21) & HORIZON_BIT) != 0;
    int expired = f->discard && dated && f->now >= part->base_timestamp;
    Found found;
    if (!is_readable(part)) {
        f->unreadable++;
        return AS_IT_IS;
    }
    f->kept.size = f->plain.size = 0;
    if (!vector_reserve(&f->kept, (size_t)part->count + 1)) return MADE_NOTHING;
    made->max_timestamp = -1;
    for (int32_t i = 0; i < part->count; i++) {
        if (!find_record(part, &cursor, &last_delta, &found)) return AS_IT_IS;
        int64_t offset = wrapping_add(part->base_offset, found.delta);
        int keep = (verdict & VERDICT_KINDS) == VERDICT_KEEP || is_kept(f, &found, offset, expired, &keyless);
        int64_t timestamp = wrapping_add(part->base_timestamp, found.timestamp);
        f->kept.data[i] = (uint8_t)keep;
        if (keep && (kept++ == 0 || timestamp > made->max_timestamp)) made->max_timestamp = timestamp;
        if (keep && !found.has_value && offset < f->known_up_to) tombstones = 1; /* what it covers has gone */
    }
    f->seen += part->count;
    f->left += kept;
    f->keyless += keyless;
    if (kept == 0) return EMPTIED;
    made->horizon = !dated && (tombstones || verdict & VERDICT_SET_HORIZON);
    if (kept == part->count && !made->horizon) return AS_IT_IS;
    made->count = kept;
    made->base_timestamp = made->horizon ? f->horizon : part->base_timestamp;
    if (part->append_time) made->max_timestamp = part->append_timestamp;
    int64_t shift = wrapping_subtract(part->base_timestamp, made->base_timestamp);
    cursor = part->records;
    last_delta = -1;
    for (int32_t i = 0; i < part->count; i++) {
        if (!find_record(part, &cursor, &last_delta, &found)) return AS_IT_IS;
        if (f->kept.data[i] && !copy_record(&f->plain, &found, shift)) return MADE_NOTHING;
    }
    return MADE_ANEW;
}

static int put_emptied_or_gap(Filter *f, const uint8_t *p, int verdict) {
    return verdict & VERDICT_REMEMBER ? put_emptied(f, p) : put_gap(f, p);
}

/* Everything but what needs compressing: then f->plain has the records and `made` what to write of them. */
static int put_outcome(Filter *f, Outcome outcome, const uint8_t *p, size_t size, int verdict) {
    if (outcome == EMPTIED) return put_emptied_or_gap(f, p, verdict);
    return outcome == AS_IT_IS && put_as_it_is(f, p, size);
}

/* Batches from `*p` on, up to one whose records are compressed and needed, or to the end. */
static Progress filter_batches(Filter *f, const uint8_t **cursor, const uint8_t *end, const uint8_t *verdicts,
                               int64_t count, int64_t *batch) {
    for (; *cursor < end && *batch < count; ++*batch) {
        const uint8_t *p = *cursor;
        if (end - p < BATCH_HEADER || read32(p + 8) < BATCH_HEADER - 12 || read32(p + 8) > end - p - 12)
            return CUT_SHORT;
        size_t size = (size_t)read32(p + 8) + 12;
        int verdict = verdicts[*batch], fine;
        if ((verdict & VERDICT_KINDS) == VERDICT_DROP || read32(p + 57) == 0) {
            if ((verdict & VERDICT_KINDS) == VERDICT_DROP) f->seen += read32(p + 57);
            fine = put_emptied_or_gap(f, p, verdict);
        } else if ((verdict & VERDICT_KINDS) == VERDICT_KEEP && !(verdict & VERDICT_SET_HORIZON)) {
            f->seen += read32(p + 57);
            f->left += read32(p + 57);
            fine = put_as_it_is(f, p, size);
        } else if (read16(p + 21) & 7)
            return NEEDS_PLAIN;
        else {
            Part part;
            Made made;
            part_of(p, p + BATCH_HEADER, p + size, &part);
            Outcome outcome = filter_part(f, &part, p, verdict, &made);
            if (outcome == MADE_ANEW)
                fine = begin_batch(f, p, f->plain.size, &made) && end_batch(f, f->plain.data, f->plain.size);
            else
                fine = put_outcome(f, outcome, p, size, verdict);
        }
        if (!fine) return OUT_OF_MEMORY;
        *cursor = p + size;
    }
    return FILTERED;
}

/* Notes the keys of batches up to one that is compressed. `*full`: the first offset that did not fit, or -1. */
static Progress note_batches(KeyTable *keys, const uint8_t **cursor, const uint8_t *end, const uint8_t *verdicts,
                             int64_t count, int64_t start, int64_t *batch, int64_t *full) {
    for (; *cursor < end && *batch < count && *full < 0; ++*batch) {
        const uint8_t *p = *cursor;
        if (end - p < BATCH_HEADER || read32(p + 8) < BATCH_HEADER - 12 || read32(p + 8) > end - p - 12)
            return CUT_SHORT;
        if (verdicts[*batch] == VERDICT_FILTER && read32(p + 57) > 0) {
            if (read16(p + 21) & 7) return NEEDS_PLAIN;
            Part part;
            part_of(p, p + BATCH_HEADER, p + read32(p + 8) + 12, &part);
            *full = note_part(keys, &part, start);
        }
        *cursor = p + read32(p + 8) + 12;
    }
    return FILTERED;
}

#endif
