"""A day of rides, as devices send them: mostly in order, some twice, some hours late, from clocks that are a day ahead,
without a time, without a zone, and some that cannot be decoded. And what is to come of them.

Ids of rides have one number; a duplicate has all of the first one. No ride is more than DISORDER_S out of order, unless
it is late by LATE_HOURS and more: such a one is late for every operator, wherever micro-batches end.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from random import Random
from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer

HOUR_MS, MINUTE_MS = 3_600_000, 60_000
HOURS, PIECE_HOURS, A_PIECE = 24, 2, 150
PARTITIONS = 2
DISORDER_S, LATE_HOURS = 200, 7
ZONES, DRIVERS = ("north", "south", "harbour"), 12
TARIFFS_EVERY_MS = 30 * MINUTE_MS
BAD = b"{broken"
CLOSING = "closing"  # zone and driver of rides behind the day, which close what is open


class Ride(NamedTuple):
    id: int
    driver: str
    zone: str | None
    fare: int
    at: int | None  # when it really was, in ms
    arrived: int
    is_late: bool = False
    ahead_ms: int = 0  # by which the device's clock is wrong

    @property
    def value(self) -> bytes:
        occurred = None if self.at is None else iso(self.at + self.ahead_ms)
        times = {"occurred": occurred, "sent": iso(self.arrived + self.ahead_ms)}
        return json.dumps(
            {"id": self.id, "driver": self.driver, "zone": self.zone, "fare": self.fare, **times}
        ).encode()


def iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


class Day:
    """What was written so far, piece by piece."""

    def __init__(self, begin_ms: int, random: Random) -> None:
        self.begin, self._random = begin_ms, random
        self.rides: list[Ride] = []  # all that can be decoded, duplicates too
        self.bad: list[tuple[int, int]] = []  # partition and offset
        self.tariffs: list[tuple[str, int, int]] = []  # zone, since, rate

    def write(self, cluster: Cluster, piece: int) -> None:
        begin = self.begin + piece * PIECE_HOURS * HOUR_MS
        rides = sorted(self._rides(begin, piece), key=lambda one: one.arrived)
        self._write(cluster, rides, bad_every=29)
        self._write_tariffs(cluster, begin, begin + PIECE_HOURS * HOUR_MS)

    def close(self, cluster: Cluster, hours: int) -> None:
        """Rides of a zone of their own in every partition, and tariffs: time has come so far."""
        at = self.begin + (HOURS + hours) * HOUR_MS
        rides = [Ride(1_000_000 + 10 * hours + one, CLOSING, CLOSING, 0, at, at) for one in range(PARTITIONS)]
        self._write(cluster, rides)
        self._write_tariffs(cluster, at, at + 1, (CLOSING,))

    def _rides(self, begin: int, piece: int) -> list[Ride]:
        found = []
        for number in range(A_PIECE):
            arrived = begin + number * PIECE_HOURS * HOUR_MS // A_PIECE
            at = arrived - self._random.randrange(DISORDER_S * 1000)
            zone: str | None = self._random.choice(ZONES)
            driver, fare = f"d{self._random.randrange(DRIVERS)}", self._random.randrange(1, 90)
            one = Ride(piece * A_PIECE + number, driver, zone, fare, at, arrived)
            kind = self._random.randrange(20)
            if kind == 0 and piece * PIECE_HOURS > LATE_HOURS:
                one = one._replace(at=at - (LATE_HOURS * HOUR_MS), is_late=True)
            elif kind == 1:
                one = one._replace(ahead_ms=24 * HOUR_MS)
            elif kind == 2:
                one = one._replace(at=None)
            elif kind == 3:
                one = one._replace(zone=None)
            found.append(one)
            if kind == 4:
                found.append(one._replace(arrived=arrived + 20_000))
        return found

    def _write(self, cluster: Cluster, rides: list[Ride], bad_every: int = 0) -> None:
        with Producer(cluster) as producer:
            for number, one in enumerate(rides):
                partition = one.id % PARTITIONS
                if bad_every and number % bad_every == 0:
                    bad = producer.send("rides", BAD, partition=partition, timestamp=one.arrived)
                    producer.flush()
                    self.bad.append((partition, bad.offset))
                producer.send("rides", one.value, partition=partition, timestamp=one.arrived)
        self.rides += rides

    def _write_tariffs(self, cluster: Cluster, begin: int, end: int, zones: tuple[str, ...] = ZONES) -> None:
        with Producer(cluster) as producer:
            for since in range(begin - (begin - self.begin) % TARIFFS_EVERY_MS, end, TARIFFS_EVERY_MS):
                for zone in zones:
                    rate = self._random.randrange(100)
                    self.tariffs.append((zone, since, rate))
                    value = json.dumps({"zone": zone, "rate": rate, "since": iso(since)}).encode()
                    producer.send("tariffs", value, key=zone.encode(), timestamp=since)


# What is to come of it ------------------------------------------------------------------------------------------------


def used(day: Day) -> list[Ride]:
    """By every operator over event time."""
    return [one for one in day.rides if one.at is not None and not one.is_late]


def clean(day: Day) -> list[Ride]:
    return list({one.id: one for one in used(day)}.values())


def zones(day: Day) -> dict[tuple[str, int], tuple[int, int]]:
    """Rides and fares of windows that are over."""
    rides, fares = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for one in used(day):
        if one.zone not in (None, CLOSING):
            key = (str(one.zone), (one.at or 0) // HOUR_MS * HOUR_MS)
            rides[key] += 1
            fares[key] += one.fare
    return {key: (rides[key], fares[key]) for key in rides}


def drivers(day: Day) -> dict[str, tuple[int, int]]:
    rides, fares = Counter[str](), Counter[str]()
    for one in used(day):
        rides[one.driver] += 1
        fares[one.driver] += one.fare
    return {name: (rides[name], fares[name]) for name in rides}


def totals(day: Day) -> dict[str, tuple[int, int, int]]:
    found: dict[str, tuple[int, int, int]] = {}
    for one in clean(day):
        if one.zone is not None:
            rides, fares, tax = found.get(one.zone, (0, 0, 0))
            found[one.zone] = (rides + 1, fares + one.fare, tax + one.fare // 10)
    return found


def priced(day: Day) -> Counter[tuple[int, int | None]]:
    """Each ride that waits no more, with the rate that there was."""
    since = sorted(day.tariffs, key=lambda tariff: tariff[1])
    found = Counter[tuple[int, int | None]]()
    for one in used(day):
        if one.zone != CLOSING:
            rates = [rate for zone, begin, rate in since if zone == one.zone and begin <= (one.at or 0)]
            found[one.id, rates[-1] if rates else None] += 1
    return found
