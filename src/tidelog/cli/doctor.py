"""`tidelog doctor`: what this machine has and lacks for a broker, each finding with what to do about it.

A check is a function that returns one `Finding`: `ok`, `warn` (it works, but) or `fail` (a broker would not start or
not keep its promise). Exit code 1 when something failed; warnings do not count. Nothing is changed, but a few
kilobytes are written and removed in the data folder.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tidelog.cli import options as command
from tidelog.cli.terminal import paint, show_json, size_text

if TYPE_CHECKING:
    import argparse

    from tidelog.client.address import Address

LEAST_PYTHON = (3, 11)
FILES_WANTED = 16384
FILES_NEEDED = 1024
ROOM_WANTED = 10_000_000_000
ROOM_NEEDED = 200_000_000
SYNCS_TRIED = 20
SYNC_BYTES = 4096
SLOW_SYNC_MS = 20.0
EARLIEST_CLOCK = 1_735_689_600  # 2025-01-01: a machine that believes in an earlier time has not set its clock
SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies")
OTHERS = 0o055  # a group's and everybody's rights to list a folder and to go into it
MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs")
NETWORK_FILE_SYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p")
COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}

EXAMPLES = """\
  tidelog doctor
  tidelog doctor --data /var/lib/tidelog --listen 0.0.0.0:9092
  tidelog doctor --json
"""


class Finding(NamedTuple):
    check: str
    state: str  # ok, warn, fail
    fact: str
    advice: str = ""


def parser() -> command.Parser:
    made = command.command_parser("doctor", "Check whether this machine can run a broker well.", EXAMPLES)
    made.add_argument(
        "--data", metavar="DIR", type=Path, default=Path("tidelog-data"), help="the data folder (default: tidelog-data)"
    )
    made.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default="127.0.0.1:9092",
        help="where a broker would listen (default: 127.0.0.1:9092)",
    )
    command.add_json(made)
    return made


def run(arguments: list[str]) -> int:
    from tidelog.client.address import parse_address

    options = command.parse(parser(), arguments)
    findings = examine(options.data, parse_address(options.listen))
    show(findings, options)
    return 1 if any(found.state == "fail" for found in findings) else 0


def examine(data: Path, listen: Address) -> list[Finding]:
    folder = nearest_folder(data)
    checks: list[Callable[[], Finding]] = [
        check_python,
        check_codec,
        lambda: check_port(listen),
        lambda: check_data_folder(data, folder),
        lambda: check_file_system(folder),
        lambda: check_room(folder),
        lambda: check_sync(folder),
        check_open_files,
        check_clock,
        check_java,
    ]
    return [check() for check in checks]


def show(findings: list[Finding], options: argparse.Namespace) -> None:
    if options.json:
        show_json([found._asdict() for found in findings])
        return
    for found in findings:
        print(f"{paint(found.state.ljust(4), COLOURS[found.state])}  {found.check.ljust(12)}  {found.fact}")
        if found.advice:
            print(f"{' ' * 20}{paint(found.advice, 'dim')}")


def nearest_folder(data: Path) -> Path:
    """The data folder, or the one that it would be made in."""
    here = data.absolute()
    while not here.is_dir() and here != here.parent:
        here = here.parent
    return here


def check_python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < LEAST_PYTHON:
        return Finding("python", "fail", f"Python {version}", "install Python 3.11 or later")
    return Finding("python", "ok", f"Python {version} at {sys.executable}")


def check_codec() -> Finding:
    try:
        from tidelog.record import _codec  # noqa: F401
    except ImportError:
        advice = "install a C compiler and reinstall tidelog: the pure-Python codec is some fifty times slower"
        return Finding("codec", "warn", "the compiled codec is not here; its pure-Python twin is used", advice)
    return Finding("codec", "ok", "compiled")


def check_port(listen: Address) -> Finding:
    import socket

    try:
        family, kind, protocol, _, place = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        return Finding(
            "port",
            "fail",
            f"{listen.host} is not an address of this machine: {error.strerror}",
            "name another with --listen",
        )
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(place)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return Finding("port", *port_holder(listen))
            return Finding("port", "fail", f"{listen} cannot be bound: {error.strerror}", "name another with --listen")
    return Finding("port", "ok", f"{listen} is free")


def port_holder(listen: Address) -> tuple[str, str, str]:
    """A broker that already runs there is a good sign; anything else in its place is not."""
    from tidelog.client.cluster import Cluster
    from tidelog.errors import TidelogError

    try:
        with Cluster(str(listen), client_id="tidelog-doctor", timeout_s=2.0) as cluster:
            kind = "Tidelog" if cluster.is_tidelog() else "a broker that is not Tidelog"
    except TidelogError:
        return (
            "fail",
            f"{listen} is taken, and not by a broker",
            "stop what listens there, or listen elsewhere with --listen",
        )
    return "ok", f"{kind} already runs on {listen}", ""


def check_data_folder(data: Path, folder: Path) -> Finding:
    if data.exists() and not data.is_dir():
        return Finding("data folder", "fail", f"{data} is not a folder", "name another with --data")
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding(
            "data folder",
            "fail",
            f"{folder} may not be written by user {os.getuid()}",
            "change its owner, or name another with --data",
        )
    above = data.absolute().parent
    if not above.is_dir():
        fact = f"{above} is missing, in which {data.name} would be made"
        return Finding("data folder", "fail", fact, "make it, or name another with --data")
    if not data.is_dir():
        return Finding("data folder", "ok", f"{data} would be made in {folder}")
    mode = data.stat().st_mode & 0o777
    if mode & OTHERS:
        fact = f"{data} is there, and other users of this machine can read it (mode {mode:04o})"
        return Finding("data folder", "warn", fact, f"records are in it as they were sent: chmod 700 {data}")
    return Finding("data folder", "ok", f"{data} is there")


def check_file_system(folder: Path) -> Finding:
    kind = file_system_of(folder)
    if kind in MEMORY_FILE_SYSTEMS:
        return Finding(
            "file system",
            "warn",
            f"{folder} is on {kind}, which is memory",
            "what is acked there is lost when the machine stops; choose a disk with --data",
        )
    if kind in NETWORK_FILE_SYSTEMS:
        return Finding(
            "file system",
            "warn",
            f"{folder} is on {kind}, over the network",
            "locks and syncs may not hold there; choose a local disk with --data",
        )
    return Finding("file system", "ok", kind or "unknown kind")


def file_system_of(folder: Path) -> str:
    """From the mounts of this process; empty where there is no /proc."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return ""
    above = {str(folder), *map(str, folder.parents)}
    holding = [mount for mount in mounts if mount[1].replace("\\040", " ") in above]
    return max(holding, key=lambda mount: len(mount[1]))[2] if holding else ""


def check_room(folder: Path) -> Finding:
    at = os.statvfs(folder)
    room = at.f_bavail * at.f_frsize
    fact = f"{size_text(room)} free of {size_text(at.f_blocks * at.f_frsize)}"
    if room < ROOM_NEEDED:
        return Finding(
            "disk room", "fail", fact, "free some, or name another disk with --data: producers would soon be refused"
        )
    if room < ROOM_WANTED:
        return Finding("disk room", "warn", fact, "set retention.bytes on large topics, or make room")
    return Finding("disk room", "ok", fact)


def check_sync(folder: Path) -> Finding:
    try:
        took = sorted(sync_times_ms(folder))
    except OSError as error:
        return Finding(
            "sync",
            "fail",
            f"a file in {folder} could not be synced: {error.strerror}",
            "every ack waits for a sync: choose another disk with --data",
        )
    middle, worst = took[len(took) // 2], took[-1]
    fact = f"{middle:.2f} ms for half of {SYNCS_TRIED} syncs, {worst:.2f} ms at worst"
    if middle > SLOW_SYNC_MS:
        return Finding(
            "sync",
            "warn",
            fact,
            "every ack waits for one: a faster disk, or tidelog.durability=memory for topics that may lose records",
        )
    return Finding("sync", "ok", fact)


def sync_times_ms(folder: Path) -> list[float]:
    sync = getattr(os, "fdatasync", os.fsync)
    path = folder / f".tidelog-doctor-{os.getpid()}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        took = []
        for _ in range(SYNCS_TRIED):
            os.write(descriptor, bytes(SYNC_BYTES))
            before = time.perf_counter()
            sync(descriptor)
            took.append((time.perf_counter() - before) * 1000)
        return took
    finally:
        os.close(descriptor)
        path.unlink()


def check_open_files() -> Finding:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = hard if hard != resource.RLIM_INFINITY else 1 << 30
    fact = f"{soft} at first, the broker may raise it to {'any number' if hard == resource.RLIM_INFINITY else hard}"
    if limit < FILES_NEEDED:
        return Finding("open files", "fail", fact, "raise it: `ulimit -Hn 65536`, or LimitNOFILE= in the service")
    if limit < FILES_WANTED:
        return Finding(
            "open files",
            "warn",
            fact,
            "enough for some thousand connections; `ulimit -Hn 65536` or LimitNOFILE= for more",
        )
    return Finding("open files", "ok", fact)


def check_clock() -> Finding:
    if time.time() < EARLIEST_CLOCK:
        return Finding(
            "clock", "fail", f"it says {time.strftime('%Y-%m-%d')}", "set it: records are stamped and kept by it"
        )
    source = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    name = source.read_text().strip() if source.exists() else ""
    if name in SLOW_CLOCKS:
        return Finding(
            "clock", "warn", f"read by {name}, which is slow", "boot with clocksource=tsc if the machine allows it"
        )
    if synchronised() is False:
        return Finding(
            "clock",
            "warn",
            "not synchronised with the network",
            "start chrony or systemd-timesyncd: times of records are compared with those of other machines",
        )
    return Finding("clock", "ok", "synchronised" if synchronised() else "set")


def synchronised() -> bool | None:
    """What the kernel says of its clock; None where it cannot be asked."""
    import ctypes

    not_synchronised = 0x40  # STA_UNSYNC
    status_at = 40  # struct timex on 64-bit Linux: modes, offset, freq, maxerror, esterror, status
    answer = ctypes.create_string_buffer(256)
    try:
        state = ctypes.CDLL(None).adjtimex(answer)
    except (OSError, AttributeError):
        return None
    if state < 0 or sys.platform != "linux" or ctypes.sizeof(ctypes.c_long) != 8:
        return None
    return not int.from_bytes(answer.raw[status_at : status_at + 4], sys.byteorder) & not_synchronised


def check_java(environment: Mapping[str, str] = os.environ) -> Finding:
    """The Java that a Spark session would take, which may be the one that came by pip."""
    from warnings import catch_warnings, simplefilter

    from tidelog.errors import ConfigError
    from tidelog.spark.java import OLDEST, find_java

    try:
        with catch_warnings():
            simplefilter("ignore")  # a JAVA_HOME that is too old matters only where nothing else is found
            java = find_java(environment=environment)
    except ConfigError:
        return Finding(
            "java",
            "warn",
            f"Java {OLDEST} or later is not installed",
            "only pipelines on Spark need it: pip install 'tidelog[spark]' brings one",
        )
    return Finding("java", "ok", f"Java {java.version} in {java.home}")
