"""A game of chess as the history of one entity: the position at any move, who moved, and what a move changed.

    python examples/chess_moves.py

Needs `pip install 'tidelog[sourcing]'`. It starts a broker of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import tidelog
from tidelog.sourcing import Decider, EventStore, Refused

START = {"e2": "white pawn", "d1": "white queen", "f1": "white bishop", "e7": "black pawn", "f7": "black pawn"}


@dataclass(frozen=True)
class Move:
    origin: str
    target: str


@dataclass(frozen=True)
class Moved:
    piece: str
    origin: str
    target: str
    taken: str | None = None


@dataclass(frozen=True)
class Game:
    squares: dict[str, str] = field(default_factory=lambda: dict(START))


def decide(game: Game, command: Move, now: datetime) -> list[Any]:
    piece = game.squares.get(command.origin)
    if piece is None:
        raise Refused(f"nothing stands on {command.origin}")
    return [Moved(piece, command.origin, command.target, game.squares.get(command.target))]


def apply(game: Game, event: Moved) -> Game:
    left = {square: piece for square, piece in game.squares.items() if square != event.origin}
    return Game({**left, event.target: event.piece})


GAME = [("e2", "e4"), ("e7", "e5"), ("d1", "h5"), ("f1", "c4"), ("h5", "f7")]


def main() -> None:
    decider = Decider(Game(), decide, apply, commands=[Move], events=[Moved])
    with tidelog.Broker() as broker, EventStore("chess", decider, bootstrap=broker.bootstrap) as store:
        for number, (origin, target) in enumerate(GAME):
            store.send("game-1", Move(origin, target), who="white" if "black" not in START.get(origin, "") else "black")
            assert store.state_at("game-1").version == number + 1
        for version in (0, 2, 5):
            squares = store.state_at("game-1", version=version).state.squares
            print(f"after {version} moves:", ", ".join(f"{squares[at]} {at}" for at in sorted(squares)))
        for change in store.difference("game-1", 4, 5):
            print("the last move:", change.field, change.before, "->", change.after)
        print("who moved:", [record.context.who for record, _ in store.history("game-1")])


if __name__ == "__main__":
    main()
