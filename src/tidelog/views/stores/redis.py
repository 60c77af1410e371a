"""Views in Redis: `redis://[:${PASSWORD}@]HOST:PORT/DB?prefix=NAME`, and rediss:// for TLS.

    PREFIX:{VIEW}:shown           the number of the generation that readers see
    PREFIX:{VIEW}:generations     hash: number -> declaration
    PREFIX:{VIEW}:v3:place        hash: `mark`, and an end for each partition (`TOPIC:PARTITION`)
    PREFIX:{VIEW}:v3:rows         hash: key -> row, as JSON
    PREFIX:{VIEW}:v3:keys         sorted set of the keys, all of one score: their order

A key is bytes in its order (`key_order.py`). All keys of a view have one hash tag, and so one slot of a cluster.

Rules:
- A stretch is one MULTI under WATCH: the place is watched, compared, and written with the rows. What is queued is a few
  commands of CHUNK rows each, and runs without anything in between; who is killed before EXEC has changed nothing.
  A script would run the same commands more slowly, and rows put aside first would have to be moved by just as many.
- A stretch is held in the server's memory once more until EXEC, at most 1 GB of it (`client-query-buffer-limit`).
- Readers ask by a script: the pointer, the place and the rows of one page are of one instant.
- What a page with `where` has to look through comes in several such answers. If the place moved between them, the page
  ends with those of before, and the next page goes on: no answer is ever larger than a chunk, while which the server
  answers nobody else.
- Redis syncs as its own settings say (`appendfsync`). What it loses, it loses whole and with its place, and the applier
  goes on from there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from tidelog.client.metadata import TopicPartition
from tidelog.control.marks import Ends
from tidelog.errors import AnotherApplier, Disconnected, NotShown, StorageError, TidelogError, UsageError
from tidelog.schema.declaration import Declaration, Key, Row, from_fields, from_json, row_to_json, to_fields
from tidelog.views.changes import Stretch
from tidelog.views.stores.key_order import encoder
from tidelog.views.stores.places import is_to_show, mark_from_text, mark_to_text, moved
from tidelog.views.stores.scanning import Moved, fill, refuse_match
from tidelog.views.stores.store import Ask, Page, Place, is_to_grow

if TYPE_CHECKING:
    import redis

PREFIX_DEFAULT = "tidelog"
CHUNK = 1_000  # rows in one command
TRIES = 20
TIMEOUT_S = 60.0
CONNECT_S = 10.0
MARK = "mark"

# KEYS: shown, generations. ARGV: prefix of the view, an encoded key to begin behind or "", how many, or one key to get.
# Which keys are read depends on the pointer; they have the same hash tag, so they are in the same slot.
READ = """
local shown = redis.call('GET', KEYS[1])
if not shown then return false end
local own = ARGV[1] .. 'v' .. shown .. ':'
local declared = redis.call('HGET', KEYS[2], shown)
local place = redis.call('HGETALL', own .. 'place')
if ARGV[2] == 'get' then
  return {shown, declared, place, redis.call('HGET', own .. 'rows', ARGV[3])}
end
local from = '-'
if ARGV[2] == 'behind' then from = '(' .. ARGV[3] end
local keys = redis.call('ZRANGEBYLEX', own .. 'keys', from, '+', 'LIMIT', 0, ARGV[4])
local rows = {}
for start = 1, #keys, 1000 do
  local some = redis.call('HMGET', own .. 'rows', unpack(keys, start, math.min(start + 999, #keys)))
  for i = 1, #some do rows[#rows + 1] = some[i] end
end
return {shown, declared, place, keys, rows}
"""


def connect(url: str, view: str) -> RedisStore:
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    prefix = options.pop("prefix", PREFIX_DEFAULT)
    if not parts.hostname or set("{}: ") & set(prefix):
        raise UsageError(
            "a Redis store is redis://:${PASSWORD}@HOST:PORT/DB?prefix=NAME, the name without {, }, : or blank"
        )
    plain = urlunsplit(parts._replace(query=urlencode(options)))
    return RedisStore(plain, view, prefix=prefix, address=f"redis://{parts.hostname}:{parts.port or 6379}")


class RedisAnswer(NamedTuple):
    """Of one instant."""

    declared: Declaration
    place: Place
    rows: Sequence[tuple[bytes, Row]]


class RedisStore:
    sees = "whole micro-batches: each is one MULTI of Redis"
    alone = ""

    def __init__(self, url: str, view: str, *, prefix: str = PREFIX_DEFAULT, address: str = "redis") -> None:
        self.view = view
        self.address = address
        self._url = url
        self._own = f"{prefix}:{{{view}}}:"
        self._opened: redis.Redis | None = None
        self._declared: tuple[bytes, Declaration] | None = None

    @property
    def _redis(self) -> Any:
        if self._opened is None:
            import redis

            try:
                self._opened = redis.Redis.from_url(
                    self._url, socket_timeout=TIMEOUT_S, socket_connect_timeout=CONNECT_S
                )
            except ValueError as error:
                raise UsageError(f"{self.address}: {error}") from None
        return self._opened

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    # What an applier does ---------------------------------------------------------------------------------------------

    def prepare(self, generation: int, declared: Declaration) -> None:
        def prepared(pipe: Any) -> None:
            said = pipe.hget(self._own + "generations", generation)
            pipe.multi()
            if said is not None:
                known = from_fields(json.loads(said))
                if not is_to_grow(known, declared, f"{self.address}: generation {generation} of view {self.view}"):
                    return
            else:
                pipe.unlink(*self._keys(generation))
            pipe.hset(self._own + "generations", generation, json.dumps(to_fields(declared)))

        self._transaction(prepared, "generations")

    def apply(self, generation: int, stretch: Stretch, *, before: Ends, show: bool = False) -> None:
        commands: list[tuple[str, list[Any]]] | None = None

        def applied(pipe: Any) -> None:
            nonlocal commands
            said = pipe.hget(self._own + "generations", generation)
            if said is None:
                raise AnotherApplier(f"generation {generation} of view {self.view} is gone from {self.address}")
            stored = _place(generation, pipe.hgetall(self._own + f"v{generation}:place"))
            place = moved(stored, stretch, before, view=self.view)
            shown = pipe.get(self._own + "shown")
            if commands is None:
                commands = list(self._commands(generation, from_fields(json.loads(said)), stretch))
            pipe.multi()
            for name, arguments in commands:
                pipe.execute_command(name, *arguments)
            if fields := _place_fields(place):
                pipe.hset(self._own + f"v{generation}:place", mapping=fields)
            if show and is_to_show(generation, None if shown is None else int(shown)):
                pipe.set(self._own + "shown", generation)

        self._transaction(applied, "generations", f"v{generation}:place", *(["shown"] if show else []))

    def _commands(self, generation: int, declared: Declaration, stretch: Stretch) -> Iterator[tuple[str, list[Any]]]:
        encode = encoder(declared)
        rows_key, keys_key = self._own + f"v{generation}:rows", self._own + f"v{generation}:keys"
        latest = stretch.latest().items()
        rows = ((encode(key), change.after) for key, change in latest if change.after is not None)
        while chunk := list(islice(rows, CHUNK)):
            yield "HSET", [rows_key, *(part for key, row in chunk for part in (key, _text(declared, row)))]
            yield "ZADD", [keys_key, *(part for key, _ in chunk for part in (0, key))]
        gone = (encode(key) for key, change in latest if change.after is None)
        while some := list(islice(gone, CHUNK)):
            yield "HDEL", [rows_key, *some]
            yield "ZREM", [keys_key, *some]

    def forget(self, generation: int) -> None:
        def forgotten(pipe: Any) -> None:
            shown = pipe.get(self._own + "shown")
            if shown is not None and int(shown) == generation:
                raise UsageError(f"generation {generation} of view {self.view} is shown by {self.address}")
            pipe.multi()
            pipe.hdel(self._own + "generations", generation)
            pipe.unlink(*self._keys(generation))

        self._transaction(forgotten, "shown", "generations", f"v{generation}:place")

    def _keys(self, generation: int) -> list[str]:
        return [self._own + f"v{generation}:{one}" for one in ("place", "rows", "keys")]

    def _transaction(self, change: Callable[[Any], None], *watched: str) -> None:
        """Asked again as long as somebody else changes what is watched: `change` compares."""
        import redis

        with self._told(), self._redis.pipeline() as pipe:
            for _ in range(TRIES):
                try:
                    pipe.watch(*(self._own + one for one in watched))
                    change(pipe)
                    pipe.execute()
                    return
                except redis.WatchError as error:
                    # The library says so, too, when the connection broke: it may have been after EXEC was done, and
                    # what was compared again would look like another applier's.
                    if isinstance(error.__context__, redis.ConnectionError | redis.TimeoutError):
                        raise error.__context__ from None
                finally:
                    pipe.reset()
        raise AnotherApplier(f"view {self.view}: others have written to {self.address} {TRIES} times meanwhile")

    # What readers do --------------------------------------------------------------------------------------------------

    def place(self, generation: int) -> Place | None:
        with self._told(), self._redis.pipeline() as pipe:
            pipe.hexists(self._own + "generations", generation)
            pipe.hgetall(self._own + f"v{generation}:place")
            there, fields = pipe.execute()
        return _place(generation, fields) if there else None

    def shown(self) -> int | None:
        with self._told():
            found = self._redis.get(self._own + "shown")
        return None if found is None else int(found)

    def generations(self) -> Mapping[int, Declaration]:
        with self._told():
            found = self._redis.hgetall(self._own + "generations")
        return {number: from_fields(json.loads(found[b"%d" % number])) for number in sorted(map(int, found))}

    def get(self, key: Key) -> tuple[Row | None, Place]:
        declared = self._ask("page", b"", 0).declared
        answer = self._ask("get", encoder(declared)(key), 1)
        if answer.declared.columns[: len(declared.key)] != declared.columns[: len(declared.key)]:
            return self.get(key)  # a switch came between
        return (answer.rows[0][1] if answer.rows else None), answer.place

    def read(self, ask: Ask) -> Page:
        refuse_match(ask, "a Redis store")
        for _ in range(TRIES):
            first = self._ask("page", b"", 0)
            asked: list[RedisAnswer] = []

            def following(
                after: bytes | None, count: int, first: RedisAnswer = first, asked: list[RedisAnswer] = asked
            ) -> Sequence[tuple[bytes, Row]]:
                answer = self._ask("page" if after is None else "behind", after or b"", count)
                # The first chunk says which instant it is, if only the columns are those that were asked by.
                if answer.declared != first.declared or (asked and answer.place != asked[0].place):
                    raise Moved
                asked.append(answer._replace(rows=()))
                return answer.rows

            try:
                page = fill(first.declared, ask, first.place, following)
            except Moved:
                continue
            return page._replace(place=asked[0].place)
        raise StorageError(f"view {self.view} was switched {TRIES} times while {self.address} was asked; try again")

    def _ask(self, what: str, key: bytes, count: int) -> RedisAnswer:
        with self._told():
            found = self._redis.eval(
                READ, 2, self._own + "shown", self._own + "generations", self._own, what, key, count
            )
        if found is None:
            raise NotShown(f"view {self.view} is not shown by {self.address} yet; its applier is building it")
        shown, said, place, keys, *rows = found
        declared = self._read_declared(said)
        if what == "get":
            keys, rows = ([key], [[keys]]) if keys is not None else ([], [[]])
        pairs = zip(keys, rows[0], strict=True)
        fields = dict(zip(place[::2], place[1::2], strict=True))
        return RedisAnswer(declared, _place(int(shown), fields), [(one, _row(declared, text)) for one, text in pairs])

    def _read_declared(self, said: bytes) -> Declaration:
        if self._declared is None or self._declared[0] != said:
            self._declared = said, from_fields(json.loads(said))
        return self._declared[1]

    @contextmanager
    def _told(self) -> Iterator[None]:
        import redis

        try:
            yield
        except TidelogError:
            raise
        except redis.AuthenticationError as error:
            raise UsageError(f"{self.address} does not take this password: {error}") from None
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise Disconnected(f"{self.address}: {error}") from None
        except redis.RedisError as error:
            raise StorageError(f"{self.address}: {error}") from None


def _place_fields(place: Place) -> dict[str, Any]:
    fields: dict[str, Any] = {f"{at.topic}:{at.partition}": end for at, end in place.ends.items()}
    mark = mark_to_text(place.mark)
    return fields if mark is None else fields | {MARK: mark}


def _place(generation: int, fields: Mapping[bytes, bytes]) -> Place:
    said = {name.decode(): value.decode() for name, value in fields.items()}
    mark = mark_from_text(said.pop(MARK, None))
    split = {name.rpartition(":")[::2]: int(end) for name, end in said.items()}
    return Place(generation, {TopicPartition(topic, int(index)): end for (topic, index), end in split.items()}, mark)


def _text(declared: Declaration, row: Row) -> str:
    return json.dumps(row_to_json(declared, row), separators=(",", ":"))


def _row(declared: Declaration, text: bytes) -> Row:
    said = json.loads(text)
    return {name: from_json(kind, said.get(name)) for name, kind in declared.columns}
