"""Nexmark's input: people, the auctions that they open, and bids on them, by numpy. Pure; a seed gives the same rows.

Of 50 events, the first is a person, three are auctions and 46 are bids, as in Nexmark's own generator, and so are the
relations: half of all bids go to one hot auction in a hundred, three in four come from one hot bidder in a hundred, the
rest from the 1,000 people and to the 100 auctions that were last; three auctions in four are of a hot seller. Some
name an auction or a person that comes up to ten later. What differs:

- Event number n happens at START + n milliseconds: a thousand events a second, no two at the same time, so that "the
  last" and "the highest, then the first" have one answer.
- Kinds lie in topics of their own, in turns over the partitions, and only those that a query reads are made.
- Behind the last event of each partition come some with numbers below zero, one, two and three hours later: they close
  what is open, in every partition into which a side may spread them. Nothing with such a number is compared.

Values are JSON objects, times in milliseconds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]

SEED = 20261115
START = 1_700_000_000_000
HOUR = 3_600_000
PARTITIONS = 2

ROUND, PEOPLE, AUCTIONS = 50, 1, 3
BIDS = ROUND - PEOPLE - AUCTIONS
FIRST_ID = 1000
ACTIVE_PEOPLE, OPEN_AUCTIONS, LEAD, HOT = 1000, 100, 10, 100
FIRST_CATEGORY, CATEGORIES = 10, 5
CLOSING, CLOSING_HOURS = 16, 3

PERSON, AUCTION, BID = KINDS = ("person", "auction", "bid")
CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent")
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
FIRST_NAMES = ("Ada", "Bela", "Cleo", "Dora", "Emil", "Fritz", "Gina", "Hugo", "Ines", "Jon", "Karl")
LAST_NAMES = ("Abel", "Berg", "Conti", "Dahl", "Egger", "Frei", "Gruber", "Haas", "Ito")
CHANNELS = ("Apple", "Google", "Facebook", "Baidu")


class Events(NamedTuple):
    """So many events in all, of which a kind is a share."""

    count: int

    @property
    def end(self) -> int:
        return START + self.count

    def rounds(self) -> int:
        return -(-self.count // ROUND)

    def _random(self, kind: str) -> np.random.Generator:
        return np.random.default_rng([SEED, self.count, KINDS.index(kind)])

    def _numbers(self, first: int, among: int) -> Numbers:
        """Of the events of one kind: places `first` to `first + among` of every round."""
        places = np.arange(self.rounds())[:, None] * ROUND + np.arange(first, first + among)
        numbers = places.reshape(-1)
        return numbers[numbers < self.count]

    def people(self) -> pa.Table:
        random, numbers = self._random(PERSON), self._numbers(0, PEOPLE)
        count = len(numbers)
        names = joined(picked(random, FIRST_NAMES, count), " ", picked(random, LAST_NAMES, count))
        columns = {
            "id": FIRST_ID + numbers // ROUND,
            "name": names,
            "emailAddress": joined(pc.replace_substring(names, " ", "@"), ".example"),
            "creditCard": texts(random.integers(10**15, 10**16, count)),
            "city": picked(random, CITIES, count),
            "state": picked(random, STATES, count),
            "dateTime": START + numbers,
            "extra": texts(random.integers(10**17, 10**18, count)),
        }
        return pa.table(columns)

    def auctions(self) -> pa.Table:
        random, numbers = self._random(AUCTION), self._numbers(PEOPLE, AUCTIONS)
        count = len(numbers)
        horizon = OPEN_AUCTIONS * ROUND // AUCTIONS
        price = prices(random, count)
        item = texts(random.integers(10**5, 10**6, count))
        columns = {
            "id": FIRST_ID + numbers // ROUND * AUCTIONS + numbers % ROUND - PEOPLE,
            "itemName": joined("item ", item),
            "description": joined(
                "a thing of the kind ", item, ", used with care by ", texts(random.integers(9, size=count))
            ),
            "initialBid": price,
            "reserve": price + prices(random, count),
            "dateTime": START + numbers,
            "expires": START + numbers + 1 + random.integers(0, 2 * horizon, count),
            "seller": hot_or_recent(random, people_before(numbers), hot_in=4, at=0),
            "category": FIRST_CATEGORY + random.integers(0, CATEGORIES, count),
            "extra": texts(random.integers(10**17, 10**18, count)),
        }
        return pa.table(columns)

    def bids(self) -> pa.Table:
        random, numbers = self._random(BID), self._numbers(PEOPLE + AUCTIONS, BIDS)
        count = len(numbers)
        channel = picked(random, CHANNELS, count)
        columns = {
            "auction": bid_on(random, numbers),
            "bidder": hot_or_recent(random, people_before(numbers), hot_in=4, at=1),
            "price": prices(random, count),
            "channel": channel,
            "url": joined("https://example.org/", channel, "/item?id=", texts(random.integers(10**5, 10**6, count))),
            "dateTime": START + numbers,
            "extra": texts(random.integers(10**17, 10**18, count)),
        }
        return pa.table(columns)

    def of(self, kind: str) -> pa.Table:
        return {PERSON: self.people, AUCTION: self.auctions, BID: self.bids}[kind]()

    def rows_of(self, kind: str) -> int:
        first, among = {PERSON: (0, PEOPLE), AUCTION: (PEOPLE, AUCTIONS), BID: (PEOPLE + AUCTIONS, BIDS)}[kind]
        return len(self._numbers(first, among))

    def closing(self, kind: str) -> pa.Table:
        """The rows behind all others."""
        names, numbers = Events(ROUND).of(kind).column_names, np.arange(CLOSING * CLOSING_HOURS)
        return pa.table({name: _closing(name, self.end, numbers) for name in names})


TEXTS = {"name", "emailAddress", "creditCard", "city", "state", "itemName", "description", "channel", "url", "extra"}


def _closing(name: str, end: int, numbers: Numbers) -> pa.Array:
    if name in TEXTS:
        return pa.array(["closing"] * len(numbers))
    if name in ("dateTime", "expires"):
        return pa.array(end + HOUR * (1 + numbers // CLOSING) + numbers)
    return pa.array(-1 - numbers % CLOSING)


def people_before(numbers: Numbers) -> Numbers:
    """How many there are, less one: the number of the newest."""
    return numbers // ROUND


def hot_or_recent(random: np.random.Generator, newest: Numbers, *, hot_in: int, at: int) -> Numbers:
    """People: but for one in `hot_in` cases the hot one of the hundred, else one of those that were last."""
    active = np.minimum(newest + 1, ACTIVE_PEOPLE)
    recent = newest + 1 - active + (random.random(len(newest)) * (active + LEAD)).astype(np.int64)
    is_hot = random.integers(0, hot_in, len(newest)) > 0
    return FIRST_ID + np.where(is_hot, newest // HOT * HOT + at, recent)


def bid_on(random: np.random.Generator, numbers: Numbers) -> Numbers:
    newest = numbers // ROUND * AUCTIONS + AUCTIONS - 1
    oldest = np.maximum(newest - OPEN_AUCTIONS, 0)
    recent = oldest + (random.random(len(numbers)) * (newest - oldest + 1 + LEAD)).astype(np.int64)
    return FIRST_ID + np.where(random.integers(0, 2, len(numbers)) > 0, newest // HOT * HOT, recent)


def prices(random: np.random.Generator, count: int) -> Numbers:
    return np.round(10 ** (random.random(count) * 6) * 100).astype(np.int64)


def picked(random: np.random.Generator, words: tuple[str, ...], count: int) -> pa.Array:
    return pa.array(words).take(pa.array(random.integers(0, len(words), count)))


def texts(numbers: Numbers) -> pa.Array:
    return pa.array(numbers).cast(pa.string())


def joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def to_json(rows: pa.Table) -> pa.Array:
    """One object a row, as bytes. No text in here needs an escape."""
    parts: list[pa.Array | str] = []
    for position, name in enumerate(rows.column_names):
        quote = '"' if name in TEXTS else ""
        parts += [f'{"," if position else "{"}"{name}":{quote}', rows[name].combine_chunks().cast(pa.string()), quote]
    return joined(*parts, "}").cast(pa.binary())


def partition(rows: pa.Table, number: int) -> pa.Table:
    """Every second row: both partitions reach the same time together."""
    return rows.take(pa.array(np.arange(number, len(rows), PARTITIONS)))
