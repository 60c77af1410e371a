"""`tidelog work`, as users write it: drained, killed, told to stop, and written wrongly."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.command import Command
from proving import proves
from tidelog import JobSender
from tidelog.client import Cluster, topics
from tidelog.testing.broker import TestBroker

MODULE = """
import time

def greet(job):
    print("hello", job.value.decode(), job.delivery_count, flush=True)

def stuck(job):
    print("stuck", flush=True)
    time.sleep(600)

def nothing():
    pass

def slow(job):
    print("begun", flush=True)
    time.sleep(1)
    print("ended", flush=True)
"""
Work = Callable[..., "subprocess.Popen[str]"]
QUEUE = ("--topic", "greetings", "--group", "greeters")


@pytest.fixture
def work(tidelog_broker: TestBroker, tmp_path: Path) -> Work:
    (tmp_path / "greeting.py").write_text(MODULE)
    with JobSender(tidelog_broker.bootstrap) as sender:
        sender.send("greetings", "Ada")
    command = Command(tidelog_broker.bootstrap)

    def start(function: str, *options: str) -> subprocess.Popen[str]:
        words = ("work", function, *QUEUE, *options)
        return command.start(*words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start


def line_of(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline()


@proves("T4")
def test_the_job_of_a_worker_that_is_killed_goes_to_another(work: Work) -> None:
    with work("greeting:stuck") as running:
        assert line_of(running) == "1 worker of greeters takes jobs from greetings\n"
        assert line_of(running) == "stuck\n"
        running.send_signal(signal.SIGKILL)
    with work("greeting:greet", "--drain") as running:
        out, err = running.communicate()
    assert (running.returncode, out.splitlines()[1:]) == (0, ["hello Ada 2"]), err


@proves("T4")
def test_a_command_that_is_told_to_stop_ends_its_job_first(work: Work) -> None:
    with work("greeting:slow") as running:
        assert [line_of(running), line_of(running)][1] == "begun\n"
        running.terminate()
        assert line_of(running) == "ended\n"
    assert running.returncode == 0
    with work("greeting:greet", "--drain", "--workers", "2") as running:
        out, err = running.communicate()
    assert out == "2 workers of greeters take jobs from greetings\n", err


@proves("T4")
@pytest.mark.parametrize(
    ("function", "why"),
    [
        ("greeting", "does not name a function; write MODULE:FUNCTION"),
        ("greeting:wave", "greeting has no function 'wave'"),
        ("greeting:nothing", "nothing() is to take one argument, a tidelog.Job"),
        ("no_such_module:greet", "'no_such_module'; a module is looked for in this folder"),
    ],
)
def test_a_function_that_is_not_there_is_refused(work: Work, function: str, why: str) -> None:
    with work(function) as running:
        _, err = running.communicate()
    assert running.returncode == 2 and why in err


@proves("T4")
def test_a_name_that_dead_letters_cannot_have_leaves_no_topic_behind(work: Work, tidelog_broker: TestBroker) -> None:
    with work("greeting:greet", "--drain", "--dead-letters", "mail.dead", "--backoff", "0") as running:
        _, err = running.communicate()
    assert running.returncode == 2 and "begins with 'dlq.', and 'mail.dead' does not; call it dlq.mail.dead" in err
    with Cluster(tidelog_broker.bootstrap) as cluster:
        assert "mail.dead" not in topics.names(cluster)
