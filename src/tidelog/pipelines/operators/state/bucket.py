"""One step of a fold over one bucket: read the pages it needs, let it decide, write the pages it changed.

    header (JSON; beside it the directory of `pages.py`)
        format      1
        fold        name of the fold
        version     of the fold that wrote the state
        buckets     how many there are in all: a key's bucket is its hash modulo this
        partitions  of Spark, when the state was made
        schema      of the state's rows: Arrow IPC, base64
        declared    the parameters of the fold (`parameters.py`); not there in state from before they were kept
        next        the number of the next new page
        timer       the event time in ms for which Spark has been asked to wake the bucket; null where it has not
        counts      what became of rows, by name, since the state was made

Rules:
- State that another fold wrote, or one with other parameters, that is spread over another number of buckets, or that is
  newer than this code is refused before anything is written.
- State of an older version of the fold is read whole and written anew in the first step, if the fold can read it.
- Of other keys in the pages that a step reads, what the fold says is needed no more is left out (`Forgetting`).
- The bucket asks to be woken at the earliest DUE of its rows, once: one timer a bucket.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from tidelog.errors import StateMismatch
from tidelog.pipelines.operators.state.buckets import Layout
from tidelog.pipelines.operators.state.checking import checked_step, columns_in, fitted
from tidelog.pipelines.operators.state.fold import EVERY_KEY, HASH, Clock, Fold, Forgetting, Upgrading
from tidelog.pipelines.operators.state.key_values import with_plain_keys
from tidelog.pipelines.operators.state.pages import (
    ENTRY,
    LOWEST,
    NEVER,
    Directory,
    Hashes,
    by_hash,
    concerned,
    cuts,
    dues,
    read_page,
    touched,
    write_page,
)
from tidelog.pipelines.operators.state.parameters import Parameters, difference, is_ours, parameters_of
from tidelog.pipelines.operators.state.steps import StepFunction

FORMAT = 1


class BucketStore(Protocol):
    """Where a bucket's bytes are kept: Spark's state store, or a dictionary in tests."""

    def header(self) -> tuple[str, bytes] | None: ...

    def set_header(self, header: str, directory: bytes) -> None: ...

    def page(self, number: int) -> bytes: ...

    def set_page(self, number: int, data: bytes) -> None: ...

    def drop_page(self, number: int) -> None: ...

    def set_timer(self, before: int | None, after: int | None) -> None: ...


class Header(NamedTuple):
    fold: str
    version: int
    layout: Layout
    schema: pa.Schema
    next: int
    timer: int | None
    counts: Mapping[str, int]
    declared: Parameters

    def encode(self) -> str:
        schema = base64.b64encode(self.schema.serialize()).decode()
        known = {"format": FORMAT, "fold": self.fold, "version": self.version} | self.layout._asdict()
        rest = {"schema": schema, "next": self.next, "timer": self.timer, "counts": self.counts}
        return json.dumps(known | rest | {"declared": self.declared})

    @classmethod
    def decode(cls, text: str) -> Header:
        known = json.loads(text)
        if known["format"] != FORMAT:
            raise StateMismatch(f"the state has format {known['format']}; this version reads {FORMAT}: use a newer one")
        layout = Layout(known["buckets"], known["partitions"])
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(known["schema"])))
        rest = (known["next"], known["timer"], known["counts"], known.get("declared", {}))
        return cls(known["fold"], known["version"], layout, schema, *rest)


def step_bucket(
    fold: Fold,
    store: BucketStore,
    layout: Layout,
    rows: pa.Table,
    clock: Clock,
    step_by: StepFunction | None = None,
    keys: Sequence[str] = (),
) -> pa.Table:
    """What the fold puts out for these rows, or for the time that has come; its state is in the store afterwards."""
    header, directory = _open(fold, store, layout, keys)
    hashes = rows[HASH].to_numpy()
    for_all = bool((hashes == EVERY_KEY).any())
    whole = for_all or header.version != fold.version
    needed = np.arange(len(directory)) if whole else touched(directory, hashes, clock.watermark)
    held, before = _read(fold, store, header, directory[needed])
    held, rows = with_plain_keys(held, keys), with_plain_keys(rows, keys)
    mask = np.ones(len(held), bool) if for_all else concerned(held, hashes, clock.watermark)
    step = checked_step(fold, held.filter(pa.array(mask)), rows, clock, step_by)
    others = _needed(fold, held.filter(pa.array(~mask)), clock)
    after = by_hash(pa.concat_tables([others, step.state.cast(fold.state_schema)]))
    directory, number = _write(store, header.next, directory, needed, before, after)
    timer = _next_due(directory, fold, clock)
    if timer != header.timer:
        store.set_timer(header.timer, timer)
    counts = {name: header.counts.get(name, 0) + step.counts.get(name, 0) for name in {*header.counts, *step.counts}}
    declared = parameters_of(fold, keys)
    header = Header(fold.name, fold.version, layout, fold.state_schema, number, timer, counts, declared)
    store.set_header(header.encode(), directory.tobytes())
    return step.output


def _needed(fold: Fold, state: pa.Table, clock: Clock) -> pa.Table:
    return state.filter(pa.array(~fold.forgotten(state, clock))) if isinstance(fold, Forgetting) else state


def held_of(fold: Fold, store: BucketStore, layout: Layout, hashes: Hashes, keys: Sequence[str] = ()) -> pa.Table:
    """All that is kept of keys with these hashes, as the fold has it. Nothing is written."""
    header, directory = _open(fold, store, layout, keys)
    needed = np.arange(len(directory)) if header.version != fold.version else touched(directory, hashes, None)
    held, _ = _read(fold, store, header, directory[needed])
    return held.filter(pa.array(concerned(held, hashes, None)))


def is_due(store: BucketStore, clock: Clock) -> bool:
    """Whether Spark would wake the bucket now."""
    found = store.header()
    timer = None if found is None else Header.decode(found[0]).timer
    return timer is not None and clock.watermark is not None and timer <= clock.watermark


def _open(fold: Fold, store: BucketStore, layout: Layout, keys: Sequence[str]) -> tuple[Header, Directory]:
    if (found := store.header()) is None:
        return Header(fold.name, fold.version, layout, fold.state_schema, 0, None, {}, {}), np.zeros(0, ENTRY)
    header = Header.decode(found[0])
    check(header, fold, layout, keys)
    return header, np.frombuffer(found[1], ENTRY)


def check(header: Header, fold: Fold, layout: Layout, keys: Sequence[str] = ()) -> None:
    if header.fold != fold.name:
        raise StateMismatch(f"the state is that of {header.fold!r}, not of {fold.name!r}; take a new checkpoint for it")
    if header.layout != layout:
        raise StateMismatch(
            f"the state of {fold.name!r} is spread over {header.layout.buckets} buckets in {header.layout.partitions} "
            f"partitions, the query over {layout.buckets} in {layout.partitions}; set spark.sql.shuffle.partitions to "
            f"{header.layout.partitions}, or take a new checkpoint and the state is rebuilt from the log"
        )
    if changed := difference(header.declared, parameters_of(fold, keys), ours=is_ours(fold)):
        raise StateMismatch(
            f"the state of {fold.name!r} {changed}; go back to what it was, or take a new checkpoint (for a view: "
            "tidelog rebuild) and it is rebuilt from the log"
        )
    if header.version > fold.version:
        raise StateMismatch(
            f"the state of {fold.name!r} has version {header.version}, newer than {fold.version}; take newer code"
        )
    if header.version < fold.version and not isinstance(fold, Upgrading):
        raise StateMismatch(
            f"the state of {fold.name!r} has version {header.version}, and version {fold.version} does not read it; "
            "take a new checkpoint and it is rebuilt from the log"
        )
    if header.version == fold.version and header.schema != fold.state_schema:
        raise StateMismatch(
            f"the state of {fold.name!r} has columns {columns_in(header.schema)}, and the query now needs "
            f"{columns_in(fold.state_schema)}; take a new checkpoint and it is rebuilt from the log"
        )


def _read(fold: Fold, store: BucketStore, header: Header, entries: Directory) -> tuple[pa.Table, dict[int, bytes]]:
    """The rows of these pages as the fold has them now, and their bytes by number."""
    pages = {int(entry["number"]): store.page(int(entry["number"])) for entry in entries}
    held = pa.Table.from_batches([read_page(data, header.schema) for data in pages.values()], header.schema)
    if header.version != fold.version:
        assert isinstance(fold, Upgrading)
        upgraded = fitted(fold, "state", fold.upgrade(held, header.version), fold.state_schema)
        held = upgraded.cast(fold.state_schema)
        pages = dict.fromkeys(pages, b"")
    return held, pages


def _write(
    store: BucketStore,
    number: int,
    directory: Directory,
    needed: np.ndarray,
    before: dict[int, bytes],
    after: pa.Table,
) -> tuple[Directory, int]:
    """The directory with the rows that are in these pages now, and the next free number."""
    firsts, numbers, ends = _ranges(directory, needed)
    hashes, due = after[HASH].to_numpy(), dues(after)
    made: list[tuple[int, int, int, int, int]] = []
    old = dict(zip(firsts, numbers, strict=True))
    for cut in cuts(firsts, ends, hashes, after.nbytes / max(len(after), 1)):
        data = write_page(after, cut).to_pybytes()
        page = old.pop(cut.first, None)
        if page is None:
            page, number = number, number + 1
        if before.get(page) != data:
            store.set_page(page, data)
        made.append((cut.first, int(due[cut.start : cut.end].min()), page, cut.end - cut.start, len(data)))
    assert sum(entry[3] for entry in made) == len(after), "a fold may keep state only of the keys that it was given"
    for page in old.values():
        if page is not None:
            store.drop_page(page)
    kept = np.delete(directory, needed)
    merged = np.concatenate([kept, np.array(made, ENTRY)])
    merged = merged[np.argsort(merged["first"], kind="stable")]
    if len(merged):
        merged["first"][0] = LOWEST
    return merged, number


def _ranges(directory: Directory, needed: np.ndarray) -> tuple[list[int], list[int | None], list[int]]:
    if not len(directory):
        return [LOWEST], [None], [NEVER]
    ends = np.append(directory["first"][1:], NEVER)
    chosen = directory[needed]
    return chosen["first"].tolist(), chosen["number"].tolist(), ends[needed].tolist()


def _next_due(directory: Directory, fold: Fold, clock: Clock) -> int | None:
    due = int(directory["due"].min()) if len(directory) else NEVER
    assert clock.watermark is None or due > clock.watermark, f"{fold.name!r} left a row due at {due}, and it is {clock}"
    return None if due == NEVER else due
