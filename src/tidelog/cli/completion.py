"""`tidelog completion SHELL`: a script for the shell to complete commands, options, and names of topics and groups.

The script is generated from the commands' own parsers, so that it cannot fall behind them. What an argument is, is
read from its metavar: TOPIC and GROUP are asked of the broker (for at most a second), DIR is a folder, choices are
themselves.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import NamedTuple

from tidelog.cli import options as command
from tidelog.cli.main import COMMANDS

EXAMPLES = """\
  source <(tidelog completion bash)
  tidelog completion zsh > ~/.zfunc/_tidelog        with fpath+=~/.zfunc in ~/.zshrc
  tidelog completion fish > ~/.config/fish/completions/tidelog.fish
"""

ASK = {
    "TOPIC": "tidelog topics list --quiet --timeout 1 2>/dev/null",
    "GROUP": "tidelog groups list --quiet --timeout 1 2>/dev/null",
}


class Option(NamedTuple):
    names: tuple[str, ...]
    takes: str  # "" for a flag, else DIR, TOPIC, GROUP, `a|b` for choices, or whatever its metavar says
    help: str


class Words(NamedTuple):
    """What may follow one command or action."""

    path: tuple[str, ...]
    help: str
    actions: tuple[str, ...]
    options: tuple[Option, ...]
    arguments: tuple[str, ...]  # what each positional takes, as in Option


def parser() -> command.Parser:
    made = command.command_parser("completion", "Print a completion script for your shell.", EXAMPLES)
    made.add_argument("shell", choices=["bash", "zsh", "fish"], metavar="SHELL", help="which: bash, zsh or fish")
    return made


def run(arguments: list[str]) -> int:
    shell = command.parse(parser(), arguments).shell
    print({"bash": bash, "zsh": zsh, "fish": fish}[shell](all_words()), end="")
    return 0


def all_words() -> list[Words]:
    found = [
        Words(
            (),
            "",
            tuple(COMMANDS),
            (Option(("--help",), "", "show help"), Option(("--version",), "", "show the version")),
            (),
        )
    ]
    for name, what in COMMANDS.items():
        module = import_module(f"tidelog.cli.{name}")
        parsed = module.parser()
        actions = {**command.action_names(parsed), **getattr(module, "further_actions", dict)()}
        found.append(words_of(parsed, (name,), what)._replace(actions=tuple(actions)))
        for action, deeper in actions.items():
            found.append(words_of(deeper, (name, action), deeper.description or ""))
    return found


def words_of(parsed: argparse.ArgumentParser, path: tuple[str, ...], what: str) -> Words:
    shown = [action for action in parsed._actions if action.help != argparse.SUPPRESS]
    named = [action for action in shown if action.option_strings]
    positional = [
        action for action in shown if not action.option_strings and not isinstance(action, argparse._SubParsersAction)
    ]
    return Words(
        path,
        what,
        tuple(command.action_names(parsed)),
        tuple(Option(tuple(a.option_strings), takes(a), (a.help or "").split(" (")[0]) for a in named),
        tuple(takes(action) for action in positional),
    )


def takes(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if action.choices is not None:
        return "|".join(map(str, action.choices))
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest
    return metavar.removesuffix("[:PARTITION]")


def bash(words: list[Words]) -> str:
    cases = []
    for each in words:
        flags = " ".join(name for option in each.options for name in option.names)
        follows = "; ".join(filter(None, [_bash_values(kind) for kind in dict.fromkeys(each.arguments)]))
        offered = " ".join((*each.actions, flags))
        cases.append(f'    "{" ".join(each.path)}") words="{offered}"; {follows or ":"} ;;')
    values = []
    for option in dict.fromkeys(option for each in words for option in each.options if _bash_values(option.takes)):
        values.append(f"    {'|'.join(option.names)}) words=''; {_bash_values(option.takes)}; flag=1 ;;")
    commands = "|".join(COMMANDS)
    known = "|".join(sorted({action for each in words if each.path for action in each.actions}))
    return _BASH.format(
        cases="\n".join(cases), values="\n".join(dict.fromkeys(values)), commands=commands, actions=known
    )


def _bash_values(kind: str) -> str:
    if kind in ASK:
        return f'words="$words $({ASK[kind]})"'
    if kind == "DIR":
        return "folders=1"
    return f'words="$words {kind.replace("|", " ")}"' if "|" in kind else ""


_BASH = """\
# bash completion for tidelog; load it with: source <(tidelog completion bash)
_tidelog() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}"
  local command="" action="" words="" folders="" flag="" word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$word" in
    {commands}) [ -z "$command" ] && {{ command="$word"; continue; }} ;;
    esac
    case "$word" in
    {actions}) [ -n "$command" ] && [ -z "$action" ] && action="$word" ;;
    esac
  done
  case "$prev" in
{values}
  esac
  if [ -z "$flag" ]; then
    case "$command${{action:+ $action}}" in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  [ -n "$folders" ] && COMPREPLY+=($(compgen -d -- "$cur"))
  return 0
}}
complete -F _tidelog tidelog
"""


def zsh(words: list[Words]) -> str:
    cases = []
    for each in words:
        offered = [f"'{name}:{_quoted(option.help)}'" for option in each.options for name in option.names]
        offered = [*(f"'{action}'" for action in each.actions), *offered]
        follows = "".join(f" {_zsh_values(kind)};" for kind in dict.fromkeys(each.arguments) if _zsh_values(kind))
        cases.append(f'    "{" ".join(each.path)}") offered=({" ".join(offered)});{follows} ;;')
    values = dict.fromkeys(
        f"    {'|'.join(option.names)}) {_zsh_values(option.takes)}; return ;;"
        for each in words
        for option in each.options
        if _zsh_values(option.takes)
    )
    known = "|".join(sorted({action for each in words if each.path for action in each.actions}))
    return _ZSH.format(cases="\n".join(cases), values="\n".join(values), commands="|".join(COMMANDS), actions=known)


def _zsh_values(kind: str) -> str:
    if kind in ASK:
        return f'compadd -- ${{(f)"$({ASK[kind]})"}}'
    if kind == "DIR":
        return "_files -/"
    return f"compadd -- {kind.replace('|', ' ')}" if "|" in kind else ""


def _quoted(text: str) -> str:
    return text.replace("'", "").replace(":", ",").replace("%%", "%")


_ZSH = """\
#compdef tidelog
# zsh completion for tidelog
_tidelog() {{
  local command="" action="" word
  local -a offered
  for word in ${{words[2,$((CURRENT-1))]}}; do
    case "$word" in
    {commands}) if [[ -z "$command" ]]; then command="$word"; continue; fi ;;
    esac
    case "$word" in
    {actions}) [[ -n "$command" && -z "$action" ]] && action="$word" ;;
    esac
  done
  case "${{words[CURRENT-1]}}" in
{values}
  esac
  case "$command${{action:+ $action}}" in
{cases}
  esac
  _describe 'tidelog' offered
}}
if [[ "$funcstack[1]" == _tidelog ]]; then  # loaded by the first Tab, which is to be answered, too
  _tidelog "$@"
elif (( $+functions[compdef] )); then
  compdef _tidelog tidelog
fi
"""


def fish(words: list[Words]) -> str:
    lines = ["# fish completion for tidelog", "complete -c tidelog -f"]
    for each in words:
        where = _fish_condition(each)
        for action in each.actions:
            what = COMMANDS.get(action, "") if not each.path else ""
            lines.append(f"complete -c tidelog -n '{where}' -a {action}" + (f" -d '{_quoted(what)}'" if what else ""))
        for option in each.options:
            names = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names)
            value = _fish_values(option.takes)
            lines.append(f"complete -c tidelog -n '{where}' {names}{value} -d '{_quoted(option.help)}'")
        for kind in dict.fromkeys(each.arguments):
            if kind in ASK or "|" in kind:
                lines.append(f"complete -c tidelog -n '{where}'{_fish_values(kind).removeprefix(' -x')}")
    return "\n".join(lines) + "\n"


def _fish_condition(each: Words) -> str:
    if not each.path:
        return "__fish_use_subcommand"
    seen = [f"__fish_seen_subcommand_from {word}" for word in each.path]
    if each.actions:
        seen.append(f"not __fish_seen_subcommand_from {' '.join(each.actions)}")
    return "; and ".join(seen)


def _fish_values(kind: str) -> str:
    if not kind:
        return ""
    if kind in ASK:
        return f' -x -a "({ASK[kind]})"'
    if kind == "DIR":
        return ' -x -a "(__fish_complete_directories)"'
    return f' -x -a "{kind.replace("|", " ")}"' if "|" in kind else " -x"
