"""Builds the jar of our Spark sessions from its Java sources, the same bytes each time: the file system of checkpoints,
a check of queries, the rows of a micro-batch, and what is left out of Hadoop's settings.

`scripts/build_checkpoint_jar.py` writes the jar beside the sources; with `--check` it only says whether the one there
is what they give. The entries are stored uncompressed, in order and without a date, so that the bytes depend on
the class files alone. javac 17 and 25 give the same ones for `--release 17`, the oldest Java that Spark 4 runs on, as
long as there is no lambda in the sources and strings are not joined by a bootstrap method: they number those otherwise.
Needs javac, and PySpark for the classes of Hadoop and Spark.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "src" / "tidelog" / "spark" / "checkpoint"
JAR = FOLDER / "checkpoint.jar"
RELEASE = "17"
SAME_BYTES = ("-proc:none", "-XDstringConcat=inline")
DIGEST = "META-INF/sources.sha256"
NEEDED = ("hadoop-client-api-*", "scala-library-*", "spark-*", "kryo-shaded-*", "jackson-databind-*", "jsr305-*")
NO_DATE = (1980, 1, 1, 0, 0, 0)


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the jar of the checkpoint file system.")
    parser.add_argument("--check", action="store_true", help="only compare the jar with what the source gives")
    parser.add_argument("--javac", default="javac")
    arguments = parser.parse_args()
    built = pack(compile_sources(arguments.javac))
    if not arguments.check:
        JAR.write_bytes(built)
        return 0
    if not JAR.is_file() or JAR.read_bytes() != built:
        print(f"{JAR} is not what the sources beside it give; run scripts/build_checkpoint_jar.py", file=sys.stderr)
        return 1
    return 0


def sources() -> list[Path]:
    return sorted(FOLDER.glob("*.java"))


def compile_sources(javac: str) -> dict[str, bytes]:
    """Class files by their path in the jar."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    classpath = ":".join(str(jar) for pattern in NEEDED for jar in sorted(jars.glob(pattern)))
    with tempfile.TemporaryDirectory() as folder:
        command = [javac, "--release", RELEASE, *SAME_BYTES, "-Xlint:all", "-Werror", "-classpath", classpath]
        subprocess.run([*command, "-d", folder, *sources()], check=True)
        return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*.class")}


def digest() -> str:
    """Of the sources: the tests ask for it where there is no javac."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources())).hexdigest()


def pack(classes: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as jar:
        for name, data in sorted((classes | {DIGEST: digest().encode()}).items()):
            jar.writestr(zipfile.ZipInfo(name, NO_DATE), data)
    return buffer.getvalue()


if __name__ == "__main__":
    sys.exit(main())
