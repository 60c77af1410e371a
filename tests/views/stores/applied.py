"""A store beside a dict: what is applied to the one is done to the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count

from tidelog.client.metadata import TopicPartition
from tidelog.control.marks import Ends, Mark, Sources
from tidelog.schema.declaration import Declaration, Key, Row, Value, declare
from tidelog.views.changes import Change, Stretch
from tidelog.views.stores.store import Ask, Store

AT = TopicPartition("revenue.v1", 0)
OTHER = TopicPartition("revenue.v1", 1)
LOOKS_MAX = 100
REVENUE = declare({"product": "string", "revenue": "double", "orders": "long"}, ("product",))


def row(product: str, revenue: float | None = 1.5, orders: int | None = 1) -> Row:
    return {"product": product, "revenue": revenue, "orders": orders}


def put(declared: Declaration, after: Row, offset: int = 0, at: TopicPartition = AT) -> Change:
    return Change(declared.key_of(after), after, None, at, offset, 0)


def gone(key: Key, offset: int = 0, at: TopicPartition = AT) -> Change:
    return Change(key, None, None, at, offset, 0)


def mark(batch: int, ends: Ends) -> Mark:
    return Mark(
        "revenue.v1", "a-query", batch, Sources({TopicPartition("orders", 0): batch * 10}), ends, 1_700_000_000_000
    )


def stretch(changes: list[Change], end: int, at: TopicPartition = AT) -> Stretch:
    return Stretch(changes, {at: end}, mark(end, {at: end}))


class Applied:
    """One generation of a store, and what is to be in it."""

    def __init__(self, store: Store, declared: Declaration = REVENUE, generation: int = 1) -> None:
        self.store = store
        self.declared = declared
        self.generation = generation
        self.rows: dict[Key, Row] = {}
        self.end: int | None = None
        store.prepare(generation, declared)

    @property
    def before(self) -> Ends:
        return {} if self.end is None else {AT: self.end}

    def put(self, *rows: Row, show: bool = True) -> None:
        self.apply({self.declared.key_of(one): one for one in rows}, show=show)

    def delete(self, *keys: Key, show: bool = True) -> None:
        self.apply(dict.fromkeys(keys), show=show)

    def apply(self, changes: Mapping[Key, Row | None], *, show: bool = True) -> None:
        offsets = count(self.end or 0)
        told = [Change(key, after, None, AT, next(offsets), 0) for key, after in changes.items()]
        end = next(offsets) + 1
        self.store.apply(self.generation, stretch(told, end), before=self.before, show=show)
        self.end = end
        for key, after in changes.items():
            self.rows.pop(key, None)
            if after is not None:
                self.rows[key] = after

    def is_equal(self) -> None:
        """By reading, by each key, and by what the store says of its place."""
        place = self.store.place(self.generation)
        assert place is not None
        assert (place.generation, dict(place.ends)) == (self.generation, dict(self.before))
        assert self.end is None or place.mark == mark(self.end, {AT: self.end})
        assert_same_rows(list(pages(self.store)), [self.rows[key] for key in sorted(self.rows, key=ordered)])
        # Each of a few, some of many: a look at one key is dear in stores that are made for reading many.
        for key in list(self.rows)[:: 1 + len(self.rows) // LOOKS_MAX]:
            found, at, one = *self.store.get(key), self.rows[key]
            assert_same_rows([] if found is None else [found], [one])
            assert at == place


def pages(store: Store, ask: Ask | None = None, limit: int = 1000) -> Iterator[Row]:
    """All rows, page by page."""
    ask = (ask or Ask())._replace(limit=limit)
    while True:
        page = store.read(ask)
        assert len(page.rows) <= limit
        yield from page.rows
        if not page.more:
            return
        assert page.last is not None and page.last != ask.after, "it goes on"
        ask = ask._replace(after=page.last)


def ordered(key: Key) -> tuple[object, ...]:
    return tuple(key)


def assert_same_rows(found: list[Row], expected: list[Row]) -> None:
    assert [exactly(one) for one in found] == [exactly(one) for one in expected]


def exactly(one: Row) -> dict[str, tuple[str, str]]:
    """With types: 1 is not True, and NaN is itself. Zero has no sign: SQLite keeps none."""
    return {name: (type(value).__name__, _text(value)) for name, value in one.items()}


def _text(value: Value) -> str:
    return repr(value + 0.0) if isinstance(value, float) else repr(value)
