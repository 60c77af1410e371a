# Part of _codec: batches to columns, columns to rows. decode.h has the loop; here is what needs Python's objects.

cdef class Held:
    """A buffer that stays where it is for as long as this object lives."""
    cdef Py_buffer view

    def __cinit__(self, buffer):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


cdef void* room(bytes block) noexcept:
    return PyBytes_AsString(block)


cdef bytes block_of(Py_ssize_t size):
    return PyBytes_FromStringAndSize(NULL, size)


cdef class Block:
    """The bytes of a vector, taken over."""
    cdef uint8_t* data
    cdef Py_ssize_t size

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, True, flags)


cdef object block_view(Vector* vector):
    """The bytes of a vector as an object: copied when few, else taken over, and then the vector is empty."""
    cdef Block block
    cdef void* smaller
    if vector.size < TAKE_OVER_FROM:
        return PyBytes_FromStringAndSize(<char*>vector.data, vector.size) if vector.size else b""
    if vector.size < vector.capacity // 2:
        smaller = realloc(vector.data, vector.size)
        if smaller != NULL:
            vector.data = <uint8_t*>smaller
    block = Block.__new__(Block)
    block.data, block.size = vector.data, vector.size
    memset(vector, 0, sizeof(Vector))
    return memoryview(block)


cdef object bitmap(const uint8_t* flags, Py_ssize_t count):
    """Arrow's validity bits, or None when all are set."""
    cdef bytes bits = block_of((count + 7) // 8)
    cdef uint8_t* p = <uint8_t*>room(bits)
    cdef Py_ssize_t i, seen = 0
    memset(p, 0, (count + 7) // 8)
    for i in range(count):
        if flags[i]:
            p[i >> 3] |= <uint8_t>(1 << (i & 7))
            seen += 1
    return None if seen == count else bits


cdef bytes ends_to_offsets(const Vector* ends):
    cdef bytes offsets = block_of(ends.size + 4)
    memset(room(offsets), 0, 4)
    if ends.size:
        memcpy(<uint8_t*>room(offsets) + 4, ends.data, ends.size)
    return offsets


cdef list walk(const uint8_t* p, Py_ssize_t left, Vector* parts, list held, buffer, bint crc, int64_t limit,
               bint partial, decompress):
    """The headers of all batches; `parts` gets where their records are, compressed ones made plain in `held`."""
    cdef list headers = []
    cdef Py_ssize_t position = 0
    cdef Fault fault
    cdef Part part
    cdef Held plain
    cdef int64_t size
    cdef int compression
    while left:
        fault = inspect(p, left, crc, False)
        if partial and (fault == HEADER_CUT or fault == BATCH_CUT):
            break
        if fault != FINE:
            raise fault_at(fault, p, left, position)
        size = <int64_t>read32(p + 8) + LENGTH_END
        if size > left:  # only if the bytes changed since they were inspected
            raise fault_at(BATCH_CUT, p, left, position)
        part.position, part.base_offset = position, read64(p)
        part.last_offset_delta, part.count = read32(p + 23), read32(p + 57)
        part.base_timestamp, part.append_timestamp = read64(p + 27), read64(p + 35)
        part.append_time = read16(p + 21) & APPEND_TIME_BIT != 0
        part.records, part.end = p + HEADER_SIZE, p + size
        compression = read16(p + 21) & COMPRESSION_BITS
        if compression:
            packed = memoryview(buffer).cast("B")[position + HEADER_SIZE:position + size]
            plain = Held(decompress(compression, packed, limit))
            held.append(plain)
            part.records = <const uint8_t*>plain.view.buf
            part.end = part.records + plain.view.len
            limit -= plain.view.len
        if part.count < 0 or <int64_t>part.count * MIN_RECORD_SIZE > part.end - part.records:
            raise fault_at(TOO_MANY_RECORDS, p, left, position)
        if not vector_push(parts, &part, sizeof(Part)):
            raise MemoryError()
        headers.append(header_of(p))
        p += size
        left -= size
        position += size
    return headers


def decode(buffer, bint crc, int64_t limit, bint partial, decompress):
    cdef Held source = Held(buffer)
    cdef list held = []
    cdef Vector parts
    cdef const Part* part
    cdef Py_ssize_t i, rows = 0, size = 0
    memset(&parts, 0, sizeof(parts))
    try:
        headers = walk(<const uint8_t*>source.view.buf, source.view.len, &parts, held, buffer, crc, limit, partial,
                       decompress)
        for i in range(len(headers)):
            part = <const Part*>parts.data + i
            rows += part.count
            size += part.end - part.records
        return headers, fill(<const Part*>parts.data, len(headers), rows, size, buffer)
    finally:
        free(parts.data)


cdef object fill(const Part* parts, Py_ssize_t count, Py_ssize_t rows, Py_ssize_t size, buffer):
    cdef Sink sink
    cdef int64_t failed = 0, first_row = 0
    cdef Fault fault
    memset(&sink, 0, sizeof(sink))
    cdef bytes offsets = block_of(8 * rows), timestamps = block_of(8 * rows), header_offsets = block_of(4 * rows + 4)
    cdef bytes key_offsets = block_of(4 * rows + 4), value_offsets = block_of(4 * rows + 4)
    cdef bytes key_validity = bytes((rows + 7) // 8), value_validity = bytes((rows + 7) // 8)
    try:
        if not vector_reserve(&sink.values.data, size + SHORT_COPY):
            raise MemoryError()
        if not vector_reserve(&sink.keys.data, size // LIKELY_KEYS):
            raise MemoryError()
        prefer_huge_pages(sink.values.data.data, size)
        sink.offsets, sink.timestamps = <int64_t*>room(offsets), <int64_t*>room(timestamps)
        sink.header_offsets = <int32_t*>room(header_offsets)
        sink.keys.offsets, sink.values.offsets = <int32_t*>room(key_offsets), <int32_t*>room(value_offsets)
        sink.keys.validity, sink.values.validity = <uint8_t*>room(key_validity), <uint8_t*>room(value_validity)
        sink.header_offsets[0] = sink.keys.offsets[0] = sink.values.offsets[0] = 0
        if size < RELEASE_BYTES:
            fault = take_parts(&sink, parts, count, &failed, &first_row)
        else:
            with nogil:
                fault = take_parts(&sink, parts, count, &failed, &first_row)
        if fault == NO_MEMORY:
            raise MemoryError()
        if fault == BATCH_NOT_FILLED:
            raise batch_fault(fault, memoryview(buffer).cast("B")[parts[failed].position:], parts[failed].position, 0)
        if fault != FINE:
            raise record_fault(fault, parts[failed].position, sink.row - first_row)
        return (
            offsets, timestamps,
            (key_validity if sink.keys.nulls else None, key_offsets, block_view(&sink.keys.data)),
            (value_validity if sink.values.nulls else None, value_offsets, block_view(&sink.values.data)),
            header_columns(&sink, header_offsets) if sink.header_count else None,
        )
    finally:
        free(sink.keys.data.data)
        free(sink.values.data.data)
        free(sink.header_key_ends.data)
        free(sink.header_keys.data)
        free(sink.header_value_ends.data)
        free(sink.header_value_valid.data)
        free(sink.header_values.data)


cdef object header_columns(Sink* sink, bytes header_offsets):
    validity = bitmap(sink.header_value_valid.data, sink.header_count)
    return (
        header_offsets,
        (None, ends_to_offsets(&sink.header_key_ends), block_view(&sink.header_keys)),
        (validity, ends_to_offsets(&sink.header_value_ends), block_view(&sink.header_values)),
    )


# --- columns to Python's objects -------------------------------------------------------------------------------------

cdef class Source:
    """Columns of `count` rows, given as buffers in Arrow's layout, held and found long enough."""
    cdef list held
    cdef Rows rows
    cdef Py_ssize_t count

    def __cinit__(self, Py_ssize_t count, timestamps, keys, values, headers):
        self.held, self.count = [], count
        memset(&self.rows, 0, sizeof(self.rows))
        if count < 0 or count > INT32_MAX:
            raise UsageError(f"{count} rows; columns have at most {INT32_MAX}")
        self.rows.count = count
        if timestamps is not None:
            self.rows.timestamps = <const int64_t*>self.hold(timestamps, 8 * count, 8)
        self.hold_strings(&self.rows.keys, keys, count)
        self.hold_strings(&self.rows.values, values, count)
        if headers is not None:
            offsets, names, contents = headers
            self.rows.header_offsets = <const int32_t*>self.hold(offsets, 4 * count + 4, 4)
            self.rows.header_total = max(0, self.rows.header_offsets[count])
            self.hold_strings(&self.rows.header_keys, names, self.rows.header_total)
            self.hold_strings(&self.rows.header_values, contents, self.rows.header_total)

    cdef const uint8_t* hold(self, buffer, Py_ssize_t size, size_t width) except NULL:
        cdef Held held = Held(buffer)
        if held.view.len < size:
            raise UsageError(f"a column is shorter than the {self.count} rows that it is for")
        if <size_t>held.view.buf % width:
            raise UsageError(f"a column does not begin at a multiple of {width} bytes; copy it first")
        self.held.append(held)
        return <const uint8_t*>held.view.buf if held.view.len else NOTHING

    cdef int hold_strings(self, Strings* strings, parts, Py_ssize_t count) except -1:
        if parts is None:
            return 0
        validity, offsets, data = parts
        if validity is not None:
            strings.validity = self.hold(validity, (count + 7) // 8, 1)
        strings.offsets = <const int32_t*>self.hold(offsets, 4 * count + 4, 4)
        strings.data = self.hold(data, 0, 1)
        strings.size = (<Held>self.held[len(self.held) - 1]).view.len
        return 0


cdef object bytes_or_none(String string):
    if string.size >= 0:
        return PyBytes_FromStringAndSize(<const char*>string.data, string.size)
    if string.size == -1:
        return None
    raise UsageError("a column's offsets do not fit its data")


cdef tuple header_pairs(const Rows* rows, Py_ssize_t row):
    cdef int64_t i, start = rows.header_offsets[row], end = rows.header_offsets[row + 1]
    cdef String name
    if start == end:
        return ()
    if start < 0 or end < start or end > rows.header_total:
        raise UsageError("a column's offsets do not fit its data")
    pairs = []
    for i in range(start, end):
        name = string_at(&rows.header_keys, i)
        if name.size < 0:
            raise UsageError("a header without a name")
        text = PyUnicode_DecodeUTF8(<const char*>name.data, name.size, "surrogateescape")
        pairs.append((text, bytes_or_none(string_at(&rows.header_values, i))))
    return tuple(pairs)


def rows(make, parts, Py_ssize_t count, Py_ssize_t start, Py_ssize_t stop):
    offsets, timestamps, keys, values, headers = parts
    cdef Source source = Source(count, timestamps, keys, values, headers)
    cdef const int64_t* at = <const int64_t*>source.hold(offsets, 8 * count, 8)
    cdef Py_ssize_t i
    cdef list made = []
    if not isinstance(make, type) or not issubclass(make, tuple):
        raise TypeError(f"{make!r} is not a named tuple")
    if start < 0 or stop > count:
        raise UsageError(f"rows {start} to {stop} of {count}")
    for i in range(start, stop):
        row = named_tuple(make, 5)
        put(row, 0, at[i])
        put(row, 1, source.rows.timestamps[i])
        put(row, 2, bytes_or_none(string_at(&source.rows.keys, i)))
        put(row, 3, bytes_or_none(string_at(&source.rows.values, i)))
        put(row, 4, () if headers is None else header_pairs(&source.rows, i))
        made.append(row)
    return made
