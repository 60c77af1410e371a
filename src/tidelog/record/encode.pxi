# Part of _codec: rows to a batch, columns to a batch. encode.h has the loop over columns.

cdef bytes plain_bytes(value):
    return value if type(value) is bytes else memoryview(value).tobytes()


cdef int push_sized(Vector* vector, bytes data) except -1:
    cdef uint8_t[10] number
    cdef Py_ssize_t size = -1 if data is None else len(data)
    cdef uint8_t* end = put_varint(number, size)
    if not vector_push(vector, number, end - number):
        raise MemoryError()
    if size > 0 and not vector_push(vector, PyBytes_AsString(data), size):
        raise MemoryError()
    return 0


cdef int push_headers(Vector* vector, headers) except -1:
    """The headers of one record behind one another, and how many there are."""
    cdef int count = 0
    vector.size = 0
    for name, value in headers:
        push_sized(vector, name.encode("utf-8", "surrogateescape") if isinstance(name, str) else plain_bytes(name))
        push_sized(vector, None if value is None else plain_bytes(value))
        count += 1
    return count


cdef uint8_t* write_sized(uint8_t* p, const char* data, Py_ssize_t size) noexcept:
    p = put_varint(p, size)
    if size > 0:
        memcpy(p, data, size)
        p += size
    return p


cdef uint8_t* grow(bytearray out, Py_ssize_t used, Py_ssize_t more) except NULL:
    """The address of byte `used`, with `more` bytes after it to write to."""
    if used + more > INT32_MAX:
        raise UsageError(f"a batch of {used + more} bytes is past 2 GiB; encode fewer records at a time")
    if used + more > len(out):
        PyByteArray_Resize(out, min(<int64_t>INT32_MAX, max(2 * <int64_t>len(out), used + more)))
    return <uint8_t*>PyByteArray_AsString(out) + used


cdef void write_header(uint8_t* p, int64_t base_offset, int16_t attributes, int32_t last_offset_delta,
                       int64_t base_timestamp, int64_t max_timestamp, int64_t producer_id, int16_t producer_epoch,
                       int32_t base_sequence, int32_t count) noexcept nogil:
    write64(p, base_offset)
    write32(p + 8, HEADER_SIZE - LENGTH_END)
    write32(p + 12, -1)
    p[16] = 2
    write32(p + 17, 0)
    write16(p + 21, attributes)
    write32(p + 23, last_offset_delta)
    write64(p + 27, base_timestamp)
    write64(p + 35, max_timestamp)
    write64(p + 43, producer_id)
    write16(p + 51, producer_epoch)
    write32(p + 53, base_sequence)
    write32(p + 57, count)


def encode_rows(rows, int64_t base_offset, int16_t attributes, int64_t producer_id, int16_t producer_epoch,
                int32_t base_sequence):
    cdef bytearray out = bytearray(512)
    cdef Py_ssize_t used = HEADER_SIZE, key_size, value_size, size
    cdef int64_t timestamp, base_timestamp = 0, max_timestamp = 0, delta
    cdef int32_t count = 0
    cdef int header_count
    cdef Vector scratch
    cdef bytes key_bytes, value_bytes
    cdef uint8_t* p
    memset(&scratch, 0, sizeof(scratch))
    try:
        for key, value, headers, at in rows:
            timestamp = at
            if count == 0:
                base_timestamp = max_timestamp = timestamp
            max_timestamp = max(max_timestamp, timestamp)
            key_bytes = None if key is None else plain_bytes(key)
            value_bytes = None if value is None else plain_bytes(value)
            key_size = -1 if key_bytes is None else len(key_bytes)
            value_size = -1 if value_bytes is None else len(value_bytes)
            scratch.size = 0
            header_count = push_headers(&scratch, headers) if headers else 0
            delta = wrapping_subtract(timestamp, base_timestamp)
            size = (1 + varint_size(delta) + varint_size(count) + varint_size(key_size) + max(key_size, 0)
                    + varint_size(value_size) + max(value_size, 0) + varint_size(header_count) + scratch.size)
            p = grow(out, used, varint_size(size) + size)
            used += varint_size(size) + size
            p = put_varint(p, size)
            p[0] = 0
            p = put_varint(put_varint(p + 1, delta), count)
            p = write_sized(p, NULL if key_bytes is None else PyBytes_AsString(key_bytes), key_size)
            p = write_sized(p, NULL if value_bytes is None else PyBytes_AsString(value_bytes), value_size)
            p = put_varint(p, header_count)
            if header_count:
                memcpy(p, scratch.data, scratch.size)
            count += 1
    finally:
        free(scratch.data)
    if count == 0:
        raise UsageError("no records to encode; a batch has one at least")
    PyByteArray_Resize(out, used)
    write_header(<uint8_t*>PyByteArray_AsString(out), base_offset, attributes, count - 1, base_timestamp, max_timestamp,
                 producer_id, producer_epoch, base_sequence, count)
    return out


def encode_columns(Py_ssize_t count, timestamps, keys, values, headers, Py_ssize_t start, Py_ssize_t target,
                   int64_t base_offset, int16_t attributes, int64_t producer_id, int16_t producer_epoch,
                   int32_t base_sequence, order=None, stop=None):
    if timestamps is None:
        raise TypeError("encode_columns() needs timestamps")
    cdef Source source = Source(count, timestamps, keys, values, headers)
    if order is not None:
        source.rows.order = <const int32_t*>source.hold(order, 4 * count, 4)
    if stop is not None:
        count = min(count, max(0, <Py_ssize_t>stop))
    cdef bytearray out = bytearray()
    cdef uint8_t* p
    cdef int64_t used = 0, next_row = 0, max_timestamp = 0, base_timestamp = 0
    cdef Py_ssize_t capacity
    cdef Encoded result = TOO_LARGE
    if start < 0 or start >= count:
        raise UsageError("no records to encode; a batch has one at least")
    capacity = room_for(source, start, target)
    while True:
        PyByteArray_Resize(out, HEADER_SIZE + capacity)
        p = <uint8_t*>PyByteArray_AsString(out)
        if capacity < RELEASE_BYTES:
            result = put_records(&source.rows, start, count, p + HEADER_SIZE, capacity, &used, &next_row,
                                 &max_timestamp, &base_timestamp)
        else:
            with nogil:
                result = put_records(&source.rows, start, count, p + HEADER_SIZE, capacity, &used, &next_row,
                                     &max_timestamp, &base_timestamp)
        if result != TOO_LARGE:
            break
        if used > INT32_MAX - HEADER_SIZE:
            raise UsageError(f"a record of {used} bytes is past 2 GiB, more than a batch can hold")
        capacity = used
    if result == BAD_OFFSETS:
        raise UsageError("a column's offsets do not fit its data")
    PyByteArray_Resize(out, HEADER_SIZE + used)
    write_header(<uint8_t*>PyByteArray_AsString(out), base_offset, attributes, <int32_t>(next_row - start - 1),
                 base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, <int32_t>(next_row - start))
    return out, next_row


cdef Py_ssize_t room_for(Source source, Py_ssize_t start, Py_ssize_t target):
    """Bytes to have for the records of one batch: `target`, less where all that is left needs less."""
    cdef Py_ssize_t most = MAX_RECORD_FRAME * (source.count - start) + MAX_HEADER_FRAME * source.rows.header_total
    cdef Held held
    for held in source.held:
        most += held.view.len
    return max(0, min(target - HEADER_SIZE, most, INT32_MAX - HEADER_SIZE))


def group_rows(Py_ssize_t count, keys, given, int32_t partitions, int32_t spare):
    if partitions < 1 or spare < 0 or spare >= partitions:
        raise UsageError(f"partition {spare} of {partitions} does not exist")
    cdef Source source = Source(count, None, keys, None, None)
    cdef const int32_t* wanted = NULL
    cdef bytes order = PyBytes_FromStringAndSize(NULL, 4 * count)
    cdef int32_t* places = <int32_t*>calloc(count + partitions, sizeof(int32_t))
    cdef int32_t* counts = places + count
    cdef int32_t* sorted_rows = <int32_t*>PyBytes_AsString(order)
    cdef int64_t placed
    if places == NULL:
        raise MemoryError()
    try:
        if given is not None:
            wanted = <const int32_t*>source.hold(given, 4 * count, 4)
        with nogil:
            placed = place_rows(&source.rows, wanted, partitions, spare, places, counts)
            if placed == count:
                sort_rows(places, count, counts, partitions, sorted_rows)
        if placed != count:
            raise UsageError(f"row {placed} fits none of {partitions} partitions")
        return order, [counts[p] for p in range(partitions)]
    finally:
        free(places)


def murmur2(key):
    cdef Py_buffer view
    PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
    try:
        return murmur2_of(<const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
