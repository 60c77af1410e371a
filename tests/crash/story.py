"""A story of one broker and its clients, told from a seed: it begins, steps follow, and at the end all is compared.

Whatever goes wrong in it comes with the seed that tells it again and with what the broker said.
"""

from __future__ import annotations

from typing import Protocol

from crash.powered_broker import PoweredBroker


class Story(Protocol):
    broker: PoweredBroker

    def begin(self) -> None: ...

    def step(self) -> None: ...

    def finish(self) -> None: ...

    def give_up(self) -> None:
        """Has the clients end, whatever they are at."""
        ...


def tell(story: Story, seed: int, steps: int) -> None:
    try:
        story.begin()
        for _ in range(steps):
            story.step()
        story.finish()
    except BaseException as error:
        error.add_note(f"seed {seed}, life {story.broker.lives}; the broker said:\n{story.broker.said()}")
        story.give_up()
        raise
