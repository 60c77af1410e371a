"""What a schema is, whatever its format: a text that is kept, a text that is compared, and the format's own model.

text     the canonical form: what is kept and handed out; equal texts are the same schema
whole    the same with everything that it refers to inside; equal for two schemas that differ in references alone
model    what the format's own modules made of it, for its `compatible`
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Reason(NamedTuple):
    """Why data of one schema cannot be read with another. `kind` is the name that the field knows it by."""

    kind: str
    path: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.kind} at {self.path}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Schema:
    format: str
    text: str
    whole: str
    model: Any = field(repr=False, compare=False)
