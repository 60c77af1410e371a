"""The fingerprint of what computes an output: the same text as long as the same rows would come of the same inputs.

It is a digest of the function's code, of what that code names, and of what is declared (key, order, inputs). What does
not change a result does not count: comments, docstrings, annotations, blanks, the names of local files, the decorators
of the function itself, which declare
(`docs/decisions/fingerprints_of_code.md` says why it is the code and not Spark's plan).

Rules:
- Functions, classes and constants of the user's own files that the function names, directly or by others, belong to it:
  also by a module (`prices.net`), by a default value, as a base of a class, and within what wraps them (a decorator,
  a Python UDF, `partial`).
- What is installed does not: a new version of PySpark or of Tidelog alone is no other view.
- It is the same in every version of Python: of a function's syntax tree, in a text of our own, and not of its bytecode
  or of what Python writes the tree as, which differ. Only what has no source at all, as in a console, goes by bytecode.
- What Python generates for a class (methods of a dataclass) does not count: it follows from what does.
- A parameter of ours that was renamed counts by its old name, and so does a word that is its value (`RENAMED`): who
  writes the new one in a call has the same view. What comes by `**` of a dict is not looked into.
- What becomes of records that cannot be decoded (`on_error`) does not count: it is a matter of those, not of the view.
- Beside the one digest there is one for each part of it (`Code.parts`): the key, each input's columns, each function
  and constant. They say in words what has changed. How late rows may come, and when a silent input lets time go on, are
  in no part: who has the same parts has the same output, though the digest of all is another one.
- Of a view in SQL it is the SQL, without blanks and comments.
- A value that has no stable text (an object, a DataFrame) counts by its type alone.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import re
import sysconfig
import textwrap
from collections.abc import Iterator, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from itertools import product
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from tidelog.pipelines.app import Input, Output
from tidelog.pipelines.sql_query import SqlQuery

DIGEST_LENGTH, PART_LENGTH = 16, 8
ON_ERROR, OLDER_ON_ERROR = "on_error", ("fail", "null")
OLDER_INPUTS_MAX = 5  # of an output whose older fingerprints are looked for: they are three to the power of this
PLAIN = (str, bytes, int, float, bool, type(None), Decimal, date, time, timedelta, Enum, re.Pattern)
SETS, CONTAINERS = (set, frozenset), (set, frozenset, tuple, list)
LAMBDA = "<lambda>"
UNSAID = ("ctx", "kind", "type_comment")  # of a syntax tree: they follow from the rest, or change nothing
RENAMED = {"allowed_lateness": "allowed", "watermark_delay": "lateness"}  # keywords of operators: now, and before
RENAMED_WORDS = {("late", "side_output"): "divert", ("beyond", "side_output"): "divert"}
FROZEN = "<frozen "  # of modules that Python itself has
INSTALLED = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
OURS = str(Path(__file__).parent.parent)
EVENT_TIME, OF_TIME = "event_time", ("watermark_delay", "lateness", "idle_after")
WORDS = {"value": "columns", "time": "event time", "decoding": "format", "record": "columns of the record"}
NAMED_MAX = 5  # parts that a difference names


class Code(NamedTuple):
    """What computes an output."""

    fingerprint: str
    older: frozenset[str]  # what versions before called the same: they counted `on_error` of inputs that said it
    parts: Mapping[str, str]  # a digest of each part, by what it is called: "function net", "columns of stream orders"


def fingerprint(output: Output, inputs: list[Input | Output]) -> str:
    return code_of(output, inputs).fingerprint


def code_of(output: Output, inputs: list[Input | Output]) -> Code:
    said = {"kind": output.kind, "key": output.key, "order": output.order, "mode": output.mode}
    whole = {**said, "code": [text for _, text in _texts(output.function, set(), declared=True)]}
    told = [_input(one) for one in inputs]
    ways = [_older(one) for one in told] if len(told) <= OLDER_INPUTS_MAX else []
    older = frozenset(_digest(whole, list(way)) for way in product(*ways)) if ways else frozenset[str]()
    return Code(_digest(whole, told), older, _parts(output, said, list(zip(inputs, told, strict=True))))


def _parts(
    output: Output, said: Mapping[str, Any], inputs: list[tuple[Input | Output, dict[str, Any]]]
) -> dict[str, str]:
    found: dict[str, list[Any]] = {name: [value] for name, value in said.items() if value and name != "kind"}
    found["inputs"] = [[one.name for one, _ in inputs]]
    for one, told in inputs:
        for name, value in told.items():
            value = value[:1] if name == "time" and value else value
            if value and name not in ("kind", "name"):
                found[f"{WORDS.get(name, name)} of {one.kind} {one.name}"] = [value]
    for label, text in _texts(output.function, set(), declared=True, timeless=True):
        found.setdefault(label, []).append(text)
    texts = {label: json.dumps(texts, sort_keys=True, default=str) for label, texts in found.items()}
    return {label: hashlib.sha256(text.encode()).hexdigest()[:PART_LENGTH] for label, text in sorted(texts.items())}


def said_difference(was: Mapping[str, str], is_: Mapping[str, str]) -> str:
    """Which parts are not the same, in words; empty where nothing is known of what was."""
    if not was:
        return ""
    told = {
        "changed": [name for name in was if name in is_ and was[name] != is_[name]],
        "new": [name for name in is_ if name not in was],
        "gone": [name for name in was if name not in is_],
    }
    return "; ".join(f"{how}: {_listed(names)}" for how, names in told.items() if names)


def _listed(names: list[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _older(told: dict[str, Any]) -> list[dict[str, Any]]:
    if "decoding" not in told:
        return [told]
    return [told, *({**told, "decoding": {**told["decoding"], ON_ERROR: was}} for was in OLDER_ON_ERROR)]


def _digest(said: Mapping[str, Any], inputs: list[dict[str, Any]]) -> str:
    text = json.dumps({**said, "inputs": inputs}, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


def _input(one: Input | Output) -> dict[str, Any]:
    timed = None if one.time is None else list(one.time)
    if isinstance(one, Output):
        return {"kind": one.kind, "name": one.name, "key": one.key, "time": timed}
    decoding = {name: value for name, value in one.decoding.items() if name != ON_ERROR}
    value = one.value.json() if hasattr(one.value, "jsonValue") else one.value
    said = {"kind": one.kind, "topic": one.topic, "value": value, "key": one.key, "time": timed}
    said |= {} if one.start_from is None else {"view": True}  # where it starts changes no result
    said |= {"captured": True} if one.captured else {}
    return said | {"versions": one.versions, "record": one.record, "decoding": decoding}


def _texts(made: Any, seen: set[int], *, declared: bool = False, timeless: bool = False) -> Iterator[tuple[str, str]]:
    """Of a function or a class, and of all that it names, each with what it is called. `declared`: it is an output's,
    under its decorator. `timeless`: without how late rows may come.
    """
    if isinstance(made, SqlQuery):
        yield "its SQL", made.bare
        return
    if id(made) in seen:
        return
    seen.add(id(made))
    if declared or _is_users(made):
        kind = "class" if isinstance(made, type) else "function"
        yield f"{kind} {getattr(made, '__qualname__', kind)}", _text(made, declared=declared, timeless=timeless)
        for name, value in _named(made):
            yield from _value(name, value, seen, timeless=timeless)
    if (wrapped := getattr(made, "__wrapped__", None)) is not None:
        yield from _value("wrapped", wrapped, seen, timeless=timeless)


def _value(name: str, value: Any, seen: set[int], *, timeless: bool) -> Iterator[tuple[str, str]]:
    """What a name stands for, as far as it is the user's."""
    wraps = callable(value) and hasattr(value, "__wrapped__")
    if wraps or (isinstance(value, FunctionType | type) and _is_users(value)):
        yield from _texts(value, seen, timeless=timeless)
    elif isinstance(value, partial):
        for part in (value.func, *value.args, *value.keywords.items()):
            yield from _value(name, part, seen, timeless=timeless)
    elif (constant := _constant(value)) is not None:
        yield f"constant {name}", f"{name}={constant}"
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, CONTAINERS) else ():
            if callable(part):
                yield from _value(name, part, seen, timeless=timeless)


def _text(made: Any, *, declared: bool, timeless: bool) -> str:
    code = getattr(made, "__code__", None)
    of_lambda = isinstance(code, CodeType) and code.co_name == LAMBDA and code
    tree = _lambda(of_lambda) if of_lambda else _parsed(made if code is None else code)
    if tree is None:
        return f"{code.co_code.hex()}{code.co_names}{_constants(code)}" if code is not None else made.__qualname__
    if declared and isinstance(tree, ast.FunctionDef):
        tree.decorator_list = []
    tree = _Bare().visit(tree)
    return _written(_Timeless().visit(tree) if timeless and _is_our_time(made) else tree)


def _is_our_time(made: Any) -> bool:
    """Whether what its code calls `event_time` is the operator: another function's arguments are not left out."""
    found = getattr(made, "__globals__", {}).get(EVENT_TIME)
    return found is not None and str(getattr(found, "__module__", "")).startswith("tidelog.")


def _parsed(made: Any) -> ast.AST | None:
    """Of its own code, where it wraps another's; None where there is no source."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(made))).body[0]
    except (OSError, TypeError, SyntaxError):
        return None


def _lambda(code: CodeType) -> ast.AST | None:
    """Found in its file by where its body stands: the lines alone are mostly no whole statement."""
    try:
        lines, _ = inspect.findsource(code)
        tree = ast.parse("".join(lines))
    except (OSError, TypeError, SyntaxError):
        return None
    found = [one for one in ast.walk(tree) if isinstance(one, ast.Lambda) and one.lineno == code.co_firstlineno]
    if len(found) < 2:
        return found[0] if found else None
    places = [(line, column) for line, _, column, _ in code.co_positions() if line and column is not None]
    holding = {one: sum(_is_within(place, one.body) for place in places) for one in found}
    most = max(holding.values())
    # One within another has the same places of its own; the last that is walked to is the inner one.
    return [one for one, count in holding.items() if count == most][-1] if most else None


def _is_within(place: tuple[int, int], node: ast.expr) -> bool:
    end = (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
    return (node.lineno, node.col_offset) <= place < end


def _written(node: Any) -> str:
    """A tree as text: what is not there is not said, since versions differ in what could be."""
    if isinstance(node, ast.AST):
        fields = sorted((name, value) for name, value in ast.iter_fields(node) if name not in UNSAID)
        said = (f"{name}={_written(value)}" for name, value in fields if value is not None and value != [])
        return f"{type(node).__name__}({','.join(said)})"
    return f"[{','.join(map(_written, node))}]" if isinstance(node, list) else repr(node)


def _constants(code: CodeType) -> list[Any]:
    return [one for one in code.co_consts if isinstance(one, PLAIN)]


class _Bare(ast.NodeTransformer):
    """Without what no result rests on."""

    def _function(self, node: Any) -> Any:
        node.returns = None
        return self._body(node)

    visit_FunctionDef = visit_AsyncFunctionDef = _function

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        return self._body(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        """Versions differ in where an f-string has empty text."""
        self.generic_visit(node)
        node.values = [one for one in node.values if not (isinstance(one, ast.Constant) and one.value == "")]
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> Any:
        self.generic_visit(node)
        if isinstance(node.format_spec, ast.JoinedStr) and not node.format_spec.values:
            node.format_spec = None
        return node

    def visit_keyword(self, node: ast.keyword) -> Any:
        self.generic_visit(node)
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str) and node.arg is not None:
            node.value.value = RENAMED_WORDS.get((node.arg, node.value.value), node.value.value)
        node.arg = RENAMED.get(node.arg, node.arg) if node.arg is not None else None
        return node

    def visit_arg(self, node: ast.arg) -> Any:
        node.annotation = None
        return node

    def _body(self, node: Any) -> Any:
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            node.body = node.body[1:] or [ast.Pass()]
        self.generic_visit(node)
        return node


class _Timeless(ast.NodeTransformer):
    """Without how late rows may come, and when a silent input lets time go on."""

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        if getattr(node.func, "id", getattr(node.func, "attr", None)) == EVENT_TIME:
            node.args = node.args[:1]
            node.keywords = [one for one in node.keywords if one.arg not in OF_TIME]
        return node


def _named(made: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(made, type):
        yield from (("base", base) for base in made.__bases__)
    for function in [made] if isinstance(made, FunctionType) else _methods(made):
        names = sorted(set(_names(function.__code__)))
        for name in names:
            if name in function.__globals__:
                found = function.__globals__[name]
                yield name, found
                if isinstance(found, ModuleType) and _is_users(found):
                    yield from ((f"{name}.{one}", vars(found)[one]) for one in names if one in vars(found))
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            yield name, cell.cell_contents
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            yield "default", value


def _methods(made: type) -> Iterator[FunctionType]:
    for one in vars(made).values():
        inner = one.fget if isinstance(one, property) else getattr(one, "__func__", one)
        if isinstance(inner, FunctionType) and not _is_generated(made, inner):
            yield inner


def _is_generated(made: type, method: FunctionType) -> bool:
    """By `dataclass` or `NamedTuple`: as text, or a function of theirs."""
    code = inspect.unwrap(method).__code__
    by_them = hasattr(made, "__dataclass_fields__") or issubclass(made, tuple)
    return by_them and (code.co_filename == "<string>" or code.co_filename.startswith(INSTALLED))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _is_users(made: Any) -> bool:
    code = getattr(made, "__code__", None)
    try:
        file = inspect.getsourcefile(made) if code is None else str(code.co_filename)
    except TypeError:
        return False
    return file is not None and not file.startswith((*INSTALLED, OURS, FROZEN))


def _constant(value: Any) -> str | None:
    """None for what is no constant: modules, declarations, things that are installed."""
    if isinstance(value, PLAIN):
        return repr(value)
    if isinstance(value, SETS):
        return f"{{{','.join(sorted(_constant(one) or type(one).__name__ for one in value))}}}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}({','.join(_constant(one) or type(one).__name__ for one in value)})"
    if isinstance(value, dict):
        rows = (f"{key!r}:{_constant(one) or type(one).__name__}" for key, one in value.items())
        return f"{{{','.join(rows)}}}"
    return None
