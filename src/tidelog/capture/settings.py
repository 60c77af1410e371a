"""What a user says of a capture: one value, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.capture import topics
from tidelog.capture.converting import Converter
from tidelog.capture.envelope import EnvelopeOptions
from tidelog.capture.outbox import Outbox
from tidelog.capture.snapshotting import INITIAL, MODES
from tidelog.capture.sources.opening import KEEPER, module_of, scheme_of
from tidelog.capture.writing import Choices
from tidelog.control.captures import AVRO, DEBEZIUM, ENVELOPES, FORMATS, JSON, check_name
from tidelog.control.registry import registry_at
from tidelog.control.urls import without_secret
from tidelog.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSettings:
    url: str
    prefix: str
    name: str = ""  # the prefix, unless it is said
    tables: tuple[str, ...] = ("*",)
    method: str | None = None  # log or triggers; the first that there is for the database
    snapshot: str = INITIAL
    envelope: str = DEBEZIUM
    schemas: bool = False
    format: str = ""  # json, or with a registry avro; or json-schema
    registry: str | None = None  # the address of a schema registry
    registry_login: str | None = None  # the environment variable that has its USER:PASSWORD
    tombstones: bool = True
    exclude: tuple[str, ...] = ()  # "public.kv.secret"
    mask: tuple[str, ...] = ()
    partitions: int = 1
    compact: bool = False
    transactions: bool = False
    schema_changes: bool = False
    heartbeat_s: float = 0.0
    dead_letters: str | None = None
    outbox: str | None = None
    alarm_bytes: int = 10 << 30  # of log that the database keeps for us: above it, a warning
    accept_cascades: bool = False  # of MariaDB and MySQL: rows that foreign keys change are not told

    def __post_init__(self) -> None:
        module_of(scheme_of(without_secret(self.url, KEEPER)), self.method)
        if not self.prefix or topics.legal(self.prefix) != self.prefix:
            raise UsageError(f"{self.prefix!r} is not a prefix of topics; use letters, digits, '.', '_' and '-'")
        check_name(self.name or self.prefix)
        if self.snapshot not in MODES:
            raise UsageError(f"{self.snapshot!r} is not a way to take a snapshot; there are {', '.join(MODES)}")
        if self.envelope not in ENVELOPES:
            raise UsageError(f"{self.envelope!r} is not an envelope; there are {', '.join(ENVELOPES)}")
        self._check_format()
        if not self.tables:
            raise UsageError("no tables are named; say them as schema.table, with * for any")
        for column in self.hidden:
            if column.count(".") < 2:
                raise UsageError(f"{column!r} is not a column; write schema.table.column")

    @property
    def hidden(self) -> tuple[str, ...]:
        """Columns that nobody is to read."""
        return (*self.exclude, *self.mask)

    def _check_format(self) -> None:
        if self.written_as not in FORMATS:
            raise UsageError(f"{self.format!r} is not a format; there are {', '.join(FORMATS)}")
        if self.registry is None and self.written_as != JSON:
            raise UsageError(f"the format {self.format} needs a schema registry; name its address by registry=")
        if self.registry is None:
            return
        registry_at(self.registry, self.registry_login, named_by="registry_login")
        if self.written_as == JSON:
            raise UsageError("a registry is named, and plain JSON has no use for it; use avro or json-schema")
        if self.schemas:
            raise UsageError("with a registry, schemas stand there and not in every record; leave schemas out")

    @property
    def written_as(self) -> str:
        return self.format or (JSON if self.registry is None else AVRO)

    def converter(self) -> Converter | None:
        if self.registry is None:
            return None
        return Converter(registry_at(self.registry, self.registry_login), self.written_as)

    @property
    def source_url(self) -> str:
        """With what of these settings the source itself is told."""
        if not self.accept_cascades or scheme_of(self.url) not in ("mysql", "mariadb"):
            return self.url
        return f"{self.url}{'&' if '?' in self.url else '?'}accept_cascades=true"

    @property
    def known_as(self) -> str:
        return self.name or self.prefix

    def options(self) -> EnvelopeOptions:
        return EnvelopeOptions(
            self.prefix,
            self.envelope,
            self.schemas,
            self.tombstones,
            frozenset(self.exclude),
            frozenset(self.mask),
            self.written_as,
        )

    def choices(self) -> Choices:
        outbox = None if self.outbox is None else Outbox(self.outbox, f"{self.prefix}.{{}}")
        return Choices(self.known_as, self.transactions, self.schema_changes, self.dead_letters, outbox)

    def topic_settings(self) -> dict[str, str]:
        return {"cleanup.policy": "compact"} if self.compact else {}
