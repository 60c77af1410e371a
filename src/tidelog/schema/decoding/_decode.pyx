# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled part: rows of bytes into columns, by a program. `columns.h` says what a column is.

Rules: no byte is read outside of a row, whatever the row says; what a row may cost is bounded by its size; a bad row
leaves its columns as they were, plus one null. The GIL is kept: a worker of Spark's has one thread.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

cdef extern from "columns.h":
    enum: DEPTH_MAX, EMPTY_ITEMS
    ctypedef enum Fault:
        FINE, NO_MEMORY
    ctypedef enum Kind:
        BITS, FIXED, BINARY, LIST, STRUCT
    ctypedef struct Vector:
        uint8_t* data
        size_t size
    ctypedef struct Column:
        int32_t kind, width, count, index
        Column** children
        int64_t length
        int has_nulls
        Vector values, offsets, validity
    ctypedef struct Action:
        int32_t op, flags
        int64_t a, b
        Column* column
        int32_t count, texts
        Action** children
        const uint8_t** text
        int64_t* text_size
    ctypedef struct Reader:
        const uint8_t* p
        const uint8_t* end
        int64_t* budget
        int depth
        int64_t column, detail
    Fault append_null(Column* c) noexcept
    Fault put_offset(Column* c, int64_t offset) noexcept
    void truncate_column(Column* c, int64_t n) noexcept

cdef extern from "avro.h":
    Fault avro_row(const Action* a, Reader* r) noexcept

cdef extern from "protobuf.h":
    Fault proto_row(const Action* a, Reader* r) noexcept

cdef extern from "json.h":
    Fault json_row(const Action* a, Reader* r) noexcept

ctypedef Fault (*RowOf)(const Action* a, Reader* r) noexcept

cdef enum:
    FRAME = 5  # a zero, and the schema's id
    NO_VALUE = -1
    NO_FRAME = -2


cdef class Columns:
    """Column 0 is the root. Each of `layout` is its kind, its width in bytes and the numbers of its children."""

    cdef Column* columns
    cdef int count

    def __cinit__(self, layout):
        cdef int i, j
        cdef Column* column
        self.count = len(layout)
        self.columns = <Column*>calloc(self.count, sizeof(Column))
        if self.columns == NULL:
            raise MemoryError
        for i, (kind, width, children) in enumerate(layout):
            column = &self.columns[i]
            column.kind, column.width, column.index, column.count = kind, width, i, len(children)
            column.children = <Column**>calloc(len(children) + 1, sizeof(Column*))
            if column.children == NULL:
                raise MemoryError
            for j, child in enumerate(children):
                if not i < child < self.count:
                    raise ValueError(f"column {i} has a child {child}")
                column.children[j] = &self.columns[<int>child]
        self.begin()

    cdef int begin(self) except -1:
        cdef Column* column
        for i in range(self.count):
            column = &self.columns[i]
            column.length = column.has_nulls = 0
            column.values.size = column.offsets.size = column.validity.size = 0
            if column.kind in (BINARY, LIST) and put_offset(column, 0) != FINE:
                raise MemoryError
        return 0

    def __dealloc__(self):
        cdef Column* column
        if self.columns == NULL:
            return
        for i in range(self.count):
            column = &self.columns[i]
            free(column.children)
            free(column.values.data)
            free(column.offsets.data)
            free(column.validity.data)
        free(self.columns)

    def take(self):
        """Of each column its length and its bits of validity, offsets and values; then they are empty."""
        cdef Column* column
        made = []
        for i in range(self.count):
            column = &self.columns[i]
            validity = bytes_of(&column.validity) if column.has_nulls else None
            made.append((column.length, validity, bytes_of(&column.offsets), bytes_of(&column.values)))
        self.begin()
        return made


cdef bytes bytes_of(Vector* vector):
    return PyBytes_FromStringAndSize(<char*>vector.data, vector.size) if vector.size else b""


cdef class Program:
    """What to do with a value, as actions of which the first is the root's: op, flags, a, b, column, children, texts."""

    cdef readonly Columns columns
    cdef Action* actions
    cdef int count
    cdef RowOf row
    cdef list texts

    def __cinit__(self, Columns columns, str format, actions):
        cdef int i
        self.columns, self.texts, self.count = columns, [], len(actions)
        self.row = row_of(format)
        self.actions = <Action*>calloc(self.count, sizeof(Action))
        if self.actions == NULL:
            raise MemoryError
        for i in range(self.count):
            self.put(i, actions[i])

    cdef int put(self, int i, tuple given) except -1:
        cdef Action* action = &self.actions[i]
        cdef int column = given[4]
        children, texts = given[5], given[6]
        action.op, action.flags, action.a, action.b = given[0], given[1], given[2], given[3]
        if column >= self.columns.count:
            raise ValueError(f"action {i} is for column {column}")
        action.column = &self.columns.columns[column] if column >= 0 else NULL
        action.count, action.texts = len(children), len(texts)
        action.children = <Action**>calloc(len(children) + 1, sizeof(Action*))
        action.text = <const uint8_t**>calloc(len(texts) + 1, sizeof(uint8_t*))
        action.text_size = <int64_t*>calloc(len(texts) + 1, sizeof(int64_t))
        if action.children == NULL or action.text == NULL or action.text_size == NULL:
            raise MemoryError
        for j, child in enumerate(children):
            if not 0 <= child < self.count:
                raise ValueError(f"action {i} has a child {child}")
            action.children[<int>j] = &self.actions[<int>child]
        for j, text in enumerate(texts):
            self.texts.append(text)
            action.text[<int>j] = <const uint8_t*>PyBytes_AS_STRING(text)
            action.text_size[<int>j] = PyBytes_GET_SIZE(text)
        return 0

    def __dealloc__(self):
        if self.actions == NULL:
            return
        for i in range(self.count):
            free(self.actions[i].children)
            free(self.actions[i].text)
            free(self.actions[i].text_size)
        free(self.actions)


cdef RowOf row_of(str format) except NULL:
    if format == "AVRO":
        return avro_row
    if format == "PROTOBUF":
        return proto_row
    if format == "JSON":
        return json_row
    raise ValueError(f"{format!r} is no format")


cdef class Rows:
    """Values as an Arrow array has them: bits of validity or None, int32 offsets, and bytes."""

    cdef Py_buffer validity, offsets, data
    cdef int taken
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t start

    def __cinit__(self, Py_ssize_t count, Py_ssize_t start, validity, offsets, data):
        self.count, self.start = count, start
        PyObject_GetBuffer(b"" if validity is None else validity, &self.validity, PyBUF_SIMPLE)
        self.taken = 1
        PyObject_GetBuffer(offsets, &self.offsets, PyBUF_SIMPLE)
        self.taken = 2
        PyObject_GetBuffer(b"" if data is None else data, &self.data, PyBUF_SIMPLE)
        self.taken = 3
        if count < 0 or start < 0 or self.offsets.len < 4 * (start + count + 1):
            raise ValueError("the array's offsets are cut short")
        if validity is not None and self.validity.len * 8 < start + count:
            raise ValueError("the array's bits of validity are cut short")

    def __dealloc__(self):
        if self.taken > 0:
            PyBuffer_Release(&self.validity)
        if self.taken > 1:
            PyBuffer_Release(&self.offsets)
        if self.taken > 2:
            PyBuffer_Release(&self.data)

    cdef int at(self, Py_ssize_t row, const uint8_t** p, const uint8_t** end) except -1:
        """0 where it is null."""
        cdef int32_t first, last
        cdef const uint8_t* data = <const uint8_t*>self.data.buf
        row += self.start
        if self.validity.len and not (<const uint8_t*>self.validity.buf)[row >> 3] >> (row & 7) & 1:
            return 0
        memcpy(&first, <const char*>self.offsets.buf + 4 * row, 4)
        memcpy(&last, <const char*>self.offsets.buf + 4 * row + 4, 4)
        if not 0 <= first <= last <= self.data.len:
            raise ValueError(f"the array's offsets leave its bytes at row {row}")
        p[0], end[0] = data + first, data + last
        return 1


def decode(Columns columns, list programs, Rows rows, bytes which=None, bytes skip=None):
    """Each row by the program that `which` names, without its first `skip` bytes; a null where it names none.

    What failed, as (row, fault, column or -1, byte, detail). Both have an int32 for each row.
    """
    cdef Py_ssize_t row, used = 0
    cdef int32_t program = 0, skipped = 0
    cdef const uint8_t* p = NULL
    cdef const uint8_t* end = NULL
    cdef Reader reader
    cdef int64_t budget, length
    cdef Fault fault
    cdef Column* root = columns.columns
    cdef Program chosen = None
    cdef list faults = []
    for given in (which, skip):
        if given is not None and len(given) < 4 * rows.count:
            raise ValueError("fewer numbers than rows")
    for one in programs:
        if (<Program?>one).columns is not columns:
            raise ValueError("a program for other columns")
    columns.begin()  # an error may have left some of the last batch in them
    for row in range(rows.count):
        if which is not None:
            memcpy(&program, PyBytes_AS_STRING(which) + 4 * row, 4)
        if skip is not None:
            memcpy(&skipped, PyBytes_AS_STRING(skip) + 4 * row, 4)
        if program < 0 or not rows.at(row, &p, &end):
            if append_null(root) != FINE:
                raise MemoryError
            continue
        if program >= len(programs) or not 0 <= skipped <= end - p:
            raise ValueError(f"row {row} has no program {program}, or not {skipped} bytes")
        if chosen is None or program != used:
            chosen, used = programs[program], program
        budget = end - p + EMPTY_ITEMS
        length = root.length
        reader.p, reader.end, reader.budget, reader.depth = p + skipped, end, &budget, DEPTH_MAX
        reader.column, reader.detail = -1, 0
        fault = chosen.row(chosen.actions, &reader)
        if fault == FINE:
            continue
        truncate_column(root, length)
        if fault == NO_MEMORY or append_null(root) != FINE:
            raise MemoryError
        faults.append((row, <int>fault, reader.column, reader.p - p, reader.detail))
    return faults


cdef const uint8_t* indexes_end(const uint8_t* p, const uint8_t* end) noexcept:
    """Behind the place of a Protobuf message in its file: how many numbers, and the numbers. NULL: it is none."""
    cdef int64_t left = 1
    cdef int first = 1, shift
    cdef uint8_t byte
    cdef uint32_t value
    while left > 0:
        value, shift = 0, 0
        while True:
            if p >= end or shift > 28:
                return NULL
            byte = p[0]
            value |= <uint32_t>(byte & 0x7F) << shift
            shift += 7
            p += 1
            if byte < 0x80:
                break
        if value & 1:
            return NULL
        left = left - 1 + (value >> 1 if first else 0)
        first = 0
    return p


def frames(Rows rows, bint indexed):
    """The registry's frames: (id, place of the message) of each kind that there is, and by row which, and how long.

    `which` is -1 where the value is null, -2 where it has no frame; those rows are listed last.
    """
    cdef Py_ssize_t row
    cdef const uint8_t* p = NULL
    cdef const uint8_t* end = NULL
    cdef const uint8_t* body
    cdef const uint8_t* last = NULL
    cdef Py_ssize_t last_size = -1
    cdef int32_t number = NO_VALUE
    cdef dict known = {}
    cdef list unframed = []
    which, skip = bytearray(4 * rows.count), bytearray(4 * rows.count)
    cdef int32_t* which_at = <int32_t*><char*>which
    cdef int32_t* skip_at = <int32_t*><char*>skip
    for row in range(rows.count):
        skip_at[row] = 0
        if not rows.at(row, &p, &end):
            which_at[row] = NO_VALUE
            continue
        body = p + FRAME
        if end - p < FRAME or p[0] != 0:
            body = NULL
        elif indexed:
            body = indexes_end(body, end)
        if body == NULL:
            which_at[row] = NO_FRAME
            unframed.append(row)
            continue
        if body - p != last_size or memcmp(p, last, last_size) != 0:
            key = PyBytes_FromStringAndSize(<const char*>p, body - p)
            number = known.setdefault(key, len(known))
            last, last_size = p, body - p
        which_at[row] = number
        skip_at[row] = <int32_t>(body - p)
    kinds = [(int.from_bytes(key[1:FRAME], "big", signed=True), key[FRAME:]) for key in known]
    return kinds, bytes(which), bytes(skip), unframed
