"""The codec: compiled where it could be built, in Python where not, chosen once, when this module is first imported.

All functions take any contiguous buffer (a writable one where they write) and a position in it. `check` is for what a
producer sends: a whole batch, checksum and header good, offsets dense; bytes after it are not looked at (compare
`header.size`). `scan` and `decode` also take what compaction leaves: batches with gaps, or with no records at all.
Errors are `MalformedBatch` and its kinds. The same function in `_pure` says in Python what it does.

    crc32c(buffer, value=0)                     the checksum; `value` goes on from an earlier part
    peek(buffer, position=0)                    the header as it stands, nothing checked but magic and length
    check(buffer, position=0)                   the header of a good batch
    patch(buffer, base_offset, leader_epoch)    in place, outside the checksum
    stamp_append_time(buffer, timestamp_ms)     in place: LogAppendTime, checksum anew
    restamp(buffer, producer_id, producer_epoch, base_sequence, transactional)      in place, checksum anew
    seal(buffer)                                in place: length and checksum of a batch just made
    scan(buffer, position=0, *, crc=True)       whole good batches in a row, and why the row ends
    murmur2(key)                                the hash of `partitioner`
    decode, rows, encode_rows, encode_columns, group_rows   the inside of `columns`, which is how they are called
    KeyMap, note_keys, filter_records, find_keyless         the inside of `compacting`, likewise
"""

from __future__ import annotations

try:
    from tidelog.record._codec import (
        KeyMap,
        check,
        crc32c,
        decode,
        encode_columns,
        encode_rows,
        engine,
        filter_records,
        find_keyless,
        group_rows,
        murmur2,
        note_keys,
        patch,
        peek,
        restamp,
        rows,
        scan,
        seal,
        stamp_append_time,
    )

    COMPILED = True
except ImportError as error:
    import warnings

    from tidelog.record._pure import (  # type: ignore[assignment]
        KeyMap,
        check,
        crc32c,
        decode,
        encode_columns,
        encode_rows,
        engine,
        filter_records,
        find_keyless,
        group_rows,
        murmur2,
        note_keys,
        patch,
        peek,
        restamp,
        rows,
        scan,
        seal,
        stamp_append_time,
    )

    COMPILED = False
    warnings.warn(
        f"the compiled record codec is missing ({error}), so batches go through Python, many times slower; "
        "install a C compiler and install tidelog again",
        RuntimeWarning,
        stacklevel=2,
    )

__all__ = [
    "COMPILED",
    "KeyMap",
    "check",
    "crc32c",
    "decode",
    "encode_columns",
    "encode_rows",
    "engine",
    "filter_records",
    "find_keyless",
    "group_rows",
    "murmur2",
    "note_keys",
    "patch",
    "peek",
    "restamp",
    "rows",
    "scan",
    "seal",
    "stamp_append_time",
]
