"""A student is forgotten: the name is encrypted under a key of the student, and the key is destroyed.

    python examples/erasure.py

Needs `pip install 'tidelog[sourcing]'`. It starts a broker of its own.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import tidelog
from tidelog.sourcing import Decider, EventStore, Personal, SubjectCipher, erase


@dataclass(frozen=True)
class Enrol:
    student: str
    name: str


@dataclass(frozen=True)
class Enrolled:
    student: str
    name: Annotated[str, Personal("student")]  # under the key of the subject that `student` names


@dataclass(frozen=True)
class Course:
    seats: int = 0
    last: Annotated[str, Personal("student")] = ""
    student: str = ""


def decide(course: Course, command: Any, now: datetime) -> list[Any]:
    return [Enrolled(command.student, command.name)]


def apply(course: Course, event: Any) -> Course:
    return Course(course.seats + 1, event.name, event.student)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, tidelog.Broker(Path(folder) / "data") as broker:
        cipher = SubjectCipher("courses", f"sqlite:///{folder}/keys.db", cache_s=0.2)
        decider = Decider(Course(), decide, apply, commands=[Enrol], events=[Enrolled])
        with EventStore("courses", decider, bootstrap=broker.bootstrap, cipher=cipher) as store:
            store.send("maths", Enrol("s-1", "Alice Liddell"))
            store.send("maths", Enrol("s-2", "Bob"))
            print("before:", [event.name for _, events in store.history("maths") for event in events])
            with store.connect() as cluster:
                erase(cluster, ["courses"], "s-1", cipher.keys, reason="a request", settle_s=1.0)
            print("after: ", [event.name for _, events in store.history("maths") for event in events])
            print("seats: ", store.state("maths").state.seats)
        files = [path for path in Path(folder).rglob("*") if path.is_file() and b"Liddell" in path.read_bytes()]
        print("files with the name:", len(files))


if __name__ == "__main__":
    main()
