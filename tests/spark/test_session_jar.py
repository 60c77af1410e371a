"""The jar of our session is the one that its sources give, byte for byte."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest

from proving import proves
from tidelog.spark.session import CHECKPOINT_JAR, FILE_CONTEXT, FILE_SYSTEM, SINK_MODES

SCRIPT = Path(__file__).parents[2] / "scripts" / "build_checkpoint_jar.py"


@proves("P1")
def test_the_jar_was_built_from_the_sources_beside_it() -> None:
    sources = sorted(CHECKPOINT_JAR.parent.glob("*.java"))
    with zipfile.ZipFile(CHECKPOINT_JAR) as jar:
        told = jar.read("META-INF/sources.sha256").decode()
        names = jar.namelist()
    assert told == sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    assert {f"{name.replace('.', '/')}.class" for name in (FILE_SYSTEM, FILE_CONTEXT, SINK_MODES)} <= set(names)


@pytest.mark.external
@proves("P1")
def test_building_it_again_gives_the_same_bytes() -> None:
    subprocess.run([sys.executable, SCRIPT, "--check"], check=True)
