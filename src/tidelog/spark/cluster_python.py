"""Which Python runs our code on a cluster: in the driver's own workers, and in those of executors.

Spark has one name for both, `SparkContext.pythonExec`. By it the driver's JVM starts the workers that plan a source and
commit a sink, and each executor starts those that read and write. Who starts one looks the name up on its own machine.

    the name                     on the driver                        on an executor
    python3 (nothing is set)     this interpreter: its folder comes   the first python3 on its PATH
                                 first on the PATH of the JVM
    PYSPARK_PYTHON, or the       the same path here                   the same path there
    setting spark.pyspark.python

Rules:
- The setting wins over the variable, as it does under spark-submit. PySpark alone does not read it in a program.
- A Python that the driver cannot run, or that lacks Tidelog, is refused before a JVM is launched. What executors have
  is known only when a task runs there: `missing_in_a_worker` finds it in the text of the task's error.
- PYSPARK_DRIVER_PYTHON is this interpreter: by it, the JVM looks for packages with sources.
- A program that spark-submit started has chosen its Python already: nothing here applies.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tidelog.errors import ConfigError

VARIABLE, DRIVER_VARIABLE, SETTING = "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "spark.pyspark.python"
DEFAULT = "python3"  # PySpark's
ANSWER_S = 60
IMPORTS = "import pyspark, tidelog.spark"
MISSING = re.compile(r"ModuleNotFoundError: No module named '(tidelog|pyspark_tidelog|pyarrow)[.']")
INSTALL = (
    "install tidelog[spark] on every executor, in the Python that PYSPARK_PYTHON names (default: python3), or set"
    " PYSPARK_PYTHON to one that has it, at the same path on the driver and on all executors"
)


def launch_environment(settings: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What the JVM of a driver on a cluster is launched with; a Python that will not do here is refused."""
    named = settings.get(SETTING) or environment.get(VARIABLE)
    path = os.pathsep.join(filter(None, [str(Path(sys.executable).parent), environment.get("PATH", "")]))
    check_here(named or DEFAULT, path)
    return {"PATH": path, DRIVER_VARIABLE: sys.executable, **({VARIABLE: named} if named else {})}


def check_here(name: str, path: str) -> None:
    found = shutil.which(name, path=path)
    if found is not None and Path(found).absolute().parent == Path(sys.executable).parent:
        return
    if fault := _fault_of(found):
        raise ConfigError(
            f"Spark starts {name} on the driver and on executors, and on this machine it {fault}; set PYSPARK_PYTHON"
            " to a Python that has tidelog[spark], at the same path on the driver and on all executors"
        )


def _fault_of(python: str | None) -> str | None:
    if python is None:
        return "does not exist"
    try:
        ran = subprocess.run([python, "-c", IMPORTS], capture_output=True, text=True, timeout=ANSWER_S)
    except (OSError, subprocess.SubprocessError) as error:
        return f"cannot be run ({error})"
    return None if ran.returncode == 0 else f"cannot import Tidelog ({ran.stderr.strip().splitlines()[-1][:200]})"


def missing_in_a_worker(text: str) -> str | None:
    """What to say of an error that came through Spark; None where no module of ours is missing."""
    found = MISSING.search(text)
    return None if found is None else f"a Python worker of Spark does not have the module {found[1]}; {INSTALL}"
