"""`tidelog backup`, `verify` and `restore` as an operator runs them, beside a broker that goes on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cli.command import Command
from proving import proves
from tidelog.broker.embedded import Broker
from tidelog.cli.restore import show_restored

if TYPE_CHECKING:
    from tidelog.testing.broker import TestBroker


@proves("T6")
def test_a_running_broker_is_backed_up_and_comes_back_elsewhere(
    tidelog_broker: TestBroker, nowhere: Command, tmp_path: Path
) -> None:
    data, saved, new = str(tidelog_broker.data), str(tmp_path / "saved"), str(tmp_path / "new")
    tidelog_broker.create_topic("orders", partitions=2)
    tidelog_broker.produce("orders", ["a", "b", "c"], partition=1)
    taken = nowhere.ok("backup", saved, "--data", data)
    assert [line.split()[:5] for line in taken.lines if line.startswith("orders")] == [["orders", "1", "0", "3", "2"]]
    assert re.fullmatch(rf"{saved} is a backup as of [-0-9T:.]+Z: .* in \d+\.\d s", taken.lines[-1]), taken.out
    assert "is whole: " in nowhere.ok("verify", saved).out
    tidelog_broker.produce("orders", ["d"], partition=1)
    restored = nowhere.ok("restore", saved, "--data", new)
    assert restored.lines[-1].endswith(f"; tidelog up --data {new}")
    assert "add --set tidelog.retention.hold=true" in restored.lines[-2]
    with Broker(new) as again:
        tailed = Command(again.bootstrap).ok("tail", "orders", "--from", "earliest", "--values")
        assert tailed.lines == ["a", "b", "c"]
    assert len(tidelog_broker.records("orders")) == 4


@proves("T6")
def test_a_folder_that_was_set_aside_is_named_and_left_out_and_the_others_say_whose_they_are(
    tidelog_broker: TestBroker, nowhere: Command, tmp_path: Path
) -> None:
    data, saved, new = tidelog_broker.data, tmp_path / "saved", tmp_path / "new"
    tidelog_broker.produce("orders", ["a"])
    aside = data / f"{'ab' * 16}-3.orphaned"
    aside.mkdir()
    taken = nowhere.ok("backup", str(saved), "--data", str(data))
    assert f"not in the backup: 1 folder that the broker has set aside ({aside.name})" in taken.err
    assert not list(saved.rglob("*.orphaned"))
    assert nowhere.ok("backup", str(saved), "--data", str(data), "--json").json["left_out"] == [aside.name]
    nowhere.ok("restore", str(saved), "--data", str(new))
    assert b'"topic":"orders"' in b"".join(path.read_bytes() for path in new.glob("*/topic"))


@proves("T6")
def test_json_states_the_offsets_of_every_partition(
    tidelog_broker: TestBroker, nowhere: Command, tmp_path: Path
) -> None:
    data, saved = str(tidelog_broker.data), str(tmp_path / "saved")
    tidelog_broker.produce("orders", ["a", "b", "c"])
    taken = nowhere.ok("backup", saved, "--data", data, "--json").json
    (orders,) = [one for one in taken["partitions"] if one["topic"] == "orders"]
    assert (orders["partition"], orders["start"], orders["end"], orders["holes"]) == (0, 0, 3, [])
    assert taken["taken_over"] == 0 and taken["bytes"] > 0
    verified = nowhere.ok("verify", saved, "--json").json
    assert verified["faults"] == [] and verified["partitions"] == taken["partitions"]
    assert nowhere.ok("restore", saved, "--data", str(tmp_path / "new"), "--json").json["at_ms"] == taken["at_ms"]


@proves("T6")
def test_damage_is_exit_code_1_and_a_wrong_folder_is_said(
    tidelog_broker: TestBroker, nowhere: Command, tmp_path: Path
) -> None:
    data, saved = str(tidelog_broker.data), str(tmp_path / "saved")
    tidelog_broker.produce("orders", ["a", "b", "c"])
    nowhere.ok("backup", saved, "--data", data)
    manifest = json.loads(Path(saved, "manifest").read_bytes().splitlines()[0])
    (folder,) = [one["folder"] for one in manifest["partitions"] if one["topic"] == "orders"]
    (log,) = Path(saved, manifest["tree"], folder).glob("*.log")
    log.write_bytes(log.read_bytes()[:-1])
    damaged = nowhere("verify", saved)
    assert damaged.code == 1 and "is damaged; use another one" in damaged.out and log.name in damaged.out
    refused = nowhere("restore", saved, "--data", str(tmp_path / "new"))
    assert refused.code == 1 and "the backup is damaged" in refused.err
    assert nowhere("restore", saved).code == 2
    assert "is not a broker's data folder" in nowhere("backup", str(tmp_path / "x"), "--data", str(tmp_path)).err


@proves("T6")
def test_only_who_may_write_the_data_folder_may_ask_for_a_cut(tidelog_broker: TestBroker, tmp_path: Path) -> None:
    # Root may write everywhere, unless that right is taken from it.
    bound = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []
    backup = [sys.executable, "-m", "tidelog", "backup", str(tmp_path / "saved"), "--data", str(tidelog_broker.data)]
    tidelog_broker.data.chmod(0o500)
    try:
        refused = subprocess.run([*bound, *backup], capture_output=True, text=True)
    finally:
        tidelog_broker.data.chmod(0o755)
    assert refused.returncode == 1 and "permission denied" in refused.stderr


APP = """from tidelog import App

app = App("shop")
app.stream("orders", value="id long")


@app.view("all", key="id")
def all_orders(orders):
    return orders
"""


@proves("command_line", "P3")
def test_an_app_that_has_not_run_is_backed_up_and_options_of_apps_need_one(
    tidelog_broker: TestBroker, nowhere: Command, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    data, saved, app = str(tidelog_broker.data), str(tmp_path / "saved"), str(tmp_path / "shop.py")
    tidelog_broker.produce("orders", ["a"])
    refused = nowhere("backup", saved, "--data", data, "--checkpoints", str(tmp_path))
    assert refused.code == 2 and "add --app FILE" in refused.err
    ran = nowhere.ok("backup", saved, "--data", data, "--app", app, "--checkpoints", str(tmp_path / "none"))
    assert "app shop: no checkpoint yet\n" in ran.out
    alone = nowhere.ok("restore", saved, "--data", str(tmp_path / "alone"))
    assert "of app shop only the log is restored; --app-folder DIR restores checkpoints and stores too" in alone.out
    new = tmp_path / "new"
    whole = nowhere.ok("restore", saved, "--data", str(new / "data"), "--app-folder", str(new))
    assert f"app shop: tidelog run FILE --checkpoints {new}/tidelog-checkpoints\n" in whole.out


@proves("command_line", "P3")
def test_a_restore_says_which_store_is_read_until_the_app_has_run(capsys: pytest.CaptureFixture[str]) -> None:
    old, file = "sqlite:////srv/tidelog-views/shop.db", "tidelog-views/shop.db"
    app = {"name": "shop", "queries": [], "left_out": [], "store": file}
    about = {"apps": [app], "stores": [{"url": old, "views": ["revenue"], "file": file}]}
    found: Any = SimpleNamespace(apps=SimpleNamespace(about=about))
    show_restored(found, Namespace(app_folder="/new"))
    said = capsys.readouterr().out
    assert "--checkpoints /new/tidelog-checkpoints --store sqlite:////new/tidelog-views/shop.db" in said
    assert (
        f"until the app has run so, readers of the restored broker (tidelog views, tidelog sql, HTTP) open {old}"
        in said
    )
