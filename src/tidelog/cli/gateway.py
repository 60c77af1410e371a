"""`tidelog gateway`: the HTTP server beside a broker, this one or any other that speaks Kafka's protocol.

`tidelog up` starts it by itself, with `--fd`: a socket that it has bound already.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tidelog.cli import options as command
from tidelog.cli.main import OK
from tidelog.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

DEFAULT_LISTEN = "127.0.0.1:8642"
INSTALL = "pip install 'tidelog[http]'"
EXAMPLES = """\
  tidelog gateway
  tidelog gateway --bootstrap kafka-1:9092,kafka-2:9092 --listen 127.0.0.1:8642
  curl http://127.0.0.1:8642/metrics
  curl http://127.0.0.1:8642/openapi.json    every route
"""


def parser() -> command.Parser:
    made = command.command_parser(
        "gateway",
        "Serve HTTP for a broker: health, metrics, and all other routes.",
        EXAMPLES,
        parent=command.connection_options(),
    )
    made.add_argument("--listen", metavar="HOST:PORT", help=f"where to listen (default: {DEFAULT_LISTEN})")
    made.add_argument(
        "--host", metavar="NAME", action="append", default=[], help="a further name it goes by (may be repeated)"
    )
    made.add_argument("--certificate", metavar="FILE", help="serve HTTPS with this certificate (PEM)")
    made.add_argument("--key", metavar="FILE", help="the certificate's private key (PEM), if it is not in there too")
    made.add_argument("--fd", metavar="N", type=int, action="append", default=[], help="a socket that listens already")
    made.add_argument("--with-parent", action="store_true", help="end when standard input ends")
    made.add_argument("--log-format", choices=("text", "json"), default="text", help="of its log (default: text)")
    made.add_argument("--log-level", choices=("DEBUG", "INFO", "WARNING", "ERROR"), default="INFO")
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments)
    if options.fd and options.listen:
        raise UsageError("gateway: --fd is a socket that listens already; leave out --listen")
    if options.key and not options.certificate:
        raise UsageError("gateway: --key is of no use without --certificate FILE; give both")
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise UsageError(f"{' and '.join(missing)} are not installed; {INSTALL}")
    _serve(options)
    # Threads that wait for a broker would hold the end up, and there is nothing left to tell.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(OK)


def _serve(options: Namespace) -> None:
    from tidelog.client.address import Address
    from tidelog.config import address
    from tidelog.gateway.gateway import Gateway
    from tidelog.gateway.routes import ROUTES
    from tidelog.gateway.server import Settings, inherited, listen, serve
    from tidelog.logger import Logger

    sockets = inherited(options.fd) if options.fd else listen(Address(*address(options.listen or DEFAULT_LISTEN)[1:]))
    parent = sys.stdin.fileno() if options.with_parent else None
    bootstrap = options.bootstrap or os.environ.get("TIDELOG_BOOTSTRAP") or command.DEFAULT_BOOTSTRAP
    logger = Logger(level=options.log_level, json=options.log_format == "json")
    settings = Settings(tuple(options.host), parent, options.certificate, options.key)
    serve(Gateway(bootstrap, ROUTES), sockets, logger, settings)
