"""Subscriptions by pattern (KIP-848's SubscribedTopicRegex): a topic's whole name must match, in linear time.

A pattern comes from outside and is matched on the broker's loop, so it never meets Python's backtracking `re`. It
becomes a program for a machine that is in all its places at once (Thompson, 1968): a character costs at most one step
a place, whatever the pattern. Sets of places are remembered with where each character leads from them, so most
characters cost one look into a dictionary. Programs are bounded, and so is what is remembered; `work` counts the
steps that were not remembered, so that the caller can bound what one pattern may cost in all.

The instructions of a program: ("set", characters, next), ("split", next, next), ("match",), and the empty-width tests
("begin", next), ("end", next), ("edge", next), ("inside", next).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tidelog.broker.groups.pattern_syntax import WORD, Node, parse
from tidelog.broker.groups.settings import MAX_PATTERN_LENGTH
from tidelog.broker.names import is_internal
from tidelog.errors import UsageError

PATTERNS_KEPT = 256
PROGRAM_MAX = 4_000
STATES_KEPT = 1_000

BEGIN, END = "^", "$"  # stand for what is before and behind a name; no name has such characters
STUCK = -1

Instruction = tuple[Any, ...]
Places = frozenset[int]


class Pattern:
    """A compiled pattern. What it remembers makes it faster and changes no answer.

    A state is where the machine is and which kind of character came before; states are known by number, 0 is the start.
    """

    def __init__(self, program: list[Instruction], start: int) -> None:
        self._program = program
        self._start: Places = frozenset({start})
        self.work = 0
        self._forget()

    def _forget(self) -> None:
        self._states: list[tuple[Places, str]] = [(self._start, BEGIN)]
        self._numbers: dict[tuple[Places, str], int] = {}
        self._steps: list[dict[str, int]] = [{}]
        self._accepts: dict[int, bool] = {}

    def matches(self, name: str) -> bool:
        """Whether the whole name matches. The broker's own topics do not: who reads `.*` does not mean them."""
        if is_internal(name):
            return False
        if len(self._states) >= STATES_KEPT:
            self._forget()
        steps = self._steps
        state = 0
        for character in name:
            following = steps[state].get(character)
            if following is None:
                following = self._step(state, character)
            if following == STUCK:
                return False
            state = following
        if state not in self._accepts:
            reached = self._reachable(state, END)
            self._accepts[state] = any(self._program[place][0] == "match" for place in reached)
        return self._accepts[state]

    def _step(self, state: int, character: str) -> int:
        program = self._program
        found = frozenset(
            program[place][2]
            for place in self._reachable(state, character)
            if program[place][0] == "set" and character in program[place][1]
        )
        number = STUCK
        if found:
            # Of the character before, only a test of edges asks, and only whether it was one of a word.
            after = found, "w" if character in WORD else "-"
            number = self._numbers.setdefault(after, len(self._states))
            if number == len(self._states):
                self._states.append(after)
                self._steps.append({})
        self._steps[state][character] = number
        return number

    def _reachable(self, state: int, following: str) -> set[int]:
        """The places that are reached without reading, given the characters around this point."""
        places, before = self._states[state]
        edge = (before in WORD) != (following in WORD)
        holds = {"begin": before == BEGIN, "end": following == END, "edge": edge, "inside": not edge}
        reached: set[int] = set()
        waiting = list(places)
        while waiting:
            place = waiting.pop()
            if place in reached:
                continue
            reached.add(place)
            instruction = self._program[place]
            if instruction[0] == "split":
                waiting += instruction[1:]
            elif holds.get(instruction[0]):
                waiting.append(instruction[1])
        self.work += len(reached)
        return reached


@lru_cache(maxsize=PATTERNS_KEPT)
def compile_pattern(pattern: str) -> Pattern:
    """UsageError says what is wrong with the pattern."""
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise UsageError(f"a pattern of {len(pattern)} characters is longer than {MAX_PATTERN_LENGTH}")
    program: list[Instruction] = [("match",)]
    start = _emit(program, parse(pattern), 0)
    return Pattern(program, start)


def _emit(program: list[Instruction], node: Node, following: int) -> int:
    """Adds the instructions for a node that goes on at `following`, and returns where it begins."""
    kind = node[0]
    if kind == "cat":
        for part in reversed(node[1]):
            following = _emit(program, part, following)
        return following
    if kind == "alt":
        starts = [_emit(program, choice, following) for choice in node[1]]
        return _add(program, ("split", *starts))
    if kind == "repeat":
        return _emit_repeat(program, node, following)
    return _add(program, (*node, following))


def _emit_repeat(program: list[Instruction], node: Node, following: int) -> int:
    _, inner, least, most = node
    if most is None:
        loop = _add(program, ("split",))
        program[loop] = ("split", _emit(program, inner, loop), following)
        following = loop
    else:
        out = following
        for _ in range(most - least):
            following = _add(program, ("split", _emit(program, inner, following), out))
    for _ in range(least):
        following = _emit(program, inner, following)
    return following


def _add(program: list[Instruction], instruction: Instruction) -> int:
    if len(program) >= PROGRAM_MAX:
        raise UsageError(f"the pattern is too large: it needs more than {PROGRAM_MAX} steps; repeat less in it")
    program.append(instruction)
    return len(program) - 1
