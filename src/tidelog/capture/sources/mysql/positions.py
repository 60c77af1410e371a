"""Where a reader of the binlog is: GTIDs, with file and offset for people and for a source without GTIDs.

    {"gtid": "0-1-42", "file": "binlog.000003", "pos": 1234}

MariaDB has the last transaction of each domain (domain-server-number); MySQL has sets of what was executed
(uuid:1-42). Without GTIDs, which only MySQL may lack, `gtid` is null and file and offset say it all.
"""

from __future__ import annotations

from typing import Protocol

from tidelog.capture.change import Position
from tidelog.errors import UsageError


class Gtids(Protocol):
    def add(self, gtid: str) -> None: ...

    def covers(self, other: str) -> bool:
        """Everything of `other` is in here."""

    def text(self) -> str: ...


class MariaDbGtids:
    def __init__(self, text: str) -> None:
        self._last = _by_domain(text)

    def add(self, gtid: str) -> None:
        domain, server, number = (int(word) for word in gtid.split("-"))
        self._last[domain] = (server, number)

    def covers(self, other: str) -> bool:
        return all(self._last.get(domain, (0, 0))[1] >= number for domain, (_, number) in _by_domain(other).items())

    def text(self) -> str:
        return ",".join(f"{domain}-{server}-{number}" for domain, (server, number) in sorted(self._last.items()))


class MySqlGtids:
    def __init__(self, text: str) -> None:
        from pymysqlreplication.gtid import Gtid, GtidSet

        self._gtid = Gtid
        self.set = GtidSet(text.replace("\n", ""))

    def add(self, gtid: str) -> None:
        self.set = self.set + self._gtid(gtid)

    def covers(self, other: str) -> bool:
        asked = MySqlGtids(other).set
        return all(gtid in self.set for gtid in asked.gtids)

    def text(self) -> str:
        return str(self.set)


def gtids(text: str, mariadb: bool) -> Gtids:
    return MariaDbGtids(text) if mariadb else MySqlGtids(text)


def position(gtid: str | None, file: str, pos: int) -> Position:
    return {"gtid": gtid, "file": file, "pos": pos}


def _by_domain(text: str) -> dict[int, tuple[int, int]]:
    last = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        try:
            domain, server, number = (int(digits) for digits in word.split("-"))
        except ValueError:
            raise UsageError(f"{word!r} is not a GTID of MariaDB, which looks like 0-1-42") from None
        last[domain] = (server, number)
    return last
