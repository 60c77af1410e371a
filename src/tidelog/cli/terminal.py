"""What commands print with: colours on a terminal only, aligned tables, JSON for scripts, questions to a person.

Colours are off when standard output is not a terminal, when NO_COLOR is set to anything, or when TERM is dumb.
Whatever came from a broker passes `printable` before it is shown, so that no record, key or group name can drive the
terminal.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
COLUMN_GAP = "  "
SIZE_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")
PROGRESS_EVERY_S = 0.2
PROGRESS_LINE_EVERY_S = 10.0  # where nobody watches
BAR = 30  # characters
STARTING_SPARK = "starting Spark, which takes some seconds"
SPAN_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def colours(stream: TextIO | None = None) -> bool:
    stream = sys.stdout if stream is None else stream
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str, stream: TextIO | None = None) -> str:
    return f"\x1b[{CODES[colour]}m{text}\x1b[0m" if text and colours(stream) else text


def printable(text: str) -> str:
    """Control characters and lone surrogates as escapes; everything else as it is."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def count_text(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def show_table(
    header: Sequence[str], rows: Iterable[Sequence[Any]], *, colour_of: dict[int, str] | None = None
) -> None:
    """Numbers to the right, text to the left; None is shown as `-`. `colour_of` names a colour by column."""
    listed = [list(row) for row in rows]
    texts = [["-" if cell is None else printable(str(cell)) for cell in row] for row in listed]
    widths = [max(len(line[i]) for line in [list(header), *texts]) for i in range(len(header))]
    numeric = [
        all(row[i] is None or isinstance(row[i], int) for row in listed) and bool(listed) for i in range(len(header))
    ]

    def line(cells: Sequence[str], painted: dict[int, str]) -> str:
        aligned = [c.rjust(w) if n else c.ljust(w) for c, w, n in zip(cells, widths, numeric, strict=True)]
        return COLUMN_GAP.join(
            paint(cell, painted[i]) if i in painted else cell for i, cell in enumerate(aligned)
        ).rstrip()

    print(line([name.upper() for name in header], dict.fromkeys(range(len(header)), "dim")))
    for cells in texts:
        print(line(cells, colour_of or {}))


def show_json(value: Any) -> None:
    import json

    print(for_the_screen(json.dumps(value, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False)))


def for_the_screen(json_text: str) -> str:
    """JSON as it is; on a terminal with JSON's own escapes for what could drive it. JSON itself escapes but some."""
    if json_text.isprintable() or not sys.stdout.isatty():
        return json_text
    return "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in json_text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))


def warn(message: str) -> None:
    print(paint(f"tidelog: {printable(message)}", "yellow", sys.stderr), file=sys.stderr)


def confirm(question: str) -> bool:
    """False when nobody can be asked: a script says --yes."""
    if not sys.stdin.isatty():
        return False
    print(f"{question} [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def size_text(size: int) -> str:
    amount = float(size)
    for unit in SIZE_UNITS:
        if abs(amount) < 1000 or unit == SIZE_UNITS[-1]:
            break
        amount /= 1000
    return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"


def span_text(ms: int) -> str:
    """A length of time in its two largest units: 6d 4h, 12m 5s."""
    left, parts = max(0, ms) // 1000, []
    for unit, seconds in SPAN_UNITS:
        if left >= seconds or unit == "s":
            parts.append((left // seconds, unit))
            left %= seconds
        elif parts:
            break
    shown = [f"{amount}{unit}" for number, (amount, unit) in enumerate(parts[:2]) if amount or not number]
    return " ".join(shown)


def show_each(described: Sequence[Any], show: Callable[[Any], None], *, as_json: bool) -> int:
    """Several things in full, with an empty line between them."""
    if as_json:
        show_json(described)
        return 0
    for number, one in enumerate(described):
        if number:
            print()
        show(one)
    return 0


def bytes_line(done: int, total: int) -> str:
    return f"{size_text(done)} of {size_text(total)}, {100 * done // total if total else 100} %"


def rows_line(done: int, total: int) -> str:
    """`total` is an estimate: what is done may be more."""
    share = min(1.0, done / total) if total else 1.0
    return f"[{'#' * int(BAR * share):<{BAR}}] {done} of about {total} rows"


class ProgressLine:
    """How far a long piece of work is, on standard error: one line that changes, or now and then one in a log.

    `line` says it. One that `stays` is told at the end, too, and left there.
    """

    def __init__(self, what: str, line: Callable[[int, int], str] = bytes_line, *, stays: bool = False) -> None:
        self._what, self._line, self._stays = what, line, stays
        self._watched = sys.stderr.isatty()
        self._next = time.monotonic() + (0 if self._watched else PROGRESS_LINE_EVERY_S)
        self._shown = False

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown and self._watched:
            print("\n" if self._stays else "\r\x1b[K", end="", file=sys.stderr, flush=True)

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now < self._next and not (self._stays and done >= total):
            return
        self._next = now + (PROGRESS_EVERY_S if self._watched else PROGRESS_LINE_EVERY_S)
        self._shown = True
        line = f"{self._what}: {self._line(done, total)}"
        print(
            f"\r\x1b[K{line}" if self._watched else line, end="" if self._watched else "\n", file=sys.stderr, flush=True
        )
