"""Values in Avro's binary form, to and from what stands in JSON: for single records, where no columns are made. Pure.

    int, long       a zigzag number, seven bits a byte     string, bytes   its length, then it
    float, double   four or eight bytes, the lowest first  union           the number of its branch, then the value
    array, map      blocks of a count and so many, 0 ends  record          its fields, one after the other

A value is as Kafka Connect's JsonConverter writes it: bytes and decimals in base64, a map whose keys are not strings as
an array of pairs. Only unions of null and one other are known.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any

from tidelog.errors import InvalidSchema, UndecodableValue

Write = Callable[[Any, bytearray], None]
Read = Callable[[bytes, int], tuple[Any, int]]
ENTRY = "MapEntry"
DEEPEST = 64  # of records inside of records, in a schema that came from elsewhere
LONGEST = 10  # bytes of a number
ITEMS_MAX = 10_000_000  # of a block: null takes no byte, so the bytes do not limit it


def encoder(avro: Any) -> Callable[[Any], bytes]:
    write = _Writers().of(avro, "")

    def encode(value: Any) -> bytes:
        out = bytearray()
        write(value, out)
        return bytes(out)

    return encode


def decoder(avro: Any) -> Callable[[bytes], Any]:
    """`UndecodableValue` where the bytes are not of the schema."""
    read = _Readers().of(avro, "", 0)

    def decode(data: bytes) -> Any:
        try:
            value, end = read(data, 0)
        except (IndexError, ValueError, struct.error, RecursionError) as error:
            raise UndecodableValue(f"{len(data)} bytes are not a value of the schema: {error!r}") from error
        if end != len(data):
            raise UndecodableValue(f"the value ends at byte {end}, and {len(data)} are there")
        return value

    return decode


# Numbers --------------------------------------------------------------------------------------------------------------


def put_number(value: int, out: bytearray) -> None:
    left = (value << 1) ^ (value >> 63)
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)


def take_number(data: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    for step in range(LONGEST):
        byte = data[at + step]
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at + step + 1
        shift += 7
    raise ValueError("a number has no end")


# Writing --------------------------------------------------------------------------------------------------------------


def _put_int(value: Any, out: bytearray) -> None:
    put_number(int(value), out)


def _put_string(value: Any, out: bytearray) -> None:
    text = value.encode()
    put_number(len(text), out)
    out += text


def _put_bytes(value: Any, out: bytearray) -> None:
    raw = b64decode(value)
    put_number(len(raw), out)
    out += raw


def _put_float(value: Any, out: bytearray) -> None:
    out += struct.pack("<f", float(value))


def _put_double(value: Any, out: bytearray) -> None:
    out += struct.pack("<d", float(value))


def _put_boolean(value: Any, out: bytearray) -> None:
    out.append(1 if value else 0)


def _put_null(value: Any, out: bytearray) -> None:
    pass


class _Writers:
    PLAIN: Mapping[str, Write] = {
        **dict.fromkeys(("int", "long"), _put_int),
        "string": _put_string,
        "bytes": _put_bytes,
        "float": _put_float,
        "double": _put_double,
        "boolean": _put_boolean,
        "null": _put_null,
    }

    def __init__(self) -> None:
        self._named: dict[str, Write] = {}

    def of(self, avro: Any, space: str) -> Write:
        if isinstance(avro, list):
            return self._union(avro, space)
        if isinstance(avro, str):
            found = self.PLAIN.get(avro) or self._named.get(avro) or self._named.get(f"{space}.{avro}")
            if found is None:
                raise InvalidSchema(f"the schema has no {avro[:80]!r}")
            return found
        if avro["type"] == "record":
            return self._record(avro, space)
        if avro["type"] == "array":
            return self._array(self.of(avro["items"], space), _is_entry(avro["items"]))
        if avro["type"] == "map":
            return self._map(self.of(avro["values"], space))
        return self.of(avro["type"], space)

    def _union(self, branches: list[Any], space: str) -> Write:
        at, other = _other(branches)
        write, there, gone = self.of(other, space), at * 2, (1 - at) * 2

        def put(value: Any, out: bytearray) -> None:
            if value is None:
                out.append(gone)
            else:
                out.append(there)
                write(value, out)

        return put

    def _record(self, avro: Mapping[str, Any], space: str) -> Write:
        full, inside = _full(avro, space)
        fields: list[tuple[str, Write]] = []

        def put(value: Any, out: bytearray) -> None:
            for name, write in fields:
                write(value[name], out)

        self._named[full] = put
        fields += [(one["name"], self.of(one["type"], inside)) for one in avro["fields"]]
        return put

    @staticmethod
    def _array(write: Write, pairs: bool) -> Write:
        def put(value: Any, out: bytearray) -> None:
            if value:
                put_number(len(value), out)
                for one in value:
                    write({"key": one[0], "value": one[1]} if pairs else one, out)
            out.append(0)

        return put

    @staticmethod
    def _map(write: Write) -> Write:
        def put(value: Any, out: bytearray) -> None:
            if value:
                put_number(len(value), out)
                for key, one in value.items():
                    _put_string(key, out)
                    write(one, out)
            out.append(0)

        return put


# Reading --------------------------------------------------------------------------------------------------------------


def _take_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, start = take_number(data, at)
    if size < 0 or start + size > len(data):
        raise ValueError(f"a value of {size} bytes begins at {start}, and there are {len(data)}")
    return data[start : start + size], start + size


def _string(data: bytes, at: int) -> tuple[Any, int]:
    text, end = _take_bytes(data, at)
    return text.decode(), end


def _bytes(data: bytes, at: int) -> tuple[Any, int]:
    raw, end = _take_bytes(data, at)
    return b64encode(raw).decode(), end


def _float(data: bytes, at: int) -> tuple[Any, int]:
    return struct.unpack_from("<f", data, at)[0], at + 4


def _double(data: bytes, at: int) -> tuple[Any, int]:
    return struct.unpack_from("<d", data, at)[0], at + 8


def _boolean(data: bytes, at: int) -> tuple[Any, int]:
    return bool(data[at]), at + 1


def _null(data: bytes, at: int) -> tuple[Any, int]:
    return None, at


class _Readers:
    PLAIN: Mapping[str, Read] = {
        **dict.fromkeys(("int", "long"), take_number),
        "string": _string,
        "bytes": _bytes,
        "float": _float,
        "double": _double,
        "boolean": _boolean,
        "null": _null,
    }

    def __init__(self) -> None:
        self._named: dict[str, Read] = {}

    def of(self, avro: Any, space: str, depth: int) -> Read:
        if depth > DEEPEST:
            raise InvalidSchema(f"the schema is more than {DEEPEST} deep")
        if isinstance(avro, list):
            return self._union(avro, space, depth)
        if isinstance(avro, str):
            found = self.PLAIN.get(avro) or self._named.get(avro) or self._named.get(f"{space}.{avro}")
            if found is None:
                raise InvalidSchema(f"the schema has no {avro[:80]!r}")
            return found
        if avro["type"] == "record":
            return self._record(avro, space, depth)
        if avro["type"] == "array":
            return self._array(self.of(avro["items"], space, depth + 1), _is_entry(avro["items"]))
        if avro["type"] == "map":
            return self._map(self.of(avro["values"], space, depth + 1))
        return self.of(avro["type"], space, depth + 1)

    def _union(self, branches: list[Any], space: str, depth: int) -> Read:
        at, other = _other(branches)
        read = self.of(other, space, depth + 1)

        def take(data: bytes, place: int) -> tuple[Any, int]:
            branch, start = take_number(data, place)
            if branch not in (0, 1):
                raise ValueError(f"a union has no branch {branch}")
            return read(data, start) if branch == at else (None, start)

        return take

    def _record(self, avro: Mapping[str, Any], space: str, depth: int) -> Read:
        full, inside = _full(avro, space)
        fields: list[tuple[str, Read]] = []

        def take(data: bytes, at: int) -> tuple[Any, int]:
            made = {}
            for name, read in fields:
                made[name], at = read(data, at)
            return made, at

        self._named[full] = take
        fields += [(one["name"], self.of(one["type"], inside, depth + 1)) for one in avro["fields"]]
        return take

    @staticmethod
    def _array(read: Read, pairs: bool) -> Read:
        def take(data: bytes, at: int) -> tuple[Any, int]:
            made: list[Any] = []
            while (found := _block(data, at))[0]:
                count, at = found
                for _ in range(count):
                    one, at = read(data, at)
                    made.append([one["key"], one["value"]] if pairs else one)
            return made, found[1]

        return take

    @staticmethod
    def _map(read: Read) -> Read:
        def take(data: bytes, at: int) -> tuple[Any, int]:
            made: dict[str, Any] = {}
            while (found := _block(data, at))[0]:
                count, at = found
                for _ in range(count):
                    key, at = _string(data, at)
                    made[key], at = read(data, at)
            return made, found[1]

        return take


def _block(data: bytes, at: int) -> tuple[int, int]:
    count, at = take_number(data, at)
    if count < 0:  # its size in bytes follows
        count, (_, at) = -count, take_number(data, at)
    if count > ITEMS_MAX:
        raise ValueError(f"a block says that it has {count} items")
    return count, at


# Both -----------------------------------------------------------------------------------------------------------------


def _full(avro: Mapping[str, Any], space: str) -> tuple[str, str]:
    """The full name of a record, and the namespace inside of it."""
    name, inside = str(avro["name"]), str(avro.get("namespace", space))
    full = name if "." in name or not inside else f"{inside}.{name}"
    return full, full.rpartition(".")[0]


def _other(branches: list[Any]) -> tuple[int, Any]:
    others = [(at, one) for at, one in enumerate(branches) if one != "null"]
    if len(branches) != 2 or len(others) != 1:
        raise InvalidSchema(f"a union of {len(branches)}, of which {len(others)} are not null, has no value in JSON")
    return others[0]


def _is_entry(items: Any) -> bool:
    name = items.get("name") if isinstance(items, dict) else items
    return isinstance(name, str) and name.rpartition(".")[2] == ENTRY
