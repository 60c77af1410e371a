"""Events, commands, reasons and states as JSON: dataclasses, msgspec Structs and pydantic models alike.

Rules:
- A value is a JSON object with the fields' names. Fields that a class does not have are passed over, and one that is
  not there gets its default (weak schema).
- `msgspec` does the work; a pydantic model is asked by its own methods.
- A class with personal fields goes by way of a dict, so that they can be encrypted (`personal.py`); others do not.
- Nothing here knows a topic or a type's versions.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any
from zlib import crc32

from tidelog.errors import HistoryFault, UsageError
from tidelog.sourcing.members import unknown_member
from tidelog.sourcing.personal import Cipher, Erased, conceal, personal_fields, reveal


def _msgspec() -> Any:
    try:
        import msgspec
    except ImportError as error:
        raise UsageError("event sourcing needs msgspec; pip install 'tidelog[sourcing]'") from error
    return msgspec


class JsonCodec:
    """Of one class, or of any type that msgspec knows (`dict[str, int]`): a state may be one."""

    def __init__(self, cls: Any) -> None:
        self._msgspec = _msgspec()
        self.cls = cls
        self.is_model = hasattr(cls, "model_validate_json")  # pydantic's
        self.is_struct = isinstance(cls, type) and issubclass(cls, self._msgspec.Struct)
        is_plain = dataclasses.is_dataclass(cls)
        self.personal = personal_fields(cls) if self.is_model or self.is_struct or is_plain else ()
        self._encode = self._msgspec.json.Encoder(enc_hook=_as_text).encode
        self._decode = None if self.is_model else self._decoder()
        self.plain = None if self.personal else self._decode  # from bytes, of a class without personal fields

    def _decoder(self) -> Any:
        try:
            return self._msgspec.json.Decoder(self.cls).decode
        except TypeError as error:
            raise UsageError(f"{self.cls!r} cannot be read from JSON: {error}") from error

    # Bytes

    def encode(self, value: Any, entity: str = "", place: str = "", cipher: Cipher | None = None) -> bytes:
        if self.personal and cipher is not None:
            return bytes(self._encode(conceal(self._with_erased(value), self.personal, entity, place, cipher)))
        return value.model_dump_json().encode() if self.is_model else bytes(self._encode(value))

    def decode(self, data: bytes, entity: str = "", place: str = "", cipher: Cipher | None = None) -> Any:
        """What is not of this class is a `HistoryFault`."""
        try:
            if self.personal:
                return self.from_fields(self._msgspec.json.decode(data), entity, place, cipher)
            return self.cls.model_validate_json(data) if self._decode is None else self._decode(data)
        except (ValueError, TypeError, RecursionError) as error:  # msgspec's and pydantic's are kinds of ValueError
            raise HistoryFault(f"{_shown(data)} is not of type {self._name}: {error}") from error

    def check_members(self, data: bytes) -> None:
        """Of JSON of which nothing is to be passed over."""
        try:
            found = unknown_member(self.cls, self._members, self._msgspec.json.decode(data))
        except (ValueError, RecursionError) as error:
            raise HistoryFault(f"{_shown(data)} is not of type {self._name}: {error}") from error
        if found is not None:
            known = f"it has {', '.join(found.known)}" if found.known else "it has none"
            raise UsageError(f"{self._name} does not have a member {found.path!r:.200}; {known}")

    @cached_property
    def _members(self) -> dict[str, Any]:
        """A type that JSON Schema cannot tell has any."""
        try:
            return {} if self.is_model else self.schema()
        except TypeError:
            return {}

    # Fields

    def fields(self, value: Any) -> Any:
        """As JSON has them."""
        return value.model_dump(mode="json") if self.is_model else self._msgspec.to_builtins(value, enc_hook=_as_text)

    def from_fields(self, fields: Any, entity: str = "", place: str = "", cipher: Cipher | None = None) -> Any:
        try:
            if not self.personal or not isinstance(fields, dict):
                return self._convert(fields)
            clear = reveal(fields, self.personal, entity, place, cipher)
            erased = {name: value for name, value in clear.items() if isinstance(value, Erased)}
            made = self._convert({**clear, **dict.fromkeys(erased, "")})
            return self._replace(made, erased) if erased else made
        except (ValueError, TypeError, RecursionError) as error:
            raise HistoryFault(f"{_shown(repr(fields).encode())} is not of type {self._name}: {error}") from error

    def schema(self) -> dict[str, Any]:
        """JSON Schema."""
        found = self.cls.model_json_schema() if self.is_model else self._msgspec.json.schema(self.cls)
        return dict(found)

    def fingerprint(self) -> str:
        return f"{crc32(self._encode(self.schema())):08x}"

    @property
    def _name(self) -> str:
        return str(getattr(self.cls, "__name__", self.cls))

    def _convert(self, fields: Any) -> Any:
        return self.cls.model_validate(fields) if self.is_model else self._msgspec.convert(fields, self.cls)

    def _with_erased(self, value: Any) -> dict[str, Any]:
        """Fields as JSON has them, but for those that are erased, which stay what they are."""
        marked = {one.name: getattr(value, one.name) for one in self.personal}
        return {**self.fields(value), **{name: one for name, one in marked.items() if isinstance(one, Erased)}}

    def _replace(self, made: Any, fields: dict[str, Any]) -> Any:
        if self.is_model:
            return made.model_copy(update=fields)
        return self._msgspec.structs.replace(made, **fields) if self.is_struct else dataclasses.replace(made, **fields)


def _as_text(value: Any) -> str:
    if isinstance(value, Erased):
        return str.__str__(value)
    raise UsageError(f"{value!r} of type {type(value).__name__} cannot be stored as JSON; keep it as text or numbers")


def _shown(data: bytes) -> str:
    return data[:200].decode(errors="replace") + ("..." if len(data) > 200 else "")
