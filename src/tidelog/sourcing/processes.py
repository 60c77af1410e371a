"""The processes of a process manager: those in use decoded, the others as records; and their timers, in a heap.

    hot      decoded, the least recently used first; at most `bound` of them after each transaction
    cold     as values of `state/KEY`: at most `bound` in memory, more than that in a SQLite file (`entities.py`)
    timers   a heap of (due, key, name)

Rules:
- For each timer of each process the heap has an entry that is not later. One that was set anew to a later time, or
  cleared, is found out when its entry comes up: so a timer that is set again and again costs one entry.
- A process that is as at its beginning, and has no timer, is forgotten: a process of that key begins like a new one.
- `trim` is called between transactions, when what processes have is committed.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tidelog.sourcing.entities import BOUND, ColdEntities

Timers = dict[str, int]
Cause = tuple[str | None, str | None]  # the id of an event, and its correlation


class Process:
    """One of them: what is known, what runs out when, and which event set it."""

    __slots__ = ("causes", "state", "timers")

    def __init__(self, state: Any, timers: Timers, causes: dict[str, Cause] | None = None) -> None:
        self.state, self.timers = state, timers
        self.causes = {} if causes is None else causes

    def caused(self, before: Timers, cause: Cause) -> None:
        """Of the timers that were set since, or cleared."""
        for name, due in self.timers.items():
            if before.get(name) != due or name not in self.causes:
                self.causes[name] = cause
        for name in self.causes.keys() - self.timers.keys():
            del self.causes[name]


class Processes:
    """`encode` and `decode` are of a process as a record's value; `fresh` makes a new one."""

    def __init__(
        self,
        fresh: Callable[[], Process],
        encode: Callable[[str, Process], bytes],
        decode: Callable[[str, bytes], Process],
        *,
        bound: int = BOUND,
        folder: str | None = None,
    ) -> None:
        self._fresh, self._encode, self._decode, self._bound = fresh, encode, decode, bound
        self._hot: OrderedDict[str, Process] = OrderedDict()
        self._cold = ColdEntities(bound, folder)
        self._timers: list[tuple[int, str, str]] = []
        self.changed: set[str] = set()

    def __len__(self) -> int:
        """About how many there are: one that is hot may be cold as well."""
        return max(len(self._hot), len(self._cold))

    @property
    def timers(self) -> int:
        """How many entries the heap has: about how many timers are set."""
        return len(self._timers)

    @property
    def hot(self) -> int:
        return len(self._hot)

    def load(self, values: Iterable[tuple[str, bytes | None]]) -> None:
        """Records of `state/KEY`, the last of a key counts."""
        for key, value in values:
            if value is None:
                self._cold.drop(key)
            else:
                self._cold.put([(key, value)])

    def load_timers(self) -> None:
        """Of all that were loaded."""
        found = ((key, self._decode(key, value)) for key, value in self._cold.items())
        self._timers = [(due, key, name) for key, process in found for name, due in process.timers.items()]
        heapq.heapify(self._timers)

    def reset(self, make: Callable[[Process], Process]) -> None:
        """Each of them made anew, and to be written."""
        for key in [key for key, _ in self._cold.items()]:
            process = self.find(key)
            self.keep(key, make(process), process.timers)
            self.evict()

    def find(self, key: str) -> Process:
        found = self._hot.get(key)
        if found is not None:
            self._hot.move_to_end(key)
            return found
        value = self._cold.get(key)
        return self._fresh() if value is None else self._decode(key, value)

    def keep(self, key: str, process: Process, before: Mapping[str, int]) -> None:
        """After a change; `before` are its timers as they were."""
        self._hot[key] = process
        self._hot.move_to_end(key)
        self.changed.add(key)
        for name, due in process.timers.items():
            if name not in before or due < before[name]:
                heapq.heappush(self._timers, (due, key, name))

    @property
    def next_due(self) -> int | None:
        """Nothing runs out before it."""
        return self._timers[0][0] if self._timers else None

    def run_out(self, now_ms: int, at_most: int) -> list[tuple[int, str, str]]:
        """Timers that are due, the earliest first: (due, key, name). They have no entry any more: whoever takes them
        clears each, or has it watched again.
        """
        found: dict[tuple[int, str, str], None] = {}
        while self._timers and self._timers[0][0] <= now_ms and len(found) < at_most:
            at, key, name = heapq.heappop(self._timers)
            due = self.find(key).timers.get(name)
            if due is not None and due > at:
                heapq.heappush(self._timers, (due, key, name))
            elif due is not None:
                found[due, key, name] = None  # once, however many entries it has
        return list(found)

    def watch(self, key: str, name: str, process: Process) -> None:
        if name in process.timers:
            heapq.heappush(self._timers, (process.timers[name], key, name))

    def values(self, is_over: Callable[[Process], bool]) -> Iterator[tuple[str, bytes | None]]:
        """Of those that have changed, as they are to be written; None for one that is forgotten."""
        for key in sorted(self.changed):
            process = self.find(key)
            yield key, None if is_over(process) else self._encode(key, process)

    def trim(self, is_over: Callable[[Process], bool]) -> None:
        """What has changed is committed."""
        for key in self.changed:
            if key in self._hot and is_over(self._hot[key]):
                del self._hot[key]
                self._cold.drop(key)
        self.changed.clear()
        self.evict()

    def evict(self) -> None:
        """What is beyond the bound goes to the others. It need not be committed: all of this is only a cache."""
        evicted = []
        while len(self._hot) > self._bound:
            key, process = self._hot.popitem(last=False)
            evicted.append((key, self._encode(key, process)))
        if evicted:
            self._cold.put(evicted)

    def close(self) -> None:
        self._hot.clear()
        self._cold.close()
