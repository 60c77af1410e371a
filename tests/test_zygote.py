"""A fork of the zygote is what a fresh interpreter would be: the same small programs are run by both."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import zygote
import zygote_process
from against.apache_kafka import die_with_parent
from broker.test_embedded import is_running
from proving import proves
from tidelog.testing.broker import TestBroker

SECONDS = 120
PROBE = "zygote_probe"
PLAIN = {name: plain[0] for name, plain in zygote.PLAIN.items()} | {"cwd": None}

pytestmark = pytest.mark.skipif(not zygote.WANTED, reason="there are no forks: not on this machine, or not wanted")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a program can be put that forks run as they run ours."""
    monkeypatch.setattr(zygote, "PROGRAMS", [*zygote.PROGRAMS, PROBE])
    yield tmp_path
    zygote.use(True)


def line(folder: Path, program: str, *words: str) -> list[str]:
    (folder / f"{PROBE}.py").write_text(program)
    return [sys.executable, "-m", PROBE, *words]


def was_forked(pid: int) -> bool:
    return "zygote_process.py" in Path(f"/proc/{pid}/cmdline").read_text()


def by_both(folder: Path, program: str, *words: str, **options: Any) -> list[subprocess.CompletedProcess[str]]:
    """What a fork came to, and a real interpreter."""
    both = []
    for forks in (True, False):
        zygote.use(forks)
        asked = {"capture_output": True, "text": True, "timeout": SECONDS, "cwd": folder, **options}
        both.append(subprocess.run(line(folder, program, *words), **asked))
    return both


# The end --------------------------------------------------------------------------------------------------------------

ENDS = {
    "nothing is wrong": "print('done')",
    "an exit code": "import sys; sys.exit(3)",
    "an exit code beyond a byte": "import sys; sys.exit(258)",
    "an exit with words": "import sys; sys.exit('it went wrong')",
    "an exit without a code": "import sys; sys.exit(None)",
    "an exit at once": "import os; print('lost'); os._exit(7)",
    "an exception": "def fail():\n    raise ValueError('wrong')\nfail()",
    "a chain of exceptions": "try:\n    1 / 0\nexcept ArithmeticError as error:\n    raise OSError(2, '') from error",
    "an interrupt": "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)",
    "an interrupt that is caught": "import os, signal, sys, time\n"
    "try:\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    sys.exit(130)",
    "a signal": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)",
    "a kill": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "an abort": "import os, resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\nos.abort()",
    "hooks": "import atexit, sys\natexit.register(print, 'first')\natexit.register(print, 'second')\nsys.exit(4)",
    "a hook that fails": "import atexit\natexit.register(lambda: 1 / 0)",
    "a thread that works on": "import threading, time\n"
    "threading.Thread(target=lambda: (time.sleep(0.1), print('worked'))).start()\nprint('main is done')",
    "a thread that is left": "import threading, time\n"
    "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nprint('main is done')",
    "a thread that fails": "import threading\nthread = threading.Thread(target=lambda: 1 / 0, name='t')\n"
    "thread.start()\nthread.join()",
    "destructors": "class Last:\n    def __del__(self):\n        print('gone')\nlast = Last()\nlast.itself = last",
    "a file that is not flushed": "import pathlib\nfile = pathlib.Path('left').open('w')\nfile.write('x')",
    "a module that is not there": "import nothing_of_that_name",
}


@proves("zygote")
@pytest.mark.parametrize("program", ENDS.values(), ids=ENDS)
def test_a_fork_ends_as_an_interpreter_does(folder: Path, program: str) -> None:
    forked, real = by_both(folder, program)
    assert (forked.returncode, forked.stdout) == (real.returncode, real.stdout)
    assert without_places(forked.stderr) == without_places(real.stderr)


def without_places(said: str) -> str:
    """Without addresses in memory, and without the frame that the zygote has above those of a program."""
    frame = r'  File "[^"]*zygote_process\.py", line \d+, in <module>\n    .*\n(    [\^~ ]+\n)?'
    return re.sub("0x[0-9a-f]+", "0x", re.sub(frame, "", said))


@proves("zygote")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_nobody_reads_has_the_same_exit_code(folder: Path, unbuffered: str) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with os.fdopen(writes, "wb") as nobody:
        outputs = {"stdout": nobody, "stderr": subprocess.PIPE, "capture_output": False, "env": environment}
        forked, real = by_both(folder, "print('words')", **outputs)
    assert forked.returncode == real.returncode == (1 if unbuffered else 120)
    assert "BrokenPipeError" in forked.stderr and "BrokenPipeError" in real.stderr


# The start ------------------------------------------------------------------------------------------------------------

STATE = """
import gc, json, locale, os, resource, signal, sys, threading, time
os.umask(umask := os.umask(0))
def about(stream):
    binary = stream.buffer
    return [stream.name, stream.mode, stream.encoding, stream.errors, stream.line_buffering, stream.write_through,
            stream.isatty(), stream.fileno(), stream.newlines, type(binary).__name__, binary.name, binary.mode]
print(json.dumps({
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "executable": sys.executable, "prefix": sys.prefix,
    "cwd": os.getcwd(), "environment": dict(os.environ), "time zone": time.tzname, "umask": umask,
    "name": [__name__, __spec__.name, __package__, __file__], "globals": sorted(globals()),
    "main": sys.modules["__main__"].__dict__ is globals(),
    "flags": list(sys.flags),
    "streams": [about(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)],
    "same streams": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
    "signals": [str(signal.getsignal(one)).partition(" at ")[0] for one in sorted(signal.valid_signals())],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "descriptors": os.listdir("/proc/self/fd"),
    "limits": [resource.getrlimit(one) for one in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_AS)],
    "threads": [one.name for one in threading.enumerate()],
    "thread ids": [threading.get_native_id() == os.getpid(), threading.main_thread() is threading.current_thread()],
    "parent": os.getppid(), "leads": [os.getpgid(0) == os.getpid(), os.getsid(0) == os.getpid()],
    "session": os.getsid(0) if os.getsid(0) != os.getpid() else None,
    "locale": locale.setlocale(locale.LC_CTYPE), "gc": [gc.isenabled(), gc.get_threshold()],
    "warnings": sys.warnoptions, "hook": sys.excepthook is sys.__excepthook__,
    "read": sys.stdin.read(),
}))
"""


@proves("zygote")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"process_group": 0},
        {"start_new_session": True},
        {"preexec_fn": die_with_parent},
        {"env": {"ONLY": "this \udcff", "TZ": "Asia/Tokyo"}},
        {"env": {"PYTHONUNBUFFERED": "1"}},
    ],
    ids=["plainly", "in a group", "in a session", "dying with its parent", "elsewhere", "without buffers"],
)
def test_a_fork_begins_as_an_interpreter_does(folder: Path, options: dict[str, Any]) -> None:
    kept = {name: value for name, value in os.environ.items() if name.startswith(zygote.AT_START)}
    kept.pop("PYTHONUNBUFFERED", None)
    options = {**options, "env": {**kept, **options.get("env", os.environ)}}
    forked, real = by_both(folder, STATE, "a word", "", "--flag", input="some\r\nlines\n", **options)
    assert (forked.returncode, forked.stderr) == (real.returncode, real.stderr) == (0, "")
    assert json.loads(forked.stdout) == json.loads(real.stdout)


@proves("zygote")
def test_two_forks_draw_no_numbers_alike(folder: Path) -> None:
    draws = "import random, secrets, tempfile, uuid\n"
    draws += "print(random.random(), secrets.token_hex(), uuid.uuid4(), tempfile.mktemp())"
    drawn = [subprocess.run(line(folder, draws), cwd=folder, capture_output=True, text=True) for _ in range(2)]
    first, second = (one.stdout.split() for one in drawn)
    assert len(first) == 4 and not set(first) & set(second)


@proves("zygote")
def test_a_folder_that_is_not_there_is_refused_as_ever(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        subprocess.Popen(line(folder, ""), cwd=folder / "nowhere")


# Between --------------------------------------------------------------------------------------------------------------


@proves("zygote")
def test_a_fork_reads_writes_and_is_signalled(folder: Path) -> None:
    echo = "import sys\nfor text in sys.stdin:\n    print(text.upper(), end='', flush=True)\n"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": folder}
    with subprocess.Popen(line(folder, echo), **pipes) as process:
        assert process.stdin is not None and process.stdout is not None
        assert was_forked(process.pid)
        process.stdin.write("one\n")
        process.stdin.flush()
        assert (process.stdout.readline(), process.poll()) == ("ONE\n", None)
        large = "two\n" * 100_000
        assert process.communicate(large, timeout=SECONDS)[0] == large.upper()
    assert process.returncode == 0
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT):
        with subprocess.Popen(line(folder, echo), stderr=subprocess.PIPE, **pipes) as process:
            process.send_signal(number)
            assert process.wait(SECONDS) == -number
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(line(folder, "import time; time.sleep(60)"), cwd=folder, timeout=0.1)


@proves("zygote")
def test_forks_and_zygote_die_with_their_parent(folder: Path) -> None:
    sleep = line(folder, "import time; print(flush=True); time.sleep(600)")
    program = f"""
import subprocess, sys, time
sys.path.insert(0, {str(zygote.ZYGOTE.parent)!r})
import zygote
from against.apache_kafka import die_with_parent
zygote.PROGRAMS.append({PROBE!r})
zygote.install()
one = subprocess.Popen({sleep!r}, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
one.stdout.readline()
print(one.pid, zygote._zygote.process.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=folder) as parent:
        assert parent.stdout is not None
        below = [int(word) for word in parent.stdout.readline().split()]
        assert len(below) == 2 and all(was_forked(pid) and is_running(pid) for pid in below)
        parent.kill()
    deadline = time.monotonic() + SECONDS
    while any(map(is_running, below)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(is_running, below))


@proves("zygote")
def test_a_zygote_that_was_killed_is_started_anew(folder: Path) -> None:
    say = line(folder, "input(); print('said')")
    asked: dict[str, Any] = {"cwd": folder, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    for _ in range(2):
        with subprocess.Popen(say, **asked) as process:
            assert was_forked(process.pid)
            assert zygote._zygote is not None and zygote._zygote.process.poll() is None
            zygote._zygote.process.kill()
            zygote._zygote.process.wait()
            assert process.communicate(b"\n", timeout=SECONDS) == (b"said\n", None), "its forks go on"


@proves("zygote")
def test_threads_may_start_forks_side_by_side(folder: Path) -> None:
    say = line(folder, "import sys; print(sys.argv[1])")
    said: list[bytes] = []

    def run(number: int) -> None:
        said.append(subprocess.run([*say, str(number)], cwd=folder, capture_output=True).stdout)

    subprocess.run(say, cwd=folder, capture_output=True)
    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == [b"%d\n" % number for number in range(8)]


@proves("zygote")
def test_nothing_is_forked_where_a_thread_runs() -> None:
    ends = threading.Event()
    beside = threading.Thread(target=ends.wait)
    beside.start()
    try:
        with pytest.raises(AssertionError, match="threads run here"):
            zygote_process._check_alone()
    finally:
        ends.set()
        beside.join()


# Which are forked -----------------------------------------------------------------------------------------------------


@proves("zygote")
def test_a_broker_of_a_test_is_forked(tidelog_broker: TestBroker) -> None:
    assert was_forked(tidelog_broker.pid)


@proves("zygote")
@pytest.mark.real_interpreter
def test_a_broker_of_a_test_that_asks_for_it_has_a_real_interpreter(tidelog_broker: TestBroker) -> None:
    assert not was_forked(tidelog_broker.pid)


@proves("zygote")
@pytest.mark.parametrize(
    ("words", "options", "environment", "expected"),
    [
        (["-m", "tidelog", "topics"], {}, {}, True),
        (["-m", "tidelog.broker.child"], {"cwd": "/"}, {}, True),
        (["-m", "tidelog"], {"preexec_fn": die_with_parent}, {}, True),
        (["-m", "tidelog"], {}, {b"PYTHONUNBUFFERED": b"1", b"TZ": b"UTC", b"TIDELOG_DEBUG": b"1"}, True),
        (["-m"], {}, {}, False),
        (["-m", "json.tool"], {}, {}, False),
        (["-c", "import tidelog"], {}, {}, False),
        (["-X", "importtime", "-m", "tidelog"], {}, {}, False),
        (["-m", Path("tidelog")], {}, {}, False),
        (["-m", "tidelog"], {"preexec_fn": print}, {}, False),
        (["-m", "tidelog"], {"pass_fds": (5,)}, {}, False),
        (["-m", "tidelog"], {"close_fds": False}, {}, False),
        (["-m", "tidelog"], {"uid": 1}, {}, False),
        (["-m", "tidelog"], {"umask": 0o77}, {}, False),
        (["-m", "tidelog"], {"shell": True}, {}, False),
        (["-m", "tidelog"], {"executable": "/bin/true"}, {}, False),
        (["-m", "tidelog"], {"cwd": "/not/there"}, {}, False),
        (["-m", "tidelog"], {}, {b"LD_PRELOAD": b"clock.so"}, False),
        (["-m", "tidelog"], {}, {b"PYTHONIOENCODING": b"ascii"}, False),
        (["-m", "tidelog"], {}, {b"LC_ALL": b"C"}, False),
    ],
)
def test_what_only_an_interpreter_can_do_is_left_to_it(
    words: list[Any], options: dict[str, Any], environment: dict[bytes, bytes], expected: bool
) -> None:
    start = {**PLAIN, "args": [sys.executable, *words], **options}
    assert zygote.is_forkable(start, environment, {}) is expected


@proves("zygote")
def test_what_a_test_adds_to_the_environment_is_not_the_zygotes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zygote, "_zygote", None)
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    monkeypatch.setenv("TIDELOG_OF_ONE_TEST", "1")
    shows = line(folder, "import os, sys; print(sys.warnoptions, os.environ['TIDELOG_OF_ONE_TEST'])")
    assert subprocess.run(shows, cwd=folder, capture_output=True).stdout == b"['error'] 1\n"
    assert zygote._zygote is None, "none was started for an environment that no other test has"


@proves("zygote")
def test_a_signal_that_is_ignored_here_is_ignored_there(folder: Path) -> None:
    shows = line(folder, "import signal; print(signal.getsignal(signal.SIGTERM).name)")
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        ran = subprocess.run(shows, cwd=folder, capture_output=True, text=True)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ran.stdout == "SIG_IGN\n"
