"""What the options of all commands share: the parser, `--bootstrap`, `--timeout`, `--json`, `--set`, default actions.

argparse is imported by commands that reach a broker; `tidelog up` gets by without it (`up.py` says how).
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from tidelog.errors import UsageError

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.security import Security
    from tidelog.views.stores.allowing import Allowed

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_TIMEOUT_S = 10.0
COMMAND_CONFIG = "TIDELOG_COMMAND_CONFIG"
SHOWING = ("describe", "show")  # the action that shows one thing by its name


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors, examples as written, and no abbreviated options: a new one would break them."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog.removeprefix('tidelog ')}: {message}; see `{self.prog} --help`")


def command_parser(command: str, description: str, examples: str, *, parent: Parser | None = None) -> Parser:
    return Parser(
        prog=f"tidelog {command}",
        description=description,
        epilog=f"examples:\n{examples.rstrip()}",
        parents=[] if parent is None else [parent],
    )


def connection_options() -> Parser:
    """A parent for other parsers. No defaults here, so that an option counts before and after the action alike."""
    parent = Parser(add_help=False, argument_default=argparse.SUPPRESS)
    reach = parent.add_argument_group("reaching the broker")
    reach.add_argument(
        "--bootstrap",
        metavar="HOST:PORT[,..]",
        help=f"where the broker listens (default: TIDELOG_BOOTSTRAP, else {DEFAULT_BOOTSTRAP})",
    )
    reach.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds,
        help=f"how long to wait for an answer, tries included (default: {DEFAULT_TIMEOUT_S:g})",
    )
    reach.add_argument(
        "--command-config",
        metavar="FILE",
        help="TLS and login, as Kafka's tools take them: security.protocol=SASL_SSL and so on (default: the file that"
        f" {COMMAND_CONFIG} names)",
    )
    return parent


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON, for scripts")


def add_allowed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow-store",
        metavar="URL",
        action="append",
        dest="allowed_stores",
        default=argparse.SUPPRESS,
        help="open stores of views whose URL begins with this, also with ${NAME} in it (may be repeated; default:"
        " TIDELOG_ALLOWED_STORES, else allowed.stores in tidelog.toml); files need none",
    )


def allowed(options: argparse.Namespace) -> Allowed:
    from tidelog.views.stores.allowing import allowed_stores

    return lambda: allowed_stores(command_line=getattr(options, "allowed_stores", None) or ())


def add_set(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--set", metavar="KEY=VALUE", type=key_value, action="append", default=[], help=f"{what} (may be repeated)"
    )


def actions(parser: Parser) -> argparse._SubParsersAction[Parser]:
    return parser.add_subparsers(dest="action", metavar="ACTION", title="actions", parser_class=Parser)


def parse(parser: Parser, arguments: Sequence[str], *, default: str | None = None) -> argparse.Namespace:
    """`default` is the action that is meant when none is written, as in `tidelog topics --json`."""
    given = list(arguments)
    names = action_names(parser)
    action = _action(given)
    if default is not None and action is None and not {"-h", "--help"} & set(given):
        given.insert(0, default)
    elif names and action is None and not {"-h", "--help"} & set(given):
        parser.error(f"say which: {', '.join(names)}")
    elif names and action is not None and action not in names:
        shows = next((one for one in SHOWING if one in names), None)
        named = f"; if that is a name: `{parser.prog} {shows} {action}`" if default is not None and shows else ""
        parser.error(f"{action!r} is not one of {', '.join(names)}{named}")
    defaults = argparse.Namespace(bootstrap=None, timeout=DEFAULT_TIMEOUT_S, json=False, command_config=None)
    options, unknown = parser.parse_known_args(given, defaults)
    if unknown:
        _refuse(names.get(getattr(options, "action", None) or "", parser), unknown)
    return options


def _action(words: Sequence[str]) -> str | None:
    """The first word that is neither an option nor its value; a pattern is not one."""
    for before, word in zip(("", *words), words, strict=False):
        if not word.startswith("-") and before not in ("--bootstrap", "--timeout", "--command-config"):
            return None if any(letter in word for letter in "*?[") else word
    return None


def _refuse(parser: argparse.ArgumentParser, unknown: Sequence[str]) -> NoReturn:
    from difflib import get_close_matches

    near = get_close_matches(unknown[0].partition("=")[0], parser._option_string_actions, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")


def action_names(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The sub-parsers by name; none for a command without actions."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def connect(options: argparse.Namespace) -> Cluster:
    from tidelog.client.cluster import Cluster

    warnings.showwarning = show_warning  # type: ignore[assignment]
    bootstrap = options.bootstrap or os.environ.get("TIDELOG_BOOTSTRAP") or DEFAULT_BOOTSTRAP
    return Cluster(bootstrap, client_id="tidelog-cli", timeout_s=options.timeout, security=security(options))


def security(options: argparse.Namespace) -> Security | None:
    file = options.command_config or os.environ.get(COMMAND_CONFIG)
    if not file:
        return None
    from tidelog.client.security import Security

    return Security.from_file(file)


def check_unset(cluster: Cluster, kind: str, name: str, keys: list[str]) -> None:
    """A broker takes back what was never set, and what there never was, without a word."""
    from tidelog.client.admin import configs

    asked = [key for key in keys if not key.startswith(configs.OURS)]
    if asked:
        known = {one.name for one in configs.describe(cluster, configs.KINDS[kind], name, keys=asked)}
        check_known(asked, known, kind, name)


def check_known(keys: Iterable[str], known: set[str], kind: str, name: str) -> None:
    for key in keys:
        if key not in known:
            listed = f"`tidelog configs describe {kind} {name} --all` lists them"
            raise UsageError(f"{kind} {name} has no setting {key!r}; {listed}")


def show_warning(message: Warning | str, *_: Any) -> None:
    from tidelog.cli.terminal import warn

    warn(" ".join(str(message).split()))


def seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return value


def span(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 on")
    return value


def key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def positive(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def not_negative(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)
