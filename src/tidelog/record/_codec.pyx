# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""The compiled codec. `_pure` is its twin and says in Python what each function does; the two never differ in a result.

Rules that hold here: every buffer is asked for as plain contiguous bytes and given back before return; no byte is read
or written outside it, whatever the bytes say; a number read from the bytes is used only after it was compared with what
is left; what may change under us while the GIL is away (a caller's bytearray) is read once. The GIL is let go only for
work of RELEASE_BYTES and more: taking it back can cost more than a small checksum.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from tidelog.errors import UsageError
from tidelog.record.fault import batch_fault, record_fault, scan_error
from tidelog.record.header import BatchHeader as _BatchHeader, Scan as _Scan

cdef extern from "crc32c.h":
    void crc32c_init() noexcept nogil
    uint32_t crc32c_of(uint32_t value, const uint8_t* p, size_t n) noexcept nogil
    const char* crc32c_engine

cdef extern from "bytes.h":
    int16_t read16(const uint8_t* p) noexcept nogil
    int32_t read32(const uint8_t* p) noexcept nogil
    int64_t read64(const uint8_t* p) noexcept nogil
    void write16(uint8_t* p, int16_t n) noexcept nogil
    void write32(uint8_t* p, int32_t n) noexcept nogil
    void write64(uint8_t* p, int64_t n) noexcept nogil
    int64_t wrapping_add(int64_t a, int64_t b) noexcept nogil
    int64_t wrapping_subtract(int64_t a, int64_t b) noexcept nogil
    int read_varint(const uint8_t** cursor, const uint8_t* end, int32_t* value) noexcept nogil
    int read_varlong(const uint8_t** cursor, const uint8_t* end, int64_t* value) noexcept nogil
    int varint_size(int64_t n) noexcept nogil
    uint8_t* write_varint(uint8_t* p, int64_t n) noexcept nogil

cdef extern from "Python.h":
    ctypedef struct PyObject
    PyObject* new_bytes "PyBytes_FromStringAndSize" (const char* data, Py_ssize_t size) except NULL
    char* bytes_address "PyBytes_AsString" (PyObject* block) noexcept
    int _PyBytes_Resize(PyObject** block, Py_ssize_t size) except -1
    void Py_XDECREF(PyObject* block) noexcept
    int PyByteArray_Resize(object array, Py_ssize_t size) except -1
    char* PyByteArray_AsString(object array) noexcept

# The layout of header.py and the faults of fault.py, as constants that C can fold.
cdef enum:
    HEADER_SIZE = 61
    LENGTH_END = 12
    UNDER_CRC = 21
    COMPRESSION_BITS = 7
    APPEND_TIME_BIT = 8
    TRANSACTIONAL_BIT = 16
    LAST_COMPRESSION = 4
    MIN_RECORD_SIZE = 7
    RELEASE_BYTES = 1 << 18

cdef enum Fault:
    FINE = 0
    HEADER_CUT
    BATCH_CUT
    WRONG_MAGIC
    WRONG_LENGTH
    WRONG_CRC
    WRONG_COUNT
    SPARSE
    UNKNOWN_COMPRESSION
    TOO_MANY_RECORDS
    WRONG_VARINT
    WRONG_RECORD_LENGTH
    WRONG_OFFSET_DELTA
    WRONG_KEY_LENGTH
    WRONG_VALUE_LENGTH
    WRONG_HEADER_COUNT
    WRONG_HEADER_LENGTH
    RECORD_NOT_FILLED
    BATCH_NOT_FILLED
    COLUMN_FULL
    NO_MEMORY

cdef object _new_tuple = tuple.__new__
cdef uint8_t[1] NOTHING  # stands for the address that an empty buffer may lack
crc32c_init()


def engine():
    """How checksums are made here: "sse4.2", "armv8" or "table"."""
    return crc32c_engine.decode()


cdef uint32_t checksum(uint32_t value, const uint8_t* p, Py_ssize_t n) noexcept:
    if n < RELEASE_BYTES:
        return crc32c_of(value, p, n)
    with nogil:
        value = crc32c_of(value, p, n)
    return value


def crc32c(buffer, uint32_t value=0):
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        return checksum(value, <const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


# --- headers ---------------------------------------------------------------------------------------------------------

cdef object header_of(const uint8_t* p):
    return _new_tuple(_BatchHeader, (
        read64(p), <int64_t>read32(p + 8) + LENGTH_END, read32(p + 12), read16(p + 21), read32(p + 23), read64(p + 27),
        read64(p + 35), read64(p + 43), read16(p + 51), read32(p + 53), read32(p + 57),
    ))


cdef Fault glance(const uint8_t* p, Py_ssize_t left) noexcept nogil:
    """Is there a header, of a kind that we know?"""
    if left < HEADER_SIZE:
        return HEADER_CUT
    if p[16] != 2:
        return WRONG_MAGIC
    if read32(p + 8) < HEADER_SIZE - LENGTH_END:
        return WRONG_LENGTH
    return FINE


cdef Fault inspect(const uint8_t* p, Py_ssize_t left, bint crc, bint dense) noexcept:
    """Is there a whole batch whose header agrees with itself? `dense`: and whose offsets have no gaps?"""
    cdef Fault fault = glance(p, left)
    cdef int64_t size, count, span
    cdef int compression
    if fault != FINE:
        return fault
    size = <int64_t>read32(p + 8) + LENGTH_END
    if size > left:
        return BATCH_CUT
    if crc and checksum(0, p + UNDER_CRC, size - UNDER_CRC) != <uint32_t>read32(p + 17):
        return WRONG_CRC
    count, span = read32(p + 57), <int64_t>read32(p + 23) + 1
    if count < 0 or span < 1 or count > span:
        return WRONG_COUNT
    if dense and count != span:
        return SPARSE
    compression = read16(p + 21) & COMPRESSION_BITS
    if compression > LAST_COMPRESSION:
        return UNKNOWN_COMPRESSION
    if compression == 0 and count * MIN_RECORD_SIZE > size - HEADER_SIZE:
        return TOO_MANY_RECORDS
    return FINE


cdef object fault_at(Fault fault, const uint8_t* p, Py_ssize_t left, Py_ssize_t position):
    head = PyBytes_FromStringAndSize(<const char*>p, min(left, HEADER_SIZE)) if left > 0 else b""
    return batch_fault(fault, head, position, max(left, 0))


cdef const uint8_t* place(Py_buffer* view, Py_ssize_t position) except NULL:
    if position < 0:
        raise ValueError(f"position {position} is negative")
    if position > view.len:
        raise fault_at(HEADER_CUT, NULL, 0, position)
    return <const uint8_t*>view.buf + position if view.len else NOTHING


def peek(buffer, Py_ssize_t position=0):
    cdef Py_buffer view
    cdef const uint8_t* p
    cdef Fault fault
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        p = place(&view, position)
        fault = glance(p, view.len - position)
        if fault != FINE:
            raise fault_at(fault, p, view.len - position, position)
        return header_of(p)
    finally:
        PyBuffer_Release(&view)


def check(buffer, Py_ssize_t position=0):
    cdef Py_buffer view
    cdef const uint8_t* p
    cdef Fault fault
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        p = place(&view, position)
        fault = inspect(p, view.len - position, True, True)
        if fault != FINE:
            raise fault_at(fault, p, view.len - position, position)
        return header_of(p)
    finally:
        PyBuffer_Release(&view)


def patch(buffer, int64_t base_offset, int32_t leader_epoch, Py_ssize_t position=0):
    cdef Py_buffer view
    cdef uint8_t* p
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        p = <uint8_t*>place(&view, position)
        if view.len - position < HEADER_SIZE:
            raise fault_at(HEADER_CUT, p, view.len - position, position)
        write64(p, base_offset)
        write32(p + 12, leader_epoch)
    finally:
        PyBuffer_Release(&view)


cdef uint8_t* whole(Py_buffer* view, Py_ssize_t position) except NULL:
    """The batch at `position`, all of whose bytes are there."""
    cdef uint8_t* p = <uint8_t*>place(view, position)
    cdef Py_ssize_t left = view.len - position
    cdef Fault fault = glance(p, left)
    if fault == FINE and <int64_t>read32(p + 8) + LENGTH_END > left:
        fault = BATCH_CUT
    if fault != FINE:
        raise fault_at(fault, p, left, position)
    return p


cdef void sign(uint8_t* p) noexcept:
    write32(p + 17, <int32_t>checksum(0, p + UNDER_CRC, <int64_t>read32(p + 8) + LENGTH_END - UNDER_CRC))


def stamp_append_time(buffer, int64_t timestamp_ms, Py_ssize_t position=0):
    cdef Py_buffer view
    cdef uint8_t* p
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        p = whole(&view, position)
        write16(p + 21, read16(p + 21) | APPEND_TIME_BIT)
        write64(p + 35, timestamp_ms)
        sign(p)
    finally:
        PyBuffer_Release(&view)


def restamp(buffer, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence, bint transactional,
            Py_ssize_t position=0):
    cdef Py_buffer view
    cdef uint8_t* p
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        p = whole(&view, position)
        write16(p + 21, read16(p + 21) & ~TRANSACTIONAL_BIT | (TRANSACTIONAL_BIT if transactional else 0))
        write64(p + 43, producer_id)
        write16(p + 51, producer_epoch)
        write32(p + 53, base_sequence)
        sign(p)
    finally:
        PyBuffer_Release(&view)


def seal(buffer):
    cdef Py_buffer view
    cdef uint8_t* p
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        p = <uint8_t*>place(&view, 0)
        if view.len < HEADER_SIZE:
            raise fault_at(HEADER_CUT, p, view.len, 0)
        if view.len > INT32_MAX:
            raise UsageError(f"a batch of {view.len} bytes is past 2 GiB; encode fewer records at a time")
        write32(p + 8, <int32_t>(view.len - LENGTH_END))
        sign(p)
    finally:
        PyBuffer_Release(&view)


def scan(buffer, Py_ssize_t position=0, *, bint crc=True):
    cdef Py_buffer view
    cdef const uint8_t* p
    cdef Fault fault = FINE
    cdef list headers = [], positions = []
    cdef int64_t size
    error = None
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        p = place(&view, position)
        while position < view.len:
            fault = inspect(p, view.len - position, crc, False)
            if fault != FINE:
                error = scan_error(fault_at(fault, p, view.len - position, position))
                break
            size = <int64_t>read32(p + 8) + LENGTH_END
            if size > view.len - position:  # only if the bytes changed while they were inspected
                break
            headers.append(header_of(p))
            positions.append(position)
            p += size
            position += size
        return _new_tuple(_Scan, (headers, positions, position, error))
    finally:
        PyBuffer_Release(&view)


# --- records to columns ----------------------------------------------------------------------------------------------

cdef struct Part:  # one batch: where its records are, uncompressed, and what of its header they need
    const uint8_t* records
    const uint8_t* end
    int64_t base_offset
    int64_t base_timestamp
    int64_t append_timestamp
    int64_t position
    int32_t count
    int32_t last_offset_delta
    bint append_time

cdef struct Vector:  # bytes that grow
    uint8_t* data
    size_t size
    size_t capacity

cdef struct Column:
    int32_t* offsets
    uint8_t* validity
    uint8_t* data
    int64_t used
    int64_t nulls

cdef struct Sink:
    int64_t* offsets
    int64_t* timestamps
    int32_t* header_offsets
    Column keys
    Column values
    Py_ssize_t row
    int64_t header_count
    Vector header_key_ends
    Vector header_keys
    Vector header_value_ends
    Vector header_value_valid
    Vector header_values


cdef int push(Vector* vector, const void* data, size_t size) noexcept nogil:
    cdef size_t capacity
    cdef void* grown
    if vector.size + size > vector.capacity:
        capacity = max(vector.capacity * 2, vector.size + size, <size_t>64)
        grown = realloc(vector.data, capacity)
        if grown == NULL:
            return 0
        vector.data, vector.capacity = <uint8_t*>grown, capacity
    if size:
        memcpy(vector.data + vector.size, data, size)
    vector.size += size
    return 1


cdef inline Fault take(Column* column, Py_ssize_t row, const uint8_t** cursor, const uint8_t* end, Fault wrong) noexcept nogil:
    """One key or value: a length, -1 for null, and that many bytes."""
    cdef int32_t size
    if not read_varint(cursor, end, &size):
        return WRONG_VARINT
    if size >= 0:
        if size > end - cursor[0]:
            return wrong
        if column.used + size > INT32_MAX:
            return COLUMN_FULL
        memcpy(column.data + column.used, cursor[0], size)
        cursor[0] += size
        column.used += size
        column.validity[row >> 3] |= <uint8_t>(1 << (row & 7))
    elif size == -1:
        column.nulls += 1
    else:
        return wrong
    column.offsets[row + 1] = <int32_t>column.used
    return FINE


cdef Fault take_header(Sink* sink, const uint8_t** cursor, const uint8_t* end) noexcept nogil:
    cdef int32_t size, used
    cdef uint8_t valid
    if not read_varint(cursor, end, &size):
        return WRONG_VARINT
    if size < 0 or size > end - cursor[0]:
        return WRONG_HEADER_LENGTH
    if sink.header_keys.size + size > INT32_MAX:
        return COLUMN_FULL
    if not push(&sink.header_keys, cursor[0], size):
        return NO_MEMORY
    cursor[0] += size
    if not read_varint(cursor, end, &size):
        return WRONG_VARINT
    if size < -1 or size > end - cursor[0]:
        return WRONG_HEADER_LENGTH
    valid = size >= 0
    if valid:
        if sink.header_values.size + size > INT32_MAX:
            return COLUMN_FULL
        if not push(&sink.header_values, cursor[0], size):
            return NO_MEMORY
        cursor[0] += size
    used = <int32_t>sink.header_keys.size
    if not push(&sink.header_key_ends, &used, 4) or not push(&sink.header_value_valid, &valid, 1):
        return NO_MEMORY
    used = <int32_t>sink.header_values.size
    if not push(&sink.header_value_ends, &used, 4):
        return NO_MEMORY
    sink.header_count += 1
    return FINE


cdef Fault take_record(Sink* sink, const Part* part, int64_t* last_delta, const uint8_t** cursor) noexcept nogil:
    cdef Py_ssize_t row = sink.row
    cdef int32_t number, delta
    cdef int64_t timestamp
    cdef const uint8_t* end
    cdef Fault fault
    if not read_varint(cursor, part.end, &number):
        return WRONG_VARINT
    if number < 1 or number > part.end - cursor[0]:
        return WRONG_RECORD_LENGTH
    end = cursor[0] + number
    cursor[0] += 1  # attributes of a record: unused by Kafka so far
    if not read_varlong(cursor, end, &timestamp) or not read_varint(cursor, end, &delta):
        return WRONG_VARINT
    if delta <= last_delta[0] or delta > part.last_offset_delta:
        return WRONG_OFFSET_DELTA
    last_delta[0] = delta
    sink.offsets[row] = wrapping_add(part.base_offset, delta)
    sink.timestamps[row] = part.append_timestamp if part.append_time else wrapping_add(part.base_timestamp, timestamp)
    fault = take(&sink.keys, row, cursor, end, WRONG_KEY_LENGTH)
    if fault == FINE:
        fault = take(&sink.values, row, cursor, end, WRONG_VALUE_LENGTH)
    if fault != FINE:
        return fault
    if not read_varint(cursor, end, &number):
        return WRONG_VARINT
    if number:
        if number < 0 or number > (end - cursor[0]) // 2:
            return WRONG_HEADER_COUNT
        while number:
            fault = take_header(sink, cursor, end)
            if fault != FINE:
                return fault
            number -= 1
    sink.header_offsets[row + 1] = <int32_t>sink.header_count
    if cursor[0] != end:
        return RECORD_NOT_FILLED
    sink.row = row + 1
    return FINE


cdef Fault take_batch(Sink* sink, const Part* part) noexcept nogil:
    cdef const uint8_t* cursor = part.records
    cdef int64_t last_delta = -1
    cdef Fault fault
    cdef int32_t i
    for i in range(part.count):
        fault = take_record(sink, part, &last_delta, &cursor)
        if fault != FINE:
            return fault
    return FINE if cursor == part.end else BATCH_NOT_FILLED


cdef Fault take_all(Sink* sink, const Part* parts, Py_ssize_t count, Py_ssize_t* failed, Py_ssize_t* first_row) noexcept nogil:
    cdef Fault fault
    for failed[0] in range(count):
        first_row[0] = sink.row
        fault = take_batch(sink, &parts[failed[0]])
        if fault != FINE:
            return fault
    return FINE


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


cdef object settle(PyObject** block, Py_ssize_t size):
    """The first `size` bytes of a block that was made too large, as an object; the rest goes back to the system."""
    _PyBytes_Resize(block, size)
    settled = <object>block[0]
    Py_XDECREF(block[0])
    block[0] = NULL
    return settled


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


cdef object vector_bytes(const Vector* vector):
    return PyBytes_FromStringAndSize(<char*>vector.data, vector.size) if vector.size else b""


cdef object walk(const uint8_t* p, Py_ssize_t left, Vector* parts, list held, buffer, bint crc, int64_t limit, bint partial, decompress):
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
            plain = Held(decompress(compression, memoryview(buffer).cast("B")[position + HEADER_SIZE:position + size], limit))
            held.append(plain)
            part.records = <const uint8_t*>plain.view.buf
            part.end = part.records + plain.view.len
            limit -= plain.view.len
        if part.count < 0 or <int64_t>part.count * MIN_RECORD_SIZE > part.end - part.records:
            raise fault_at(TOO_MANY_RECORDS, p, left, position)
        if not push(parts, &part, sizeof(Part)):
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
        headers = walk(<const uint8_t*>source.view.buf, source.view.len, &parts, held, buffer, crc, limit, partial, decompress)
        for i in range(len(headers)):
            part = <const Part*>parts.data + i
            rows += part.count
            size += part.end - part.records
        return headers, fill(<const Part*>parts.data, len(headers), rows, size, buffer)
    finally:
        free(parts.data)


cdef object fill(const Part* parts, Py_ssize_t count, Py_ssize_t rows, Py_ssize_t size, buffer):
    cdef Sink sink
    cdef PyObject* keys = NULL
    cdef PyObject* values = NULL
    cdef Py_ssize_t failed = 0, first_row = 0
    cdef Fault fault
    memset(&sink, 0, sizeof(sink))
    cdef bytes offsets = block_of(8 * rows), timestamps = block_of(8 * rows), header_offsets = block_of(4 * rows + 4)
    cdef bytes key_offsets = block_of(4 * rows + 4), value_offsets = block_of(4 * rows + 4)
    cdef bytes key_validity = bytes((rows + 7) // 8), value_validity = bytes((rows + 7) // 8)
    try:
        keys, values = new_bytes(NULL, size), new_bytes(NULL, size)
        sink.offsets, sink.timestamps = <int64_t*>room(offsets), <int64_t*>room(timestamps)
        sink.header_offsets = <int32_t*>room(header_offsets)
        sink.keys.offsets, sink.values.offsets = <int32_t*>room(key_offsets), <int32_t*>room(value_offsets)
        sink.keys.validity, sink.values.validity = <uint8_t*>room(key_validity), <uint8_t*>room(value_validity)
        sink.keys.data, sink.values.data = <uint8_t*>bytes_address(keys), <uint8_t*>bytes_address(values)
        sink.header_offsets[0] = sink.keys.offsets[0] = sink.values.offsets[0] = 0
        if size < RELEASE_BYTES:
            fault = take_all(&sink, parts, count, &failed, &first_row)
        else:
            with nogil:
                fault = take_all(&sink, parts, count, &failed, &first_row)
        if fault == NO_MEMORY:
            raise MemoryError()
        if fault == BATCH_NOT_FILLED:
            raise batch_fault(fault, memoryview(buffer).cast("B")[parts[failed].position:], parts[failed].position, 0)
        if fault != FINE:
            raise record_fault(fault, parts[failed].position, sink.row - first_row)
        return (
            offsets, timestamps,
            (key_validity if sink.keys.nulls else None, key_offsets, settle(&keys, sink.keys.used)),
            (value_validity if sink.values.nulls else None, value_offsets, settle(&values, sink.values.used)),
            header_columns(&sink, header_offsets) if sink.header_count else None,
        )
    finally:
        Py_XDECREF(keys)
        Py_XDECREF(values)
        free(sink.header_key_ends.data)
        free(sink.header_keys.data)
        free(sink.header_value_ends.data)
        free(sink.header_value_valid.data)
        free(sink.header_values.data)


cdef object header_columns(const Sink* sink, bytes header_offsets):
    validity = bitmap(sink.header_value_valid.data, sink.header_count)
    return (
        header_offsets,
        (None, ends_to_offsets(&sink.header_key_ends), vector_bytes(&sink.header_keys)),
        (validity, ends_to_offsets(&sink.header_value_ends), vector_bytes(&sink.header_values)),
    )


# --- rows to a batch -------------------------------------------------------------------------------------------------

cdef bytes plain_bytes(value):
    return value if type(value) is bytes else memoryview(value).tobytes()


cdef int push_sized(Vector* vector, bytes data) except -1:
    cdef uint8_t[10] number
    cdef Py_ssize_t size = -1 if data is None else len(data)
    cdef uint8_t* end = write_varint(number, size)
    if not push(vector, number, end - number) or (size > 0 and not push(vector, PyBytes_AsString(data), size)):
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
    p = write_varint(p, size)
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


cdef void write_header(uint8_t* p, int64_t base_offset, int16_t attributes, int32_t last_offset_delta, int64_t base_timestamp,
                       int64_t max_timestamp, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence,
                       int32_t count) noexcept nogil:
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
            p = write_varint(p, size)
            p[0] = 0
            p = write_varint(write_varint(p + 1, delta), count)
            p = write_sized(p, NULL if key_bytes is None else PyBytes_AsString(key_bytes), key_size)
            p = write_sized(p, NULL if value_bytes is None else PyBytes_AsString(value_bytes), value_size)
            p = write_varint(p, header_count)
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
