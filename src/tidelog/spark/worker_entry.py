"""How a Python worker of Spark's begins that no daemon forks: it connects to Spark first, and imports afterwards.

Such are the planner of a query's source, and the worker that a query with `transformWithState` begins with. Spark
starts a process for each and waits 10 s until it connects, whatever its settings say; then it waits as long as it
takes. But to import PySpark and Arrow is seconds of work, and more than 10 s where many want the same cores.

    launched    by `worker_launch.py`'s script, in the driver's Python, without `site`: a hundredth of a second
    connect     it connects, gives the secret where Spark asks for one, and becomes the Python that was asked for
    run         in that Python: Spark's own module runs, and when it connects it is handed the connection that is there
    fork        in the place of both, where a process is there that has imported already (`worker_forks.py`): a fork of
                it runs, with this connection, and this process stays until that has ended. It is for daemons as well

Rules: it is run by its path, in a Python that may have no Tidelog. So it imports nothing of ours, and the rest only
when its own folder is off the path. A worker that cannot connect here runs as without it, and Spark says why. One whose
connection Spark has closed, or whose socket it has removed, as at a stop, ends without a word: PySpark would have it
print where it stood.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing itself is one of the rest
if TYPE_CHECKING:
    from socket import socket
    from typing import Any, NoReturn

CONNECT, RUN, FORK = "connect", "run", "fork"
MODULE = "-m"
# What Spark tells such a worker, and no other: where it listens, and the secret where that is a port.
PATH, PORT, SECRET = "PYTHON_WORKER_FACTORY_SOCK_PATH", "PYTHON_WORKER_FACTORY_PORT", "PYTHON_WORKER_FACTORY_SECRET"
IPV6 = "SPARK_PREFER_IPV6"
ACCEPTED = b"ok"
SIZE_BYTES = 4  # before each text, as an unsigned number, highest byte first
TALKATIVE = "pyspark.sql.streaming.transform_with_state_driver_worker"  # it prints each of its steps
NUMBER_MIN = 64  # of the connection, above those that shell scripts use
DESCRIPTORS_MAX = 4  # that a fork takes over: 0, 1, 2, and the connection
GONE = 1  # Spark does not listen there any more: nobody is there to be told
ALONE = 255  # in the place of an exit code: no fork can be this worker


def main(step: str, *given: str) -> None:
    if sys.path[0] == __file__.rpartition("/")[0]:
        sys.path[0] = os.getcwd()  # noqa: PTH109 (nothing is imported yet); as with -m
    if step == CONNECT:
        connect(*given)
    elif step == FORK:
        fork(*given)
    else:
        run(*given)


def connect(python: str, *arguments: str) -> NoReturn:
    made = None
    if arguments[:1] == (MODULE,):
        try:
            made = connected()
        except FileNotFoundError:
            os._exit(GONE)
        except OSError:
            made = None  # PySpark will say so
    become(made, python, arguments)


def become(made: socket | None, python: str, arguments: tuple[str, ...]) -> NoReturn:
    from fcntl import F_DUPFD, fcntl

    if made is not None:
        descriptor = fcntl(made.fileno(), F_DUPFD, NUMBER_MIN)  # which the next program inherits
        arguments = (__file__, RUN, str(descriptor), *arguments[1:])
    os.execvp(python, [python, *arguments])


def fork(place: str, python: str, *arguments: str) -> NoReturn:
    """Of the process whose socket is at `place`. Where it is not there, or the worker needs a Python of its own, this
    becomes that.
    """
    import marshal
    import socket

    made = None
    if os.environ.get(PATH) or os.environ.get(PORT):
        try:
            made = connected()
        except FileNotFoundError:
            os._exit(GONE)
        except OSError:
            os.execvp(python, [python, *arguments])
    asked = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        asked.connect(place)
        told = marshal.dumps((arguments[1:], dict(os.environ), os.getcwd()))  # noqa: PTH109
        socket.send_fds(asked, [len(told).to_bytes(SIZE_BYTES)], [0, 1, 2, *([made.fileno()] if made else [])])
        asked.sendall(told)
    except OSError:
        become(made, python, arguments)
    ended = asked.recv(1)
    if ended == bytes([ALONE]):
        asked.close()
        become(made, python, arguments)
    os._exit(ended[0] if ended else 1)


def connected() -> socket:
    import socket

    if path := os.environ.get(PATH):
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.connect(path)
        return made
    host = "::1" if os.environ.get(IPV6, "false").lower() == "true" else "127.0.0.1"
    made = socket.create_connection((host, int(os.environ[PORT])))
    secret = os.environ[SECRET].encode()
    made.sendall(len(secret).to_bytes(SIZE_BYTES) + secret)
    answer = made.recv(SIZE_BYTES + len(ACCEPTED), socket.MSG_WAITALL)
    if answer != len(ACCEPTED).to_bytes(SIZE_BYTES) + ACCEPTED:
        raise ConnectionError("Spark does not take its own secret")
    return made


def run(descriptor: str, module: str, *arguments: str) -> None:
    from runpy import run_module

    hand_over(int(descriptor))
    sys.argv = [module, *arguments]
    if module == TALKATIVE:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 (until this process ends)
    try:
        run_module(module, run_name="__main__", alter_sys=True)
    except (EOFError, ConnectionError):  # Spark has closed the connection: nobody is there to be told why it ended
        sys.stderr.flush()
        os._exit(1)


def hand_over(descriptor: int) -> None:
    """To the first socket that connects to where Spark listens: it becomes that connection, and PySpark goes on."""
    import socket

    place = os.environ.get(PATH) or int(os.environ[PORT])
    known: Any = socket.socket

    def connect_or_take(self: socket.socket, address: Any) -> None:
        if place != (address[1] if isinstance(address, tuple) else address):
            super(known, self).connect(address)
            return
        del known.connect
        os.dup2(descriptor, self.fileno(), inheritable=False)
        os.close(descriptor)
        self.settimeout(self.gettimeout())  # a flag of the connection itself depends on it

    known.connect = connect_or_take
    if isinstance(place, int):
        leave_out_the_secret()


def leave_out_the_secret() -> None:
    """Once: Spark has it, and would take a second one for what it is told next."""
    from pyspark import util

    known: Any = util
    plain = known._do_server_auth

    def given_already(*_: object) -> None:
        known._do_server_auth = plain

    known._do_server_auth = given_already


if __name__ == "__main__":
    main(*sys.argv[1:])
