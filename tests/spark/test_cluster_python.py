"""Which Python runs Tidelog's code on a cluster. `local-cluster` has an executor in a process of its own, as a cluster
has, with what pip brings.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from contract import Broker
from proving import proves
from tidelog.client import Cluster, Producer, topics
from tidelog.errors import ConfigError
from tidelog.spark.cluster_python import launch_environment, missing_in_a_worker

HERE = Path(sys.executable).parent
PLAIN = {"PATH": "/usr/bin:/bin"}
LACKS = "#!/bin/sh\necho \"ModuleNotFoundError: No module named 'tidelog'\" >&2\nexit 1\n"
# The same path everywhere, and another Python on an executor, which Spark's worker starts with this variable.
ELSEWHERE = f'#!/bin/sh\n[ -n "$SPARK_LOG_URL_STDERR" ] && exec {{bare}} "$@"\nexec {sys.executable} "$@"\n'
APP = """
import tidelog

app = tidelog.App("shop")
app.stream("orders", value="id long")


@app.topic("big", key="id")
def big(orders):
    return orders.where("id > 2")
"""


def script(folder: Path, text: str, name: str = "python3") -> str:
    file = folder / name
    file.write_text(text)
    file.chmod(0o700)
    return str(file)


@proves("P1", "F1")
def test_the_drivers_own_workers_are_this_interpreter_where_no_python_is_named() -> None:
    found = launch_environment({}, PLAIN)
    assert found == {"PATH": f"{HERE}:/usr/bin:/bin", "PYSPARK_DRIVER_PYTHON": sys.executable}
    assert Path(shutil.which("python3", path=found["PATH"]) or "").parent == HERE


@proves("P1", "F1")
def test_a_python_that_the_user_names_is_the_one_of_executors_and_the_setting_wins(tmp_path: Path) -> None:
    ours, other = script(tmp_path, f'#!/bin/sh\nexec {sys.executable} "$@"\n'), script(tmp_path, LACKS, "other")
    assert launch_environment({}, PLAIN | {"PYSPARK_PYTHON": ours})["PYSPARK_PYTHON"] == ours
    both = launch_environment({"spark.pyspark.python": ours}, PLAIN | {"PYSPARK_PYTHON": other})
    assert both["PYSPARK_PYTHON"] == ours and both["PYSPARK_DRIVER_PYTHON"] == sys.executable


@proves("P1", "F1")
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (LACKS, r"cannot import Tidelog \(ModuleNotFoundError: No module named 'tidelog'\); set PYSPARK_PYTHON"),
        ("#!/no/such/shell\n", "cannot be run"),
        (None, "on this machine it does not exist; set PYSPARK_PYTHON to a Python that has"),
    ],
    ids=["lacks tidelog", "no program", "not there"],
)
def test_a_python_that_the_driver_cannot_use_is_refused_before_a_jvm_is_launched(
    tmp_path: Path, text: str | None, fault: str
) -> None:
    python = str(tmp_path / "nothing") if text is None else script(tmp_path, text)
    with pytest.raises(ConfigError, match=f"Spark starts {python} on the driver and on executors.*{fault}"):
        launch_environment({}, PLAIN | {"PYSPARK_PYTHON": python})


@proves("P1", "P3")
@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("org.apache.spark.SparkException: x\nModuleNotFoundError: No module named 'tidelog'\n", "tidelog"),
        ("ModuleNotFoundError: No module named 'tidelog.spark'", "tidelog"),
        ("ModuleNotFoundError: No module named 'pyarrow'", "pyarrow"),
        ("ModuleNotFoundError: No module named 'tidelog_of_mine'", None),
        ("ModuleNotFoundError: No module named 'prices'", None),
        ("ValueError: no module", None),
    ],
)
def test_a_module_that_a_worker_lacks_is_named_with_what_to_do(text: str, module: str | None) -> None:
    said = missing_in_a_worker(text)
    begins = f"a Python worker of Spark does not have the module {module}; install tidelog[spark] on every executor"
    assert said is None if module is None else said is not None and said.startswith(begins)


# --- an executor of its own -------------------------------------------------------------------------------------------


def run_app(folder: Path, broker: Broker, *words: str, more: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """`tidelog run` on a cluster, with another Python first on the PATH."""
    with Cluster(broker.bootstrap) as cluster, Producer(cluster) as producer:
        topics.create(cluster, "orders", partitions=1)
        for number in range(5):
            producer.send("orders", b'{"id": %d}' % number)
        producer.flush()
    (folder / "shop.py").write_text(APP)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    quiet = ("--set", "spark.ui.enabled=false", "--set", "spark.log.level=ERROR")
    cluster_of_one = ("--master", "local-cluster[1,1,1024]", "--bootstrap", broker.bootstrap)
    command = [sys.executable, "-m", "tidelog", "run", "shop.py", *cluster_of_one, *quiet, *words]
    environment |= {"PATH": f"{folder}:/usr/bin:/bin", "SPARK_LOCAL_IP": "127.0.0.1", **more}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=400)


@proves("P1", "F1")
@pytest.mark.timeout(500)
@pytest.mark.full
@pytest.mark.story
def test_an_app_runs_on_a_cluster_without_a_python_that_is_named(tmp_path: Path, tidelog_broker: Broker) -> None:
    """The first python3 on the PATH has no Tidelog: the driver must not plan by it."""
    script(tmp_path, LACKS)
    ran = run_app(tmp_path, tidelog_broker, "--batch", "--show", "--json", more={})
    assert ran.returncode == 0, ran.stderr
    assert '"id":3' in ran.stdout.replace(" ", "") and '"id":4' in ran.stdout.replace(" ", "")


@proves("P1", "P3")
@pytest.mark.timeout(500)
@pytest.mark.full
def test_an_executor_without_tidelog_ends_the_run_and_it_says_what_to_do(
    tmp_path: Path, tidelog_broker: Broker
) -> None:
    """A fault for good: to start the query again would bring no module."""
    bare = getattr(sys, "_base_executable", sys.executable)
    if bare == sys.executable:
        pytest.skip("Tidelog is not in a virtual environment here, so no Python without it is known")
    python = script(tmp_path, ELSEWHERE.format(bare=bare), "python")
    ran = run_app(tmp_path, tidelog_broker, more={"PYSPARK_PYTHON": python})
    assert ran.returncode == 1, ran.stderr
    assert "ConfigError: a Python worker of Spark does not have the module" in ran.stderr, ran.stderr
    assert "internal fault" not in ran.stderr
