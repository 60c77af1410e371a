"""`tidelog up`: a broker in this process, until SIGTERM or Ctrl-C. SIGHUP reads settings and certificates again.

It must answer a tenth of a second after it is typed, and argparse alone takes a tenth of that. So the plain forms of
the three options are read by hand (`quick`); whatever else is written (help, `--data=DIR`, a mistake) goes to
argparse, and a test holds the two to the same answers.
"""

from __future__ import annotations

from tidelog.cli.main import FAILED, OK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tidelog.cli.options import Parser
    from tidelog.config import BrokerConfig

EXAMPLES = """\
  tidelog up
  tidelog up --data /var/lib/tidelog --listen SASL_SSL://0.0.0.0:9092 --set ssl.keystore.location=broker.pem
  tidelog up --set num.partitions=3 --set log.retention.hours=24
  tidelog up --listen 127.0.0.1:0          any free port; the ready line says which

Settings have Kafka's names; ours begin with "tidelog.". They are taken from the command line, then the environment,
then tidelog.toml; an unknown one is refused.
"""

ELSEWHERE = ("--port", "-p", "--host", "--bind", "--bootstrap")  # what people try first, for what --listen is


class Choice:
    """What was asked for; None leaves it to the environment, tidelog.toml and the defaults."""

    __slots__ = ("data", "listen", "settings")

    def __init__(self, data: str | None, listen: str | None, settings: list[tuple[str, str]]) -> None:
        self.data = data
        self.listen = listen
        self.settings = settings

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Choice) and all(getattr(self, n) == getattr(other, n) for n in self.__slots__)

    def __repr__(self) -> str:
        return f"Choice({self.data!r}, {self.listen!r}, {self.settings!r})"


def parser() -> Parser:
    from tidelog.cli import options as command

    made = command.command_parser("up", "Start a broker and serve until SIGTERM or Ctrl-C.", EXAMPLES)
    made.add_argument("--data", metavar="DIR", help="the data folder, made if missing (default: tidelog-data)")
    made.add_argument("--listen", metavar="HOST:PORT", help="where to listen (default: 127.0.0.1:9092)")
    command.add_set(made, "a broker setting by Kafka's name")
    return made


def quick(arguments: list[str]) -> Choice | None:
    """`--data DIR`, `--listen HOST:PORT` and `--set KEY=VALUE`, each as two words; None for anything else."""
    found: dict[str, str] = {}
    settings = []
    if len(arguments) % 2:
        return None
    for name, value in zip(arguments[::2], arguments[1::2], strict=True):
        if value.startswith("-"):
            return None
        if name in ("--data", "--listen"):
            found[name] = value
        elif name == "--set" and value.partition("=")[0] and "=" in value:
            key, _, text = value.partition("=")
            settings.append((key, text))
        else:
            return None
    return Choice(found.get("--data"), found.get("--listen"), settings)


def careful(arguments: list[str]) -> Choice:
    from tidelog.cli import options as command

    for word in arguments:
        if word.partition("=")[0] in ELSEWHERE:
            parser().error(
                f"the option {word.partition('=')[0]} does not exist; write --listen HOST:PORT, as 127.0.0.1:9093"
            )
    options = command.parse(parser(), arguments)
    return Choice(options.data, options.listen, options.set)


def run(arguments: list[str]) -> int:
    return serve(quick(arguments) or careful(arguments))


def serve(choice: Choice) -> int:
    import os
    from pathlib import Path

    from tidelog.broker import server
    from tidelog.broker.settings.configuring import load_broker_config

    settings = list(choice.settings)
    if choice.data is not None:
        settings.append(("log.dirs", choice.data))
    if choice.listen is not None:
        settings.append(("listeners", choice.listen))

    def read() -> BrokerConfig:
        return load_broker_config(command_line=settings, environment=os.environ, folder=Path())

    return OK if server.serve(read(), read=read) else FAILED
