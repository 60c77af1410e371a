"""What has been seen: every number up to the highest, but for gaps. No IO.

    SeenNumbers(9, ((4, 4), (6, 7)))      1, 2, 3, 5, 8 and 9 have been seen; 4, 6 and 7 were not there

A gap is a change that is not committed yet, or was rolled back, or a number that nobody drew. Which of these, nobody
can tell from the number. So a gap is looked for at each look, and given up when every transaction that was open when it
was first seen has ended, and it is still not there (`changelog.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Range = tuple[int, int]  # both ends are in it


class SeenNumbers(NamedTuple):
    last: int = 0
    gaps: tuple[Range, ...] = ()

    def to_fields(self) -> dict[str, Any]:
        return {"id": self.last, "gaps": [list(gap) for gap in self.gaps]}


def seen_in(content: Mapping[str, Any]) -> SeenNumbers:
    return SeenNumbers(int(content["id"]), tuple((int(low), int(high)) for low, high in content["gaps"]))


def after(seen: SeenNumbers, found: Iterable[int]) -> SeenNumbers:
    """With the numbers that a look found: all of those that were not seen and are there now, in their order."""
    gaps: list[Range] = []
    left = iter(seen.gaps)
    gap = next(left, None)
    last = seen.last
    for number in found:
        while gap is not None and gap[1] < number:
            gaps.append(gap)
            gap = next(left, None)
        if gap is not None and gap[0] <= number:
            if gap[0] < number:
                gaps.append((gap[0], number - 1))
            gap = (number + 1, gap[1]) if number < gap[1] else next(left, None)
        elif number > last:
            if number > last + 1:
                gaps.append((last + 1, number - 1))
            last = number
    if gap is not None:
        gaps += [gap, *left]
    return SeenNumbers(last, tuple(sorted(gaps)))


def without_gaps_up_to(seen: SeenNumbers, last: int) -> SeenNumbers:
    """Those that cannot be filled any more are given up."""
    kept = [(max(low, last + 1), high) for low, high in seen.gaps if high > last]
    return SeenNumbers(seen.last, tuple(kept))


def unseen(seen: SeenNumbers) -> str:
    """As a condition on `id`."""
    ranges = [f"id = {low}" if low == high else f"id BETWEEN {low} AND {high}" for low, high in seen.gaps]
    return "(" + " OR ".join([*ranges, f"id > {seen.last}"]) + ")"


def is_in(seen: SeenNumbers, number: int) -> bool:
    return number <= seen.last and not any(low <= number <= high for low, high in seen.gaps)


def between(before: SeenNumbers, upto: SeenNumbers) -> str:
    """Those that the second has and the first has not, as a condition on `id`."""
    left_out = "".join(f" AND id NOT BETWEEN {low} AND {high}" for low, high in upto.gaps)
    return f"{unseen(before)} AND id <= {upto.last}{left_out}"
