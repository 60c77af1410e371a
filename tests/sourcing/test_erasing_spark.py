"""A person is erased, and Spark had the events: its checkpoint, local and temporary folders have nothing in clear."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from log.test_excising import files_with
from proving import proves
from sourcing.people import Enrol, Rename, people
from tidelog.sourcing import EventStore, SubjectCipher
from tidelog.sourcing.erasure.erasing import erase
from tidelog.sourcing.erasure.keys import SubjectKey
from tidelog.testing.broker import TestBroker

TESTS = Path(__file__).parent.parent
NAME = "Alice Liddell of Westminster"


@pytest.fixture
def spark() -> Iterator[Path]:
    """With a short name: sockets of Spark's workers are files in the temporary folder."""
    with tempfile.TemporaryDirectory(prefix="e-", dir="/tmp") as folder:
        yield Path(folder)


def run(bootstrap: str, folder: Path) -> None:
    for name in ("local", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    words = [sys.executable, str(TESTS / "sourcing" / "erasure_pipeline.py"), bootstrap, str(folder)]
    path = os.pathsep.join([str(TESTS), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(folder / "tmp")}
    environment.pop("SPARK_LOCAL_DIRS", None)
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]


@proves("E6", "es.20")
@pytest.mark.full
@pytest.mark.timeout(400)
def test_what_spark_wrote_has_the_person_encrypted_alone_and_unreadable_after_erasure(
    tidelog_broker: TestBroker, tmp_path: Path, spark: Path
) -> None:
    """Spark compresses what it keeps of state in a checkpoint, where no search for a text can find it. It has what the
    other folders have: what came out of the source.
    """
    cipher = SubjectCipher("people", f"sqlite:///{tmp_path}/keys.db", cache_s=0.1)
    with EventStore("people", people(), bootstrap=tidelog_broker.bootstrap, partitions=2, cipher=cipher) as store:
        for number in range(20):
            store.send(f"c{number}", Enrol(f"s{number}", NAME if number == 3 else "Bob", "g", "Gina"))
        store.send("c3", Rename("s3", NAME + " II"))
        key = cipher.keys.find("s3")
        assert isinstance(key, SubjectKey)
        run(tidelog_broker.bootstrap, spark)
        mark = f"1.{key.id}.".encode()
        with_it = {one.name for one in spark.iterdir() if one.is_dir() and files_with(one, mark)}
        assert {"local.copy", "sink"} <= with_it, "the encrypted text is there, and the search can find it"
        erase(tidelog_broker.cluster, ["people"], "s3", cipher.keys, reason="a request", settle_s=0.3)
    for text in (NAME, NAME.upper()):
        for folder in (tmp_path, spark, tidelog_broker.data):
            assert files_with(folder, text.encode()) == []
    for folder in (tmp_path, spark):
        assert files_with(folder, key.secret) == []
