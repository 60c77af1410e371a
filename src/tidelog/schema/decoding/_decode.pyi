from typing import Any, TypeAlias

Layout: TypeAlias = list[tuple[int, int, tuple[int, ...]]]
Action: TypeAlias = tuple[int, int, int, int, int, tuple[int, ...], tuple[bytes, ...]]
Taken: TypeAlias = list[tuple[int, bytes | None, bytes, bytes]]

class Columns:
    def __init__(self, layout: Layout) -> None: ...
    def take(self) -> Taken: ...

class Program:
    columns: Columns
    def __init__(self, columns: Columns, format: str, actions: list[Action]) -> None: ...

class Rows:
    count: int
    def __init__(self, count: int, start: int, validity: Any, offsets: Any, data: Any) -> None: ...

def decode(
    columns: Columns, programs: list[Program], rows: Rows, which: bytes | None = None, skip: bytes | None = None
) -> list[tuple[int, int, int, int, int]]: ...
def frames(rows: Rows, indexed: bool) -> tuple[list[tuple[int, bytes]], bytes, bytes, list[int]]: ...
