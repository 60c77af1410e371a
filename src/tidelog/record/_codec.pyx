# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""The compiled codec. `_pure` is its twin and says in Python what each function does; the two never differ in a result.

Rules that hold here: every buffer is asked for as plain contiguous bytes and given back before return; no byte is read
or written outside it, whatever the bytes say; a number read from the bytes is used only after it was compared with what
is left; what may change under us while the GIL is away (a caller's bytearray) is read once. The GIL is let go only for
work of RELEASE_BYTES and more: taking it back can cost more than a small checksum. (Compaction lets go of it sooner.)
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from cpython.ref cimport Py_INCREF
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from os import urandom as _urandom

from tidelog.errors import MalformedBatch, UsageError
from tidelog.record.fault import UNREADABLE, batch_fault, record_fault, scan_error
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
    int64_t wrapping_subtract(int64_t a, int64_t b) noexcept nogil
    int varint_size(int64_t n) noexcept nogil
    void prefer_huge_pages(void* block, size_t size) noexcept nogil
    int32_t murmur2_of(const uint8_t* p, Py_ssize_t n) noexcept nogil
    uint8_t* put_varint(uint8_t* p, int64_t n) noexcept nogil

cdef extern from "decode.h":
    enum: SHORT_COPY
    ctypedef enum Fault:
        FINE, HEADER_CUT, BATCH_CUT, WRONG_MAGIC, WRONG_LENGTH, WRONG_CRC, WRONG_COUNT, SPARSE, UNKNOWN_COMPRESSION
        TOO_MANY_RECORDS, BATCH_NOT_FILLED, NO_MEMORY
    ctypedef struct Part:
        const uint8_t* records
        const uint8_t* end
        int64_t base_offset, base_timestamp, append_timestamp, position
        int32_t count, last_offset_delta
        int append_time
    ctypedef struct Vector:
        uint8_t* data
        size_t size, capacity
    ctypedef struct Column:
        int32_t* offsets
        uint8_t* validity
        Vector data
        int64_t nulls
    ctypedef struct Sink:
        int64_t* offsets
        int64_t* timestamps
        int32_t* header_offsets
        Column keys, values
        int64_t row, header_count
        Vector header_key_ends, header_keys, header_value_ends, header_value_valid, header_values
    int vector_reserve(Vector* vector, size_t more) noexcept nogil
    int vector_push(Vector* vector, const void* data, size_t size) noexcept nogil
    Fault take_parts(Sink* sink, const Part* parts, int64_t count, int64_t* failed, int64_t* first_row) noexcept nogil

cdef extern from "encode.h":
    ctypedef enum Encoded:
        ENCODED, TOO_LARGE, BAD_OFFSETS
    ctypedef struct Strings:
        const uint8_t* validity
        const int32_t* offsets
        const uint8_t* data
        int64_t size
    ctypedef struct Rows:
        Strings keys, values, header_keys, header_values
        const int64_t* timestamps
        const int32_t* header_offsets
        int64_t header_total
        const int32_t* order
        int64_t count
    ctypedef struct String:
        const uint8_t* data
        int64_t size
    String string_at(const Strings* strings, int64_t i) noexcept nogil
    Encoded put_records(const Rows* rows, int64_t first, int64_t last, uint8_t* out, int64_t capacity, int64_t* used,
                        int64_t* next, int64_t* max_timestamp, int64_t* base_timestamp) noexcept nogil
    int64_t place_rows(const Rows* rows, const int32_t* given, int32_t partitions, int32_t spare, int32_t* places,
                       int32_t* counts) noexcept nogil
    void sort_rows(const int32_t* places, int64_t count, int32_t* counts, int32_t partitions,
                   int32_t* order) noexcept nogil

cdef extern from "compact.h":
    ctypedef struct KeySlot:
        int64_t next
    ctypedef struct KeyTable:
        KeySlot* slots
        size_t size, used, limit
        void* secret
    ctypedef struct Filter:
        KeyTable* keys
        int64_t known_up_to, now, horizon
        int discard
        int64_t gap_base, gap_next
        int32_t gap_epoch
        Vector out, plain, kept
        int64_t seen, left, keyless, unreadable
    ctypedef struct Made:
        int64_t count
    ctypedef enum Progress:
        FILTERED, NEEDS_PLAIN, CUT_SHORT, OUT_OF_MEMORY
    ctypedef enum Outcome:
        AS_IT_IS, EMPTIED, MADE_ANEW, MADE_NOTHING
    void part_of(const uint8_t* p, const uint8_t* records, const uint8_t* end, Part* part) noexcept nogil
    int64_t keyless_of "find_keyless"(const Part* part, int32_t* numbers, int64_t most, int64_t* failed) noexcept nogil
    int64_t note_part(KeyTable* keys, const Part* part, int64_t start) noexcept nogil
    Progress note_batches(KeyTable* keys, const uint8_t** cursor, const uint8_t* end, const uint8_t* verdicts,
                          int64_t count, int64_t start, int64_t* batch, int64_t* full) noexcept nogil
    Outcome filter_part(Filter* f, const Part* part, const uint8_t* p, int verdict, Made* made) noexcept nogil
    Progress filter_batches(Filter* f, const uint8_t** cursor, const uint8_t* end, const uint8_t* verdicts,
                            int64_t count, int64_t* batch) noexcept nogil
    int put_outcome(Filter* f, Outcome outcome, const uint8_t* p, size_t size, int verdict) noexcept nogil
    int begin_batch(Filter* f, const uint8_t* p, size_t size, const Made* made) noexcept nogil
    int end_batch(Filter* f, const uint8_t* data, size_t size) noexcept nogil

cdef extern from *:
    """
    /* A named tuple without the plain tuple that its constructor copies. Items are set right after. */
    static PyObject *named_tuple(PyObject *type, Py_ssize_t size) {
        PyObject *made = ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, size);
    #if PY_VERSION_HEX >= 0x030E0000
        if (made) ((PyTupleObject *)made)->ob_hash = -1; /* not yet computed */
    #endif
        return made;
    }
    """
    object named_tuple(object type, Py_ssize_t size)

cdef extern from "Python.h":
    void PyTuple_SET_ITEM(object made, Py_ssize_t index, object item) noexcept
    object PyUnicode_DecodeUTF8(const char* data, Py_ssize_t size, const char* errors)
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
    MAX_RECORD_FRAME = 36  # bytes of a record that are not key, value or headers, at most
    MAX_HEADER_FRAME = 10  # bytes of a header that are not name or value, at most
    LIKELY_KEYS = 8  # room for keys at first: this part of all bytes
    TAKE_OVER_FROM = 1 << 13  # bytes from which on an object of their own is cheaper than a copy
    RELEASE_BYTES = 1 << 18
    YIELD_BYTES = 1 << 14  # the same for compaction, which nobody waits for, and which is not to keep anybody waiting
    MAX_KEYS = 1 << 30
    SPARE_SLOTS = 9  # one free slot for as many keys: a search goes on until it finds one

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

cdef inline void put(made, Py_ssize_t index, item) noexcept:
    Py_INCREF(item)  # the tuple keeps it
    PyTuple_SET_ITEM(made, index, item)


cdef object header_of(const uint8_t* p):
    made = named_tuple(_BatchHeader, 11)
    put(made, 0, read64(p))
    put(made, 1, <int64_t>read32(p + 8) + LENGTH_END)
    put(made, 2, read32(p + 12))
    put(made, 3, read16(p + 21))
    put(made, 4, read32(p + 23))
    put(made, 5, read64(p + 27))
    put(made, 6, read64(p + 35))
    put(made, 7, read64(p + 43))
    put(made, 8, read16(p + 51))
    put(made, 9, read32(p + 53))
    put(made, 10, read32(p + 57))
    return made


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
            size = <int64_t>read32(p + 8) + LENGTH_END if fault == FINE else 0
            if size > view.len - position:  # only if the bytes changed while they were inspected
                fault = BATCH_CUT
            if fault != FINE:
                error = scan_error(fault_at(fault, p, view.len - position, position))
                break
            headers.append(header_of(p))
            positions.append(position)
            p += size
            position += size
        return _Scan(headers, positions, position, error)
    finally:
        PyBuffer_Release(&view)


include "decode.pxi"
include "encode.pxi"
include "compact.pxi"
