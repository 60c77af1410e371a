"""`tidelog users [list|add|password|token|delete]`: who may log in.

Passwords come from a prompt or standard input, never from the command line: everybody on the machine can read that.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from tidelog.cli import options as command
from tidelog.cli.terminal import confirm, show_json, show_table
from tidelog.errors import UsageError

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster

EXAMPLES = """\
  tidelog users add admin --data /var/lib/tidelog     the first user, in the folder of a broker that does not run
  tidelog users add alice                             in a running broker; asks for a password
  tidelog users password alice < password.txt         a new password, the first line of standard input
  tidelog users token scraper                         a user for a program that asks by HTTP; prints its token
  tidelog users delete alice
"""

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD_LENGTH_MIN = 8
TOKEN_SECRET_BYTES = 24


def parser() -> command.Parser:
    reach = command.connection_options()
    made = command.command_parser("users", "Who may log in, and by which password.", EXAMPLES, parent=reach)
    actions = command.actions(made)
    listed = actions.add_parser("list", parents=[reach], help="users and how they log in (the default)")
    command.add_json(listed)
    for name, what in (("add", "make a user"), ("password", "give a user a new password")):
        each = actions.add_parser(name, parents=[reach], help=what, description=f"{what[0].upper()}{what[1:]}.")
        each.add_argument("name", metavar="NAME")
        each.add_argument(
            "--mechanism",
            choices=(*MECHANISMS, "both"),
            default="both",
            help="by what the user will log in; either is enough for PLAIN (default: both)",
        )
        each.add_argument(
            "--data", metavar="DIR", help="the folder of a broker that does not run, in place of a broker"
        )
    issued = actions.add_parser(
        "token",
        parents=[reach],
        help="make a user whose password is a token",
        description="Make a user for a program that asks by HTTP; prints its token, once: Authorization: Bearer TOKEN.",
    )
    issued.add_argument("name", metavar="NAME")
    delete = actions.add_parser("delete", parents=[reach], help="a user can no longer log in")
    delete.add_argument("name", metavar="NAME")
    delete.add_argument("--yes", action="store_true", help="do not ask")
    return made


def run(arguments: list[str]) -> int:
    options = command.parse(parser(), arguments, default="list")
    if options.action in ("add", "password"):
        return change(options)
    with command.connect(options) as cluster:
        return {"delete": remove, "token": issue, "list": show}[options.action](cluster, options)


def show(cluster: Cluster, options: Namespace) -> int:
    from tidelog.client.admin import access

    found = access.users(cluster)
    if options.json:
        show_json({user.name: list(user.mechanisms) for user in found})
    elif found:
        show_table(("user", "logs in by"), [(user.name, ", ".join(user.mechanisms)) for user in found])
    else:
        print("no users; `tidelog users add NAME` makes one")
    return 0


def change(options: Namespace) -> int:
    mechanisms = MECHANISMS if options.mechanism == "both" else (options.mechanism,)
    if options.data is not None:
        return change_offline(options, mechanisms)
    from tidelog.client.admin import access

    with command.connect(options) as cluster:
        known = access.users(cluster, [options.name])
        if known and options.action == "add":
            raise UsageError(f"there is a user {options.name} already; `tidelog users password` changes the password")
        if not known and options.action == "password":
            raise UsageError(f"user {options.name} does not exist; add it by `tidelog users add`")
        access.set_password(cluster, options.name, ask_password(options.name), mechanisms)
    print(f"user {options.name} can log in")
    return 0


def change_offline(options: Namespace, mechanisms: tuple[str, ...]) -> int:
    import os
    from pathlib import Path

    from tidelog.broker.access.offline import change as write
    from tidelog.broker.access.state import AccessState, user_record
    from tidelog.broker.decision import NewRecord
    from tidelog.wire.scram import MAX_ITERATIONS, SALT_BYTES, credential, salted_password

    password = ask_password(options.name)

    def decide(state: AccessState) -> list[NewRecord]:
        if options.action == "add" and any(user == options.name for user, _ in state.users):
            raise UsageError(f"there is a user {options.name} already; `tidelog users password` changes the password")
        records = []
        for mechanism in mechanisms:
            salt = os.urandom(SALT_BYTES)
            salted = salted_password(mechanism, password, salt, MAX_ITERATIONS)
            kept = credential(mechanism, salted, salt, MAX_ITERATIONS)
            records.append(user_record(options.name, mechanism, kept))
        return records

    write(Path(options.data), decide)
    print(f"user {options.name} can log in when the broker of {options.data} runs")
    return 0


def issue(cluster: Cluster, options: Namespace) -> int:
    from secrets import token_urlsafe

    from tidelog.client.admin import access
    from tidelog.gateway.access import Credentials, token

    if access.users(cluster, [options.name]):
        raise UsageError(f"there is a user {options.name} already; give the token's user a name of its own")
    made = Credentials(options.name, token_urlsafe(TOKEN_SECRET_BYTES))
    access.set_password(cluster, made.user, made.secret, MECHANISMS)
    print(token(made))
    return 0


def remove(cluster: Cluster, options: Namespace) -> int:
    from tidelog.client.admin import access

    known = access.users(cluster, [options.name])
    if not known:
        raise UsageError(f"user {options.name} does not exist; `tidelog users` lists all users")
    if not options.yes and not confirm(f"user {options.name} will not be able to log in any more; delete it?"):
        raise UsageError("nothing is deleted; say --yes to delete without being asked")
    access.delete_user(cluster, known[0])
    print(f"user {options.name} is deleted, and what it has open ends in a moment")
    return 0


def ask_password(name: str) -> str:
    if sys.stdin.isatty():
        from getpass import getpass

        password = getpass(f"password of {name}: ")
        if getpass("once more: ") != password:
            raise UsageError("the two passwords differ; try again")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if len(password) < PASSWORD_LENGTH_MIN:
        raise UsageError(f"a password has at least {PASSWORD_LENGTH_MIN} characters; choose a longer one")
    return password
