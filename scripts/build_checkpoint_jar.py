"""Builds the jar of the checkpoint file system from its Java source, the same bytes each time.

`scripts/build_checkpoint_jar.py` writes the jar beside the source; with `--check` it only says whether the one there
is what the source gives. The entries are stored uncompressed, in order and without a date, so that the bytes depend on
the class files alone; javac 17 and 25 give the same ones for `--release 17`, the oldest Java that Spark 4 runs on.
Needs javac, and PySpark for Hadoop's classes.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "src" / "tidelog" / "spark" / "checkpoint"
SOURCE = FOLDER / "SyncedFileSystem.java"
JAR = FOLDER / "checkpoint.jar"
RELEASE = "17"
NO_DATE = (1980, 1, 1, 0, 0, 0)


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the jar of the checkpoint file system.")
    parser.add_argument("--check", action="store_true", help="only compare the jar with what the source gives")
    parser.add_argument("--javac", default="javac")
    arguments = parser.parse_args()
    built = pack(compile_source(arguments.javac))
    if not arguments.check:
        JAR.write_bytes(built)
        return 0
    if not JAR.is_file() or JAR.read_bytes() != built:
        print(f"{JAR} is not what {SOURCE.name} gives; run scripts/build_checkpoint_jar.py", file=sys.stderr)
        return 1
    return 0


def compile_source(javac: str) -> dict[str, bytes]:
    """Class files by their path in the jar."""
    import pyspark

    hadoop = Path(pyspark.__file__).parent / "jars" / "hadoop-client-api-*"
    classpath = ":".join(map(str, hadoop.parent.glob(hadoop.name)))
    with tempfile.TemporaryDirectory() as folder:
        command = [javac, "--release", RELEASE, "-proc:none", "-Xlint:all", "-Werror", "-classpath", classpath]
        subprocess.run([*command, "-d", folder, SOURCE], check=True)
        return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*.class")}


def pack(classes: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as jar:
        for name in sorted(classes):
            jar.writestr(zipfile.ZipInfo(name, NO_DATE), classes[name])
    return buffer.getvalue()


if __name__ == "__main__":
    sys.exit(main())
