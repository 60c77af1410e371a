"""Subscriptions by pattern (KIP-848's SubscribedTopicRegex): RE2's syntax and semantics, in linear time.

A pattern comes from outside, so it never meets Python's backtracking `re`: it is compiled by RE2 with a bound on its
memory, and a topic's whole name must match, as in Kafka. RE2 is loaded with the first pattern. Where it is not
installed every pattern is refused, with the reason; nothing slower takes its place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from tidelog.broker.groups.settings import MAX_PATTERN_LENGTH
from tidelog.broker.names import is_internal
from tidelog.errors import UsageError

PATTERNS_KEPT = 256
PATTERN_MEMORY_BYTES = 1 << 20

Matches = Callable[[str], bool]


@lru_cache(maxsize=PATTERNS_KEPT)
def compile_pattern(pattern: str) -> Matches:
    """A test of topic names; UsageError says what is wrong with the pattern.

    The broker's own topics match nothing: who reads `.*` does not mean them.
    """
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise UsageError(f"a pattern of {len(pattern)} characters is longer than {MAX_PATTERN_LENGTH}")
    try:
        import re2  # type: ignore[import-untyped]
    except ImportError:
        raise UsageError("patterns need RE2, which is not installed; install the package google-re2") from None
    options = re2.Options()
    options.max_mem = PATTERN_MEMORY_BYTES
    options.never_capture = True
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise UsageError(f"the pattern {pattern!r} is not one of RE2: {text}") from None
    return lambda topic: compiled.fullmatch(topic) is not None and not is_internal(topic)
