"""What happens in the shop: orders and deliveries, one after the other, all of it given by a seed. Pure.

    steady     so many events a second, with gaps as chance has them
    burst      every now and then one product is on everybody's mind for seconds, and orders come four times as fast
    late       one order in twenty has an event time up to a minute and a half before it is sent
    delivery   at the beginning, and whenever little is left of a product

Equal seeds give equal events, and with an equal beginning equal bytes. `number` is how many events there were before in
the same log: what comes then is something else, and ids go on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import NamedTuple

from tidelog.demo.shop import DELIVERIES, ORDERS

PRICES = {  # in cents
    "tea": 450,
    "coffee": 890,
    "cup": 1250,
    "kettle": 3990,
    "filter": 320,
    "grinder": 5900,
    "honey": 740,
    "biscuits": 380,
}
WEIGHTS = (22, 20, 10, 4, 14, 3, 11, 16)
QUANTITIES, QUANTITY_WEIGHTS = (1, 2, 3, 5), (70, 18, 8, 4)

LATE_SHARE, LATE_MAX_S = 0.05, 90.0
BURST_EVERY_S, BURST_S, BURST_TIMES = 20.0, 4.0, 4.0
BURST_SHARE = 0.7  # of a burst's orders that are for its product
STOCK_LOW, STOCK_MORE = 40, 200
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ShopEvent(NamedTuple):
    after_s: float  # since the beginning
    topic: str
    id: int
    product: str
    quantity: int
    cents: int = 0  # of an order
    late_s: float = 0.0

    @property
    def key(self) -> bytes:
        return self.product.encode()

    def timestamp_ms(self, began_ms: int) -> int:
        return began_ms + int(self.after_s * 1000)

    def value(self, began_ms: int) -> bytes:
        at = EPOCH + timedelta(milliseconds=self.timestamp_ms(began_ms) - int(self.late_s * 1000))
        said: dict[str, object] = {"id": self.id, "product": self.product, "quantity": self.quantity}
        if self.topic == ORDERS:
            said["cents"] = self.cents
        said["at"] = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return json.dumps(said, separators=(",", ":")).encode()


@dataclass(slots=True)
class Burst:
    product: str
    begins_s: float

    def holds(self, now_s: float) -> bool:
        return self.begins_s <= now_s < self.begins_s + BURST_S


def events(seed: int, rate: float, *, number: int = 0) -> Iterator[ShopEvent]:
    """Without an end, in the order of `after_s`."""
    chance = Random(f"{seed}/{number}")
    # In a later run at least so much is there of each product.
    left = dict.fromkeys(PRICES, STOCK_LOW if number else 0)
    now_s, burst = 0.0, _next_burst(chance, 0.0)
    while True:
        for product in [one for one, count in left.items() if count < STOCK_LOW]:
            left[product] += STOCK_MORE
            yield ShopEvent(now_s, DELIVERIES, number, product, STOCK_MORE)
            number += 1
        now_s += chance.expovariate(rate * (BURST_TIMES if burst.holds(now_s) else 1.0))
        if now_s >= burst.begins_s + BURST_S:
            burst = _next_burst(chance, now_s)
        order = _order(chance, now_s, burst, number)
        left[order.product] -= order.quantity
        yield order
        number += 1


def _order(chance: Random, now_s: float, burst: Burst, number: int) -> ShopEvent:
    product = chance.choices(tuple(PRICES), WEIGHTS)[0]
    if burst.holds(now_s) and chance.random() < BURST_SHARE:
        product = burst.product
    quantity = chance.choices(QUANTITIES, QUANTITY_WEIGHTS)[0]
    late_s = chance.uniform(0.0, LATE_MAX_S) if chance.random() < LATE_SHARE else 0.0
    return ShopEvent(now_s, ORDERS, number, product, quantity, quantity * PRICES[product], late_s)


def _next_burst(chance: Random, now_s: float) -> Burst:
    return Burst(chance.choice(tuple(PRICES)), now_s + chance.uniform(0.5, 1.5) * BURST_EVERY_S)
