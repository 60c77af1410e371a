"""A process that has Tidelog imported and forks: each fork runs one `python -m tidelog... WORDS` (see `zygote.py`).

One request at a time, over the socket that the first argument names, and one answer, by the fork itself:

    -> u32 length, `marshal` of a dictionary (`zygote.Request`), and standard input, output and errors as descriptors
    <- i32: the process id of the fork once it is as a fresh interpreter would be, or below 0 why there is none

- A fork is a child of whoever started this process (CLONE_PARENT), so it is waited for, killed, and dies with its
  parent as any other child. `os.fork` cannot do that, so the system call is made here, and Python told of it.
- It leaves the loop below and ends as any program does: how it exits, what it prints of an exception, what it flushes
  and in which order is the interpreter's own doing.
- Nothing here may have a thread, for a fork would have its locks and not it: `_check_alone` looks before each fork.
- All signals are blocked here; so a fork meets none before it has what the parent asked for. It ends with its parent.
- What a fresh interpreter alone shows is not shown here: what is imported when, a hash seed of one's own, and the
  command line in /proc, which is this process's.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import gc
import io
import marshal
import os
import pkgutil
import resource
import runpy
import signal
import socket
import struct
import sys
import time
from importlib import import_module
from types import ModuleType
from typing import Any

ROOMS = ("record", "wire", "log", "broker", "client", "schema", "views", "gateway", "cli")
# They are run as the main module, and Python warns where such a one is imported already.
MAIN_MODULES = ("tidelog.broker.child",)
FURTHER = ("cramjam", "psycopg", "uvicorn.protocols.http.h11_impl", "uvicorn.lifespan.off", "encodings.idna", "locale")

PR_SET_PDEATHSIG = 1
PR_GET_TID_ADDRESS = 40
CLONE_PARENT, CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID = 0x8000, 0x200000, 0x1000000
CLONE = {
    "x86_64": 56,
    "aarch64": 220,
}  # the number of the system call; its last two arguments are swapped in the latter

LENGTH = struct.Struct("=I")
ANSWER = struct.Struct("=i")
STREAMS = ("stdin", "stdout", "stderr")


def main(place: int) -> list[str]:
    """Returns in forks alone, with the words behind `python`."""
    sys.path.pop(0)  # our own folder: tests are nothing that a program imports
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    parent = os.getppid()
    _call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
    link = socket.socket(fileno=place)
    atexit.register(_spare_what_is_loaded)  # the first one is called last
    _load()
    gc.collect()
    gc.freeze()
    link.sendall(ANSWER.pack(os.getpid()))
    while os.getppid() == parent and (asked := _receive(link)):
        request, streams = asked
        _check_alone()
        try:
            forked = _fork()
        except OSError as error:
            link.sendall(ANSWER.pack(-(error.errno or errno.EIO)))
        else:
            if not forked:
                return _become(request, streams, link)
        for one in streams:
            os.close(one)
    os._exit(0)


_loaded: list[str] = []


def _load() -> None:
    before = set(sys.modules)
    for room in ROOMS:
        package = import_module(f"tidelog.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"tidelog.{room}."):
            if module.name not in MAIN_MODULES:
                import_module(module.name)
    for name in FURTHER:
        import_module(name)
    _loaded.extend(set(sys.modules) - before)


def _spare_what_is_loaded() -> None:
    """The end of an interpreter takes every module apart. Of those that are loaded here that would cost a fork four
    times what it costs to make one, for it has to copy all their memory first. So it does not find them; all that the
    program itself has made ends as ever.
    """
    spared = [sys.modules.pop(name) for name in _loaded if name in sys.modules]
    _python.Py_IncRef(ctypes.py_object(spared))  # for ever


def _check_alone() -> None:
    threads = os.listdir("/proc/self/task")  # noqa: PTH208 (it is asked before each fork)
    assert len(threads) == 1, f"{len(threads)} threads run here, and a fork would have the locks of them all"


def _receive(link: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    head, streams, _, _ = socket.recv_fds(link, LENGTH.size, len(STREAMS))
    if not head:
        return None
    (length,) = LENGTH.unpack(head)
    body = link.recv(length, socket.MSG_WAITALL)
    return marshal.loads(body), streams


# A fork whose parent is ours ------------------------------------------------------------------------------------------

_python = ctypes.PyDLL(None, use_errno=True)  # it keeps the interpreter's lock, as `os.fork` does


def _call(name: str, *arguments: Any) -> int:
    done: int = getattr(_python, name)(*arguments)
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done


def _fork() -> int:
    """As `os.fork`, but that the fork's parent is this process's."""
    tid_address = ctypes.c_void_p()  # where libc keeps the number of this thread: it is another one in the fork
    _call("prctl", PR_GET_TID_ADDRESS, ctypes.byref(tid_address))
    flags = CLONE_PARENT | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | signal.SIGCHLD
    machine = os.uname().machine
    last = (tid_address, None) if machine == "x86_64" else (None, tid_address)
    _python.PyOS_BeforeFork()
    pid: int = _python.syscall(ctypes.c_long(CLONE[machine]), ctypes.c_ulong(flags), None, None, *last)
    if pid == 0:
        _python.PyOS_AfterFork_Child()
        return 0
    number = ctypes.get_errno()
    _python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(number, os.strerror(number))
    return pid


# In the fork ----------------------------------------------------------------------------------------------------------


def _become(request: dict[str, Any], streams: list[int], link: socket.socket) -> list[str]:
    try:
        if request["dies_with_parent"]:
            _call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
        if request["new_session"]:
            os.setsid()
        if request["process_group"] >= 0:
            os.setpgid(0, request["process_group"])
        _take_descriptors(streams, link)
        _take_place(request)
        _take_words(request["words"])
        _open_streams(is_buffered=not os.environ.get("PYTHONUNBUFFERED"))
        link.sendall(ANSWER.pack(os.getpid()))
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        link.sendall(ANSWER.pack(-(getattr(error, "errno", None) or errno.EIO)))
        os._exit(1)
    link.close()
    signal.pthread_sigmask(signal.SIG_SETMASK, request["blocked"])
    return list(request["words"][1:])


def _take_descriptors(streams: list[int], link: socket.socket) -> None:
    for number, given in enumerate(streams):
        os.dup2(given, number)
    os.closerange(len(STREAMS), link.fileno())
    os.closerange(link.fileno() + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _take_place(request: dict[str, Any]) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, request["open_files"])
    if request["folder"] is not None:
        os.chdir(request["folder"])
    os.environb.clear()
    os.environb.update(request["environment"])
    time.tzset()


def _take_words(words: list[str]) -> None:
    sys.orig_argv = words
    sys.argv = ["-m", *words[3:]]
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 (as `python -m` does)
    main_module = sys.modules["__main__"] = ModuleType("__main__")
    main_module.__dict__.update(__builtins__=__builtins__, __annotations__={})


def _open_streams(*, is_buffered: bool) -> None:
    """As Python opens them at its start (`create_stdio` in pylifecycle.c)."""
    for number, name in enumerate(STREAMS):
        before: io.TextIOWrapper = getattr(sys, f"__{name}__")
        mode = "w" if number else "r"
        binary = open(number, mode + "b", -1 if is_buffered or not number else 0, closefd=False)  # noqa: SIM115
        raw = getattr(binary, "raw", binary)
        raw.name = f"<{name}>"
        at_once = is_buffered and (name == "stderr" or raw.isatty())
        made = io.TextIOWrapper(
            binary, before.encoding, before.errors, newline="\n", line_buffering=at_once, write_through=not is_buffered
        )
        made.mode = mode
        setattr(sys, name, made)
        setattr(sys, f"__{name}__", made)


if __name__ == "__main__":
    runpy._run_module_as_main(main(int(sys.argv[1]))[1])  # what `python -m` calls
