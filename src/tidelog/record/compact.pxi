# Part of _codec: what compaction does to batches. compact.h has the loops; here is what needs Python's objects.

cdef class KeyMap:
    cdef KeyTable table

    def __cinit__(self, int64_t capacity):
        if not 0 < capacity <= MAX_KEYS:
            raise UsageError(f"a map of {capacity} keys; 1 to {MAX_KEYS} are possible")
        self.table.limit = capacity
        self.table.size = capacity + capacity // SPARE_SLOTS + 1
        self.table.slots = <KeySlot*>calloc(self.table.size, sizeof(KeySlot))
        if self.table.slots == NULL:
            raise MemoryError()
        prefer_huge_pages(self.table.slots, self.table.size * sizeof(KeySlot))
        secret = _urandom(16)
        memcpy(self.table.secret, PyBytes_AsString(secret), 16)

    def __dealloc__(self):
        free(self.table.slots)

    def __len__(self):
        return self.table.used


cdef Held plain_records(const uint8_t* p, buffer, Py_ssize_t position, decompress, int64_t limit):
    """The records of a compressed batch; None when they do not decompress."""
    packed = memoryview(buffer).cast("B")[position + HEADER_SIZE:position + read32(p + 8) + LENGTH_END]
    try:
        return Held(decompress(read16(p + 21) & COMPRESSION_BITS, packed, limit))
    except MalformedBatch:
        return None


def find_keyless(buffer, int64_t most, decompress, int64_t limit):
    cdef Held source = Held(buffer), plain
    cdef const uint8_t* p = <const uint8_t*>source.view.buf
    cdef int64_t size, keyless, failed = 0
    cdef Part part
    if source.view.len < HEADER_SIZE:
        raise fault_at(HEADER_CUT, p, source.view.len, 0)
    size = <int64_t>read32(p + 8) + LENGTH_END
    if not HEADER_SIZE <= size <= source.view.len:
        raise fault_at(BATCH_CUT, p, source.view.len, 0)
    part_of(p, p + HEADER_SIZE, p + size, &part)
    compression = read16(p + 21) & COMPRESSION_BITS
    if compression:
        plain = Held(decompress(compression, memoryview(buffer).cast("B")[HEADER_SIZE:size], limit))
        part_of(p, <const uint8_t*>plain.view.buf, <const uint8_t*>plain.view.buf + plain.view.len, &part)
    size = part.end - part.records
    if part.count < 0 or <int64_t>part.count * MIN_RECORD_SIZE > size:
        raise fault_at(TOO_MANY_RECORDS, p, source.view.len, 0)
    most = max(0, min(most, <int64_t>part.count))
    numbers = block_of(4 * most)
    cdef int32_t* told = <int32_t*>room(numbers)
    if size < YIELD_BYTES:
        keyless = keyless_of(&part, told, most, &failed)
    else:
        with nogil:
            keyless = keyless_of(&part, told, most, &failed)
    if keyless < 0 and failed == part.count:
        raise fault_at(BATCH_NOT_FILLED, p, source.view.len, 0)
    if keyless < 0:
        raise record_fault(UNREADABLE, 0, failed)
    return size, keyless, [told[i] for i in range(min(most, keyless))]


def note_keys(KeyMap keys, buffer, verdicts, int64_t start, decompress, int64_t limit):
    cdef Held source = Held(buffer), said = Held(verdicts), plain
    cdef const uint8_t* first = <const uint8_t*>source.view.buf
    cdef const uint8_t* cursor = first
    cdef const uint8_t* end = first + source.view.len
    cdef int64_t batch = 0, full = -1
    cdef Progress progress
    cdef Part part
    cdef bint release = source.view.len >= YIELD_BYTES
    while True:
        if release:
            with nogil:
                progress = note_batches(&keys.table, &cursor, end, <const uint8_t*>said.view.buf, said.view.len, start,
                                        &batch, &full)
        else:
            progress = note_batches(&keys.table, &cursor, end, <const uint8_t*>said.view.buf, said.view.len, start,
                                    &batch, &full)
        if progress == CUT_SHORT:
            raise fault_at(BATCH_CUT, cursor, end - cursor, cursor - first)
        if progress == FILTERED:
            return full
        plain = plain_records(cursor, buffer, cursor - first, decompress, limit)
        if plain is not None:
            part_of(cursor, <const uint8_t*>plain.view.buf, <const uint8_t*>plain.view.buf + plain.view.len, &part)
            if plain.view.len >= YIELD_BYTES:
                with nogil:
                    full = note_part(&keys.table, &part, start)
            else:
                full = note_part(&keys.table, &part, start)
        cursor += <int64_t>read32(cursor + 8) + LENGTH_END
        batch += 1


cdef int put_compressed(Filter* f, const uint8_t* p, const Made* made, compress) except -1:
    """The records in `plain`, as a batch compressed as it was."""
    cdef bytes plain = PyBytes_FromStringAndSize(<const char*>f.plain.data, f.plain.size)
    cdef Held packed = Held(compress(read16(p + 21) & COMPRESSION_BITS, memoryview(plain)))
    if not begin_batch(f, p, packed.view.len, made):
        raise MemoryError()
    if not end_batch(f, <const uint8_t*>packed.view.buf, packed.view.len):
        raise MemoryError()
    return 0


cdef int filter_compressed(Filter* f, const uint8_t* p, buffer, Py_ssize_t position, int verdict, decompress, compress,
                           int64_t limit) except -1:
    cdef Held plain = plain_records(p, buffer, position, decompress, limit)
    cdef Outcome outcome = AS_IT_IS
    cdef Part part
    cdef Made made
    if plain is None:
        f.unreadable += 1
    else:
        part_of(p, <const uint8_t*>plain.view.buf, <const uint8_t*>plain.view.buf + plain.view.len, &part)
        if plain.view.len >= YIELD_BYTES:
            with nogil:
                outcome = filter_part(f, &part, p, verdict, &made)
        else:
            outcome = filter_part(f, &part, p, verdict, &made)
    if outcome == MADE_ANEW:
        return put_compressed(f, p, &made, compress)
    if not put_outcome(f, outcome, p, <size_t>read32(p + 8) + LENGTH_END, verdict):
        raise MemoryError()
    return 0


def filter_records(KeyMap keys, buffer, verdicts, int64_t known_up_to, int64_t now, int64_t horizon, bint discard, gap,
                   decompress, compress, int64_t limit):
    cdef Held source = Held(buffer), said = Held(verdicts)
    cdef const uint8_t* first = <const uint8_t*>source.view.buf
    cdef const uint8_t* cursor = first
    cdef const uint8_t* end = first + source.view.len
    cdef const uint8_t* told = <const uint8_t*>said.view.buf
    cdef int64_t batch = 0
    cdef Progress progress
    cdef Filter f
    memset(&f, 0, sizeof(f))
    f.keys, f.known_up_to, f.now, f.horizon, f.discard = &keys.table, known_up_to, now, horizon, discard
    f.gap_base, f.gap_next, f.gap_epoch = gap if gap is not None else (-1, 0, 0)
    try:
        if not vector_reserve(&f.out, source.view.len + HEADER_SIZE):
            raise MemoryError()
        while True:
            if source.view.len >= YIELD_BYTES:
                with nogil:
                    progress = filter_batches(&f, &cursor, end, told, said.view.len, &batch)
            else:
                progress = filter_batches(&f, &cursor, end, told, said.view.len, &batch)
            if progress == OUT_OF_MEMORY:
                raise MemoryError()
            if progress == CUT_SHORT:
                raise fault_at(BATCH_CUT, cursor, end - cursor, cursor - first)
            if progress == FILTERED:
                break
            filter_compressed(&f, cursor, buffer, cursor - first, told[batch], decompress, compress, limit)
            cursor += <int64_t>read32(cursor + 8) + LENGTH_END
            batch += 1
        left = (f.gap_base, f.gap_next, f.gap_epoch) if f.gap_base >= 0 else None
        return block_view(&f.out), left, f.seen, f.left, f.keyless, f.unreadable
    finally:
        free(f.out.data)
        free(f.plain.data)
        free(f.kept.data)
