"""A value as PostgreSQL writes it, to its JSON text as Debezium's connector has it by default; and back, for keys.

Functions `json_*` take the bytes of one value, which is not null. What a column of a type needs of them is chosen once
(`columns.py`), so nothing here looks at a type. Functions `plain_*` are their inverse: from a JSON text to the text
that PostgreSQL takes, which is how the last key of a chunk comes back.

Numerics are exact: their scale is the one that PostgreSQL keeps. NaN and the infinities of a numeric have no place in a
Connect Decimal, and a text in their stead could be read as other bytes, so they are null.
"""

from __future__ import annotations

import json
import struct
from base64 import b64decode
from binascii import b2a_base64, unhexlify
from collections.abc import Callable
from json.encoder import encode_basestring as quote

from tidelog.capture.sources.postgres import times

Reader = Callable[[bytes], str]

NOT_A_NUMBER = (b"NaN", b"Infinity", b"-Infinity")
_POINT = struct.Struct("<BIdd")

json_verbatim: Reader = bytes.decode  # integers: their text is JSON


def json_text(data: bytes) -> str:
    return quote(data.decode())


def json_boolean(data: bytes) -> str:
    return "true" if data == b"t" else "false"


def json_float(data: bytes) -> str:
    if data in NOT_A_NUMBER:
        return f'"{data.decode()}"'
    text = data.decode()
    return text + ".0" if text.lstrip("-").isdigit() else text


def json_bytes(data: bytes) -> str:
    return base64_text(unhexlify(data[2:]))  # after \x


def json_decimal(scale: int) -> Reader:
    def read(data: bytes) -> str:
        if data in NOT_A_NUMBER:
            return "null"
        whole, _, fraction = data.decode().partition(".")
        if scale >= 0:
            return base64_text(signed_bytes(int(whole + fraction.ljust(scale, "0"))))
        return base64_text(signed_bytes(int(whole) // 10**-scale))

    return read


def json_variable_decimal(data: bytes) -> str:
    if data in NOT_A_NUMBER:
        return "null"
    whole, _, fraction = data.decode().partition(".")
    return f'{{"scale":{len(fraction)},"value":{base64_text(signed_bytes(int(whole + fraction)))}}}'


def json_money(data: bytes) -> str:
    """`$1,234.56`, `-$0.01`, `1.234,56 €`, `¥1,234`: a last separator before two digits is the decimal one."""
    text = data.decode()
    marks = [letter for letter in text if letter.isdigit() or letter in ".,"]
    digits = "".join(letter for letter in marks if letter.isdigit())
    cents = int(digits) if len(marks) > 2 and marks[-3] in ".," else int(digits) * 100
    return base64_text(signed_bytes(-cents if "-" in text or "(" in text else cents))


def json_date(data: bytes) -> str:
    return str(times.days(data.decode()))


def json_timestamp_us(data: bytes) -> str:
    return str(times.microseconds(data.decode()))


def json_timestamp_ms(data: bytes) -> str:
    number = times.microseconds(data.decode())
    return str(number if number in times.TIMESTAMP_INFINITY.values() else number // 1000)


def json_zoned(digits: int) -> Reader:
    return lambda data: f'"{times.zoned(data.decode(), digits)}"'


def json_time_us(data: bytes) -> str:
    return str(times.time_microseconds(data.decode()))


def json_time_ms(data: bytes) -> str:
    return str(times.time_microseconds(data.decode()) // 1000)


def json_zoned_time(data: bytes) -> str:
    return f'"{times.zoned_time(data.decode())}"'


def json_interval(data: bytes) -> str:
    return str(times.interval_microseconds(data.decode()))


def json_bit(data: bytes) -> str:
    return "true" if data == b"1" else "false"


def json_bits(data: bytes) -> str:
    number = int(data, 2) if data else 0
    return base64_text(number.to_bytes((number.bit_length() + 7) // 8, "little"))


def json_point(data: bytes) -> str:
    """`(1.5,-2.5)`, with the same as well-known binary."""
    x, y = data[1:-1].split(b",")
    wkb = base64_text(_POINT.pack(1, 1, float(x), float(y)))
    return f'{{"x":{json_float(x)},"y":{json_float(y)},"wkb":{wkb},"srid":null}}'


def base64_text(data: bytes) -> str:
    return f'"{b2a_base64(data, newline=False).decode()}"'


def signed_bytes(number: int) -> bytes:
    """As Java's BigInteger: two's complement, the high byte first, no byte too many."""
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def plain_text(text: str) -> str:
    value: str = json.loads(text)
    return value


def plain_float(text: str) -> str:
    return text.strip('"')


def plain_boolean(text: str) -> str:
    return text


def plain_bytes(text: str) -> str:
    return "\\x" + b64decode(text).hex()


def plain_decimal(scale: int) -> Callable[[str], str]:
    return lambda text: _decimal_text(int.from_bytes(b64decode(text), "big", signed=True), scale)


def plain_variable_decimal(text: str) -> str:
    told = json.loads(text)
    return _decimal_text(int.from_bytes(b64decode(told["value"]), "big", signed=True), told["scale"])


def plain_date(text: str) -> str:
    return times.date_text(int(text))


def plain_timestamp_us(text: str) -> str:
    return times.timestamp_text(int(text))


def plain_timestamp_ms(text: str) -> str:
    number = int(text)
    return times.timestamp_text(number if number in times.TIMESTAMP_INFINITY.values() else number * 1000)


def plain_zoned(text: str) -> str:
    return times.zoned_text(text.strip('"'))


def plain_time_us(text: str) -> str:
    return times.time_text(int(text))


def plain_time_ms(text: str) -> str:
    return times.time_text(int(text) * 1000)


def _decimal_text(unscaled: int, scale: int) -> str:
    if scale <= 0:
        return str(unscaled * 10**-scale)
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"
