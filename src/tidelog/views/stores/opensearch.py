"""Views in OpenSearch: `opensearch+http://[USER:${PASSWORD}@]HOST:9200/?prefix=NAME`, and opensearch+https://.

    PREFIX.VIEW           an alias: what is shown. It leaves out rows that are gone
    PREFIX.VIEW.v3        an index: the rows of one generation, and its declaration in the mapping's `_meta`
    PREFIX_places         an index: one document for each generation, with its ends and its mark

A document is a row as in JSON (`opensearch_rows.py` has names and types), with its key's bytes in `_tidelog_key`.

Rules. OpenSearch has no transactions; order and versions stand in for them:
- `apply` reads the place and compares; writes the rows; refreshes the index; moves the alias if asked; and writes the
  place last, on the very document that it had read (`if_seq_no`). Who is killed in between is followed by one who does
  it all again, with the same result.
- A row's version is its offset plus 1 (`external_gte`): a key is in one partition, so an older change never replaces a
  newer one, whoever writes it and however late. A row that is gone stays as a document that says so, for the feed
  horizon, since an index forgets the versions of what is deleted.
- The alias is moved only from the index that had it when the place was read. Where none had it, two may come to have
  it for a moment, if one applier was stopped before it showed an older generation; `shown` is the later one. If that
  one is killed in that moment, who opens or purges next takes the older one away.
- The index is of one shard and refreshed by the applier alone, so that searches see a micro-batch whole. Part of one
  can be seen after a crash, until it is applied again, and while replicas refresh one after the other. Who asks
  OpenSearch itself for a document by its id sees it at once; `get` does not.
- The place that `read` gives was read before the rows: they are at it, or beyond.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from tidelog.control.marks import Ends
from tidelog.errors import AnotherApplier, Disconnected, NotShown, StorageError, TidelogError, UsageError
from tidelog.schema.declaration import Declaration, Key, Row
from tidelog.views.changes import Stretch
from tidelog.views.stores import opensearch_rows as rows
from tidelog.views.stores.key_order import encoder
from tidelog.views.stores.places import ends_from_text, ends_to_text, is_to_show, mark_from_text, mark_to_text, moved
from tidelog.views.stores.scanning import fill
from tidelog.views.stores.store import Ask, Page, Place, generation_of, is_to_grow

PREFIX_DEFAULT = "tidelog"
LEGAL = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")
TIMEOUT_S = 60
BULK_BYTES = 5_000_000
TRIES = 20
BUSY_S = 0.2  # between tries of a bulk that the node has no room for
PURGE_S = 3600.0
CONFLICT, BUSY = 409, 429
CLOSED = "index_closed_exception"  # 400 as well, and of the index


def connect(url: str, view: str) -> OpenSearchStore:
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    prefix = options.pop("prefix", PREFIX_DEFAULT)
    ca_certs = options.pop("ca_certs", None)
    if not parts.hostname or options or not LEGAL.issuperset(prefix) or not prefix[:1].isalnum():
        raise UsageError(
            "an OpenSearch store is opensearch+http://USER:${PASSWORD}@HOST:9200/?prefix=NAME, the name of small"
            " letters, digits, _ and -, and ca_certs=FILE if need be"
        )
    login = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    server: dict[str, Any] = {
        "hosts": [{"host": parts.hostname, "port": parts.port or 9200, "url_prefix": parts.path.strip("/")}],
        "use_ssl": parts.scheme.endswith("https"),
        "http_auth": login,
        "ca_certs": ca_certs,
        "timeout": TIMEOUT_S,
    }
    return OpenSearchStore(server, view, prefix=prefix)


class Found(NamedTuple):
    """A generation, and the document of its place as it was read."""

    declared: Declaration
    place: Place
    on: Mapping[str, Any]  # what the next write of the place demands


class OpenSearchStore:
    sees = (
        "whole micro-batches as a rule, since one refresh shows each; part of one after a crash, until it is applied"
        " again, and while replicas refresh"
    )
    alone = "it has no transactions, so what one applier left half written would be seen until others take it over"

    def __init__(self, server: Mapping[str, Any], view: str, *, prefix: str = PREFIX_DEFAULT) -> None:
        self.view = view
        self.address = f"opensearch://{server['hosts'][0]['host']}:{server['hosts'][0]['port']}"
        self._server = {name: value for name, value in server.items() if value is not None}
        # Names of indexes have no capitals, and a view's may differ by them alone.
        self._alias = f"{prefix}.{''.join(f'+{one.lower()}' if one.isupper() else one for one in view)}"
        self._places = f"{prefix}_places"
        self._opened: Any = None
        self._purged_at = time.monotonic()

    @property
    def _client(self) -> Any:
        if self._opened is None:
            from opensearchpy import OpenSearch

            self._opened = OpenSearch(**self._server)
        return self._opened

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    # What an applier does ---------------------------------------------------------------------------------------------

    def prepare(self, generation: int, declared: Declaration) -> None:
        with self._told() as client:
            self._leave_latest(self._pointed())  # who was to do so may have been killed before
            declared_there = self._declared(generation)
            if declared_there is None:
                client.indices.create(index=self._places, body=rows.PLACES, ignore=400)
                client.delete(index=self._places, id=self._id(generation), ignore=404)
                made = client.indices.create(index=self._index(generation), body=rows.index_of(declared), ignore=400)
                if "error" not in made:
                    return
                if made["error"]["type"] != "resource_already_exists_exception":
                    raise StorageError(f"{self.address}: {made['error'].get('reason')}")
                declared_there = self._declared(generation) or declared
            if is_to_grow(declared_there, declared, f"{self.address}: generation {generation} of view {self.view}"):
                client.indices.put_mapping(index=self._index(generation), body=rows.mapping_of(declared))

    def apply(self, generation: int, stretch: Stretch, *, before: Ends, show: bool = False) -> None:
        with self._told() as client:
            owners = self._pointed() if show else []
            found = self._find(generation)
            if found is None:
                raise AnotherApplier(f"generation {generation} of view {self.view} is gone from {self.address}")
            place = moved(found.place, stretch, before, view=self.view)
            if stretch.changes:
                self._write_rows(generation, found.declared, stretch)
                client.indices.refresh(index=self._index(generation))
            if show:
                self._point(owners, generation)
            for _ in range(TRIES):
                if self._write_place(place, found.on):
                    self._purge(generation, found.declared)
                    return
                found = self._find(generation)  # somebody else's share of the partitions, or another applier
                if found is None:
                    break
                place = moved(found.place, stretch, before, view=self.view)
        raise AnotherApplier(f"view {self.view}, generation {generation}: others write to {self.address}; stop them")

    def _write_rows(self, generation: int, declared: Declaration, stretch: Stretch) -> None:
        encode = encoder(declared)
        lines: list[str] = []
        size = 0
        for key, change in stretch.latest().items():
            pair = rows.lines_of(declared, encode(key), change)
            lines += pair
            size += sum(map(len, pair))
            if size > BULK_BYTES:
                self._bulk(generation, lines)
                lines, size = [], 0
        if lines:
            self._bulk(generation, lines)

    def _bulk(self, generation: int, lines: Sequence[str]) -> None:
        left = list(lines)
        for _ in range(TRIES):
            answer = self._client.bulk(
                body="\n".join(left) + "\n",
                index=self._index(generation),
                params={"filter_path": "errors,items.*.status,items.*.error", "require_alias": "false"},
            )
            if not answer.get("errors"):
                return
            told = [next(iter(item.values())) for item in answer["items"]]
            # A conflict is a row that is there already, as new as this or newer.
            bad = [one for one in told if "error" in one and one["status"] not in (CONFLICT, BUSY)]
            if bad:
                raise StorageError(f"{self.address}: {bad[0]['error'].get('reason')}")
            busy = [at for at, one in enumerate(told) if one["status"] == BUSY]
            if not busy:
                return
            left = [line for at in busy for line in left[2 * at : 2 * at + 2]]
            time.sleep(BUSY_S)
        raise StorageError(f"{self.address} has had no room for rows {TRIES} times; is it overloaded?")

    def _point(self, owners: Sequence[int], generation: int) -> None:
        """The alias, from the generation that had it. Where none had, nothing tells that another has got it since: then
        it is looked at afterwards, and the later of the two keeps it.
        """
        from opensearchpy.exceptions import NotFoundError

        if owners and not is_to_show(generation, owners[-1]):
            self._leave_latest(owners)
            return
        add = {"index": self._index(generation), "alias": self._alias, "filter": rows.NOT_GONE}
        actions = [{"remove": {"index": self._index(one), "alias": self._alias, "must_exist": True}} for one in owners]
        try:
            self._client.indices.update_aliases(body={"actions": [*actions, {"add": add}]})
        except NotFoundError as error:
            raise AnotherApplier(f"view {self.view}: somebody else has moved {self._alias}: {error.error}") from None
        self._leave_latest(self._pointed())

    def _leave_latest(self, pointed: Sequence[int]) -> None:
        """In one request, so that nobody searches two generations after it, nor none."""
        if older := pointed[:-1]:  # never shown again, so they may be taken away at any time
            here = [{"index": self._index(one), "alias": self._alias, "must_exist": False} for one in older]
            self._client.indices.update_aliases(body={"actions": [{"remove": one} for one in here]}, ignore=404)

    def _write_place(self, place: Place, on: Mapping[str, Any]) -> bool:
        said = {
            "view": self.view,
            "generation": place.generation,
            "ends": ends_to_text(place.ends),
            "mark": mark_to_text(place.mark),
        }
        answer = self._client.index(
            index=self._places, id=self._id(place.generation), body=said, params=dict(on), ignore=CONFLICT
        )
        return "error" not in answer

    def _purge(self, generation: int, declared: Declaration) -> None:
        """Documents of rows that are gone for longer than the feed horizon, and what points at older generations."""
        if time.monotonic() - self._purged_at < PURGE_S:
            return
        self._purged_at = time.monotonic()
        self._leave_latest(self._pointed())
        self._client.delete_by_query(
            index=self._index(generation),
            body={"query": rows.gone_before(int(time.time() * 1000) - declared.horizon_ms)},
            params={"conflicts": "proceed", "wait_for_completion": "false"},
        )

    def forget(self, generation: int) -> None:
        with self._told() as client:
            if self.shown() == generation:
                raise UsageError(f"generation {generation} of view {self.view} is shown by {self.address}")
            client.indices.delete(index=self._index(generation), ignore=404)
            client.delete(index=self._places, id=self._id(generation), ignore=404)

    # What readers do --------------------------------------------------------------------------------------------------

    def place(self, generation: int) -> Place | None:
        with self._told():
            found = self._find(generation)
        return None if found is None else found.place

    def shown(self) -> int | None:
        return next(reversed(self._pointed()), None)

    def _pointed(self) -> list[int]:
        """Generations that have the alias, the latest at the end: one, but for a moment after the first is shown."""
        with self._told() as client:
            found = client.indices.get_alias(name=self._alias, ignore=404)
        return sorted(self._numbers(found), key=lambda number: (generation_of(number), number))

    def generations(self) -> Mapping[int, Declaration]:
        with self._told() as client:
            found = client.indices.get(index=f"{self._alias}.v*", ignore=404, params={"allow_no_indices": "true"})
        return {number: rows.declared_in(found[self._index(number)]["mappings"]) for number in self._numbers(found)}

    def get(self, key: Key) -> tuple[Row | None, Place]:
        with self._told(asked=True) as client:
            found = self._shown()
            wanted = rows.id_of(encoder(found.declared)(key))
            answer = client.get(
                index=self._index(found.place.generation), id=wanted, params={"realtime": "false"}, ignore=404
            )
        source = answer.get("_source")
        there = source is not None and not source.get(rows.GONE)
        return (rows.row_in(found.declared, source) if there else None), found.place

    def read(self, ask: Ask) -> Page:
        with self._told(asked=True):
            found = self._shown()
            words = None if ask.match is None else rows.search_for(found.declared, ask.match)
            return fill(found.declared, ask, found.place, self._following(found, words))

    def _following(
        self, found: Found, words: Mapping[str, Any] | None
    ) -> Callable[[bytes | None, int], Sequence[tuple[bytes, Row]]]:
        def following(after: bytes | None, count: int) -> Sequence[tuple[bytes, Row]]:
            answer = self._client.search(
                index=self._index(found.place.generation), body=rows.page_behind(after, count, words)
            )
            sources = [hit["_source"] for hit in answer["hits"]["hits"]]
            return [(bytes.fromhex(one[rows.KEY]), rows.row_in(found.declared, one)) for one in sources]

        return following

    def _shown(self) -> Found:
        number = self.shown()
        found = None if number is None else self._find(number)
        if found is None:
            raise NotShown(f"view {self.view} is not shown by {self.address} yet; its applier is building it")
        return found

    # Documents --------------------------------------------------------------------------------------------------------

    def _index(self, generation: int) -> str:
        return f"{self._alias}.v{generation}"

    def _numbers(self, indexes: Iterable[str]) -> list[int]:
        """Of those that are this view's. Somebody else's may have its alias, or begin as they do."""
        ends = [one.removeprefix(f"{self._alias}.v") for one in indexes if one.startswith(f"{self._alias}.v")]
        return sorted(int(end) for end in ends if end.isascii() and end.isdigit())

    def _id(self, generation: int) -> str:
        return f"{self.view}.v{generation}"

    def _declared(self, generation: int) -> Declaration | None:
        found = self._client.indices.get_mapping(index=self._index(generation), ignore=404)
        index = found.get(self._index(generation))
        return None if index is None else rows.declared_in(index["mappings"])

    def _find(self, generation: int) -> Found | None:
        declared = self._declared(generation)
        if declared is None:
            return None
        document = self._client.get(index=self._places, id=self._id(generation), ignore=404)
        source = document.get("_source")
        if source is None:
            return Found(declared, Place(generation, {}, None), {"op_type": "create"})
        on = {"if_seq_no": document["_seq_no"], "if_primary_term": document["_primary_term"]}
        return Found(declared, Place(generation, ends_from_text(source["ends"]), mark_from_text(source["mark"])), on)

    @contextmanager
    def _told(self, *, asked: bool = False) -> Iterator[Any]:
        """`asked`: what is wrong is wrong with a reader's question. What an applier writes is tried again."""
        client = self._client
        from opensearchpy import exceptions

        try:
            yield client
        except TidelogError:
            raise
        except exceptions.ConnectionError as error:
            raise Disconnected(f"{self.address}: {error.info or error.error}") from None
        except (exceptions.AuthenticationException, exceptions.AuthorizationException) as error:
            raise UsageError(f"{self.address} does not let this user in: {error.status_code} {error.error}") from None
        except exceptions.RequestError as error:
            if asked and error.error != CLOSED:
                raise UsageError(f"{self.address} refuses: {error}") from None
            raise StorageError(f"{self.address}: {error}") from None
        except exceptions.OpenSearchException as error:
            raise StorageError(f"{self.address}: {error}") from None
