"""`tidelog gateway`: the HTTP server beside a broker, this one or any other that speaks Kafka's protocol.

`tidelog up` starts it by itself, with `--fd`: a socket that it has bound already.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.cli import options as command
from tidelog.cli.main import OK
from tidelog.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from tidelog.client.security import Security
    from tidelog.gateway.gateway import Gateway

DEFAULT_LISTEN = "127.0.0.1:8642"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
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
    made.add_argument(
        "--store",
        metavar="URL",
        action="append",
        default=[],
        help="read views from stores whose URL begins with this (repeatable); needed where the broker demands a login",
    )
    made.add_argument("--certificate", metavar="FILE", help="serve HTTPS with this certificate (PEM)")
    made.add_argument("--key", metavar="FILE", help="the certificate's private key (PEM), if it is not in there too")
    made.add_argument(
        "--authorities",
        metavar="FILE",
        help="ask clients for certificates of these (PEM), as tidelog up does",
    )
    made.add_argument("--demand-certificates", action="store_true", help="refuse clients without one")
    made.add_argument(
        "--login",
        metavar="MECHANISM",
        choices=MECHANISMS,
        help="the broker demands a login: each request's user logs in by this; see --command-config for TLS",
    )
    made.add_argument("--fd", metavar="N", type=int, action="append", default=[], help="a socket that listens already")
    made.add_argument(
        "--with-parent", action="store_true", help="read a line of JSON from standard input, end when it ends"
    )
    made.add_argument("--log-format", choices=("text", "json"), default="text", help="of its log (default: text)")
    made.add_argument("--log-level", choices=("DEBUG", "INFO", "WARNING", "ERROR"), default="INFO")
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments)
    if options.fd and options.listen:
        raise UsageError("gateway: --fd is a socket that listens already; leave out --listen")
    if options.key and not options.certificate:
        raise UsageError("gateway: --key is of no use without --certificate FILE; give both")
    _check_timeout(options.timeout)
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise UsageError(f"{' and '.join(missing)} are not installed; {INSTALL}")
    _serve(options)
    # Threads that wait for a broker would hold the end up, and there is nothing left to tell.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(OK)


def _check_timeout(timeout_s: float) -> None:
    """A request is answered by then whatever the broker does, and its thread would be held for nobody."""
    from tidelog.gateway.limits import CALL_WITHIN_S

    if timeout_s > CALL_WITHIN_S:
        raise UsageError(f"gateway: --timeout is {timeout_s:g}; a request is answered within {CALL_WITHIN_S:g} s")


def gateway_of(options: Namespace, delegation: str | None = None) -> Gateway:
    from tidelog.gateway.gateway import Gateway
    from tidelog.gateway.routes import ROUTES

    return Gateway(
        options.bootstrap or os.environ.get("TIDELOG_BOOTSTRAP") or command.DEFAULT_BOOTSTRAP,
        ROUTES,
        _security(options),
        delegation=delegation,
        stores=tuple(options.store),
        timeout_s=options.timeout,
    )


def _serve(options: Namespace) -> None:
    from json import loads

    from tidelog.config import http_listener
    from tidelog.gateway.server import Settings, inherited, listen, serve
    from tidelog.logger import Logger

    told = loads(sys.stdin.readline() or "{}") if options.with_parent else {}
    gateway = gateway_of(options, told.get("delegation"))
    where = http_listener(options.listen or DEFAULT_LISTEN)
    if where.tls and not options.certificate:
        raise UsageError(f"gateway: {options.listen} needs a certificate; give --certificate FILE")
    if options.certificate:
        where = where._replace(scheme="https")
    if not options.fd:
        where.check(gateway.login)
    sockets = inherited(options.fd) if options.fd else listen(where)
    parent = sys.stdin.fileno() if options.with_parent else None
    logger = Logger(level=options.log_level, json=options.log_format == "json")
    settings = Settings(
        tuple(options.host),
        parent,
        options.certificate,
        options.key,
        options.authorities,
        options.demand_certificates,
    )
    serve(gateway, sockets, logger, settings)


def _security(options: Namespace) -> Security:
    """How the broker is reached. Who logs in there says each request, so a user in the file is left out."""
    from tidelog.client.security import SASL_PLAINTEXT, Security, parse_properties

    file = options.command_config or os.environ.get(command.COMMAND_CONFIG)
    if file:
        try:
            properties = parse_properties(Path(file).read_text())
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from error
        properties.pop("sasl.jaas.config", None)
        somebody = {"sasl.username": "-", "sasl.password": "-"}
        security = Security.from_properties({**properties, **somebody}, file)._replace(user="", password="")
    else:
        security = Security(SASL_PLAINTEXT) if options.login else Security()
    return security._replace(mechanism=options.login) if options.login else security
