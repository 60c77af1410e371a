"""Which generations an applier follows, when one may be shown, and what goes. Pure decisions over the catalog's record.

followed    the live one; the one that is shown, until the live one is; the one that is being built
shown       when it is live and has reached `live` and the mark that was the newest when its applier began
left        an old generation is applied no more once the live one is shown; it stays until the catalog forgets it
copy        a generation that was left behind is built again beside itself, under its number plus COPY
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tidelog.control.catalog import Generation, View
from tidelog.control.marks import Ends
from tidelog.views.reading import reached
from tidelog.views.stores.store import COPY, generation_of


def to_follow(view: View, shown: int | None) -> list[Generation]:
    """`shown` is the store's number. The one that readers see comes first."""
    numbers = [] if shown is None else [generation_of(shown)]
    numbers += [one for one in (view.live, view.building.number if view.building else None) if one is not None]
    there = {one.number for one in view.generations}
    return [view.generation(number) for number in dict.fromkeys(numbers) if number in there]


def copy_of(generation: int, stored: Collection[int]) -> int:
    """The store's number to go on with: the newest copy, or the first one."""
    return max((number for number in stored if generation_of(number) == generation), default=generation)


def next_copy(generation: int, stored: Collection[int]) -> int:
    return copy_of(generation, stored) + COPY


def to_forget(view: View, stored: Collection[int], shown: int | None) -> list[int]:
    """The store's numbers that nobody needs: of generations that the catalog forgot, and copies that were replaced.

    A number that is newer than this record of the view is kept: who shares the store has read a newer one.
    """
    there = {one.number for one in view.generations}
    newest = max([view.newest, *there])
    known = [number for number in stored if number != shown and generation_of(number) <= newest]
    return [
        number
        for number in known
        if generation_of(number) not in there or number != copy_of(generation_of(number), stored)
    ]


def is_due(generation: Generation, ends: Ends, aim: Ends) -> bool:
    """Whether a generation that is not shown yet is to be, at these ends."""
    return generation.live is not None and reached(generation.live, ends) and reached(aim, ends)


def is_due_of(generation: Generation, share: Ends, aim: Ends) -> bool:
    """Whether some of its partitions are as far as all of them must be."""
    return is_due(
        replace(generation, live=None if generation.live is None else _of(generation.live, share)),
        share,
        _of(aim, share),
    )


def _of(ends: Ends, share: Ends) -> Ends:
    return {at: end for at, end in ends.items() if at in share}
