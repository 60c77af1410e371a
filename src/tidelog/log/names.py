"""The name of a partition's folder: the topic's id in hexadecimal digits, a dash, the number of the partition."""

from __future__ import annotations

ID_HEX_DIGITS = 32


def partition_name(topic_id: bytes, index: int) -> str:
    return f"{topic_id.hex()}-{index}"


def parse_name(name: str) -> tuple[bytes, int] | None:
    """The topic's id and the partition; None for a name that is not one of ours."""
    digits, dash, index = name.partition("-")
    if not dash or len(digits) != ID_HEX_DIGITS or not (index.isascii() and index.isdigit()):
        return None
    try:
        topic_id = bytes.fromhex(digits)
    except ValueError:
        return None
    return (topic_id, int(index)) if partition_name(topic_id, int(index)) == name else None
