"""The syntax of topic patterns: RE2's, read into a tree.

A topic's name has only the 65 characters of `names.LEGAL`, so a set of characters is a set of those, and a character
that no name can have is the empty set. Whether a repetition is greedy, which group captures, and whether lines end
makes no difference to whether a whole name matches; such marks are read and forgotten.

Left out, because RE2 leaves them out: back-references and looking around, which have no linear time. Left out besides:
classes of other scripts than Latin, such as \\p{Greek}, which no topic's name could match.

The tree is made of tuples:

    ("set", frozenset of characters)    ("begin",)  ("end",)  ("edge",)  ("inside",)    the four empty-width tests
    ("cat", [node, ...])                ("alt", [node, ...])                            ("repeat", node, min, max)
"""

from __future__ import annotations

from string import ascii_letters, digits, hexdigits, punctuation
from typing import Any

from tidelog.broker.names import LEGAL
from tidelog.errors import UsageError

Node = tuple[Any, ...]

REPEAT_MAX = 1000
NESTING_MAX = 100
OCTAL = "01234567"

NOTHING: frozenset[str] = frozenset()
WORD = LEGAL - {".", "-"}
PERL = {"d": frozenset(digits), "w": WORD, "s": NOTHING}
POSIX = {
    "alnum": frozenset(ascii_letters + digits),
    "alpha": frozenset(ascii_letters),
    "ascii": LEGAL,
    "blank": NOTHING,
    "cntrl": NOTHING,
    "digit": frozenset(digits),
    "graph": LEGAL,
    "lower": frozenset(ascii_letters[:26]),
    "print": LEGAL,
    "punct": frozenset("._-"),
    "space": NOTHING,
    "upper": frozenset(ascii_letters[26:]),
    "word": WORD,
    "xdigit": frozenset(hexdigits),
}
UNICODE = {
    "Any": LEGAL,
    "L": POSIX["alpha"],
    "Ll": POSIX["lower"],
    "Lu": POSIX["upper"],
    "Latin": POSIX["alpha"],
    "N": POSIX["digit"],
    "Nd": POSIX["digit"],
    "P": POSIX["punct"],
    "Pc": frozenset("_"),
    "Pd": frozenset("-"),
    "Po": frozenset("."),
    "Common": frozenset(digits + "._-"),
    **dict.fromkeys(("C", "Cc", "Lm", "Lo", "Lt", "M", "Mc", "Me", "Mn", "Nl", "No", "Pe", "Pf", "Pi", "Ps"), NOTHING),
    **dict.fromkeys(("S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs"), NOTHING),
}
CONTROL = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
EMPTY_WIDTH: dict[str, Node] = {"A": ("begin",), "z": ("end",), "b": ("edge",), "B": ("inside",)}


def parse(pattern: str) -> Node:
    """The tree of a pattern; UsageError says what is wrong with it."""
    parser = _Parser(pattern)
    tree = parser.alternatives(fold=False, depth=0)
    if not parser.at_end():
        raise parser.fault("there is a ) without its (")
    return tree


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.text = pattern
        self.at = 0
        self.fold = False  # (?i): letters match in either case

    def fault(self, what: str) -> UsageError:
        return UsageError(f"the pattern {self.text!r} is not valid at {self.at}: {what}")

    def at_end(self) -> bool:
        return self.at >= len(self.text)

    def ahead(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def take(self, text: str) -> bool:
        found = self.ahead(text)
        self.at += len(text) if found else 0
        return found

    def one(self, missing: str) -> str:
        if self.at_end():
            raise self.fault(missing)
        self.at += 1
        return self.text[self.at - 1]

    # Alternatives, sequences, repetitions -----------------------------------------------------------------------

    def alternatives(self, fold: bool, depth: int) -> Node:
        """Up to the end, or to the ) that closes this group. Flags that are set inside end with it."""
        if depth > NESTING_MAX:
            raise self.fault(f"groups are nested deeper than {NESTING_MAX}")
        outside, self.fold = self.fold, fold
        choices = [self.sequence(depth)]
        while self.take("|"):
            choices.append(self.sequence(depth))
        self.fold = outside
        return choices[0] if len(choices) == 1 else ("alt", choices)

    def sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while not self.at_end() and not self.ahead("|") and not self.ahead(")"):
            if self.take("\\Q"):
                parts += [self.literal(character) for character in self.quoted()]
            elif (node := self.atom(depth)) is not None:
                parts.append(node)
            if parts:
                parts[-1] = self.repeated(parts[-1])
        return parts[0] if len(parts) == 1 else ("cat", parts)

    def quoted(self) -> str:
        end = self.text.find("\\E", self.at)
        text = self.text[self.at :] if end < 0 else self.text[self.at : end]
        self.at = len(self.text) if end < 0 else end + 2
        return text

    def repeated(self, node: Node) -> Node:
        bounds = self.repetition()
        if bounds is None:
            return node
        self.take("?")
        if self.at < len(self.text) and (self.text[self.at] in "*+?" or self.repetition() is not None):
            raise self.fault("a repetition is repeated; put it into a group")
        tree = ("repeat", node, *bounds)
        if _repetitions(tree) > REPEAT_MAX:
            raise self.fault(f"something is repeated more than {REPEAT_MAX} times")
        return tree

    def repetition(self) -> tuple[int, int | None] | None:
        for mark, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.take(mark):
                return bounds
        return self.counts() if self.ahead("{") else None

    def counts(self) -> tuple[int, int | None] | None:
        """{n}, {n,} or {n,m}; anything else in braces is text."""
        end = self.text.find("}", self.at)
        low, comma, high = self.text[self.at + 1 : end].partition(",")
        if end < 0 or not _is_number(low) or (high and not _is_number(high)):
            return None
        self.at = end + 1
        least = int(low[:9])
        most = least if not comma else int(high[:9]) if high else None
        if max(least, most or 0) > REPEAT_MAX or (most is not None and most < least):
            raise self.fault(f"{{{low}{comma}{high}}} is not a repetition of at most {REPEAT_MAX}")
        return least, most

    # Atoms ------------------------------------------------------------------------------------------------------

    def atom(self, depth: int) -> Node | None:
        character = self.one("")
        if character == "(":
            return self.group(depth)
        if character == "[":
            return ("set", self.bracket())
        if character == ".":
            return ("set", LEGAL)
        if character in "^$":
            return ("begin",) if character == "^" else ("end",)
        self.at -= 1
        if self.repetition() is not None:
            raise self.fault("there is nothing to repeat")
        self.at += 1
        return self.escape() if character == "\\" else self.literal(character)

    def literal(self, character: str) -> Node:
        return ("set", self.folded(frozenset(character)) & LEGAL)

    def folded(self, characters: frozenset[str]) -> frozenset[str]:
        if not self.fold:
            return characters
        lower = {character.casefold() for character in characters}
        return characters | {character for character in LEGAL if character.casefold() in lower}

    def group(self, depth: int) -> Node | None:
        fold = self.fold
        if self.take("?P<") or self.take("?<"):
            name, found, _ = self.text[self.at :].partition(">")
            if not found or not name or not all(character.isalnum() or character == "_" for character in name):
                raise self.fault("a group's name is missing or not valid")
            self.at += len(name) + 1
        elif self.take("?"):
            fold, closed = self.flags()
            if closed:
                self.fold = fold
                return None
        tree = self.alternatives(fold, depth + 1)
        if not self.take(")"):
            raise self.fault("a ) is missing")
        return tree

    def flags(self) -> tuple[bool, bool]:
        """After "(?": the flags, up to ":" (they hold for the group) or ")" (they hold for what follows)."""
        fold, on, read = self.fold, True, ""
        while (character := self.one("a ) is missing")) not in ":)":
            if character == "-" and "-" not in read:
                on = False
            elif character in "imsU":
                fold = on if character == "i" else fold
            else:
                raise self.fault(f"(?{read}{character} is not a group of RE2")
            read += character
        if read.endswith("-"):
            raise self.fault(f"(?{read} has no flag behind the -")
        return fold, character == ")"

    def escape(self) -> Node | None:
        kind = self.one("there is nothing behind the last \\")
        if kind in EMPTY_WIDTH:
            return EMPTY_WIDTH[kind]
        if kind == "C":
            return ("set", LEGAL)
        found = self.class_escape(kind)
        return ("set", found) if found is not None else self.literal(self.character_escape(kind))

    def class_escape(self, kind: str) -> frozenset[str] | None:
        """What \\d, \\W, \\pL, \\P{Lu} and the like stand for; None if the escape is not one of these."""
        if kind.lower() in PERL:
            found = PERL[kind.lower()]
        elif kind in "pP":
            name = self.one("a class's name is missing")
            if name == "{":
                name, closed, _ = self.text[self.at :].partition("}")
                if not closed:
                    raise self.fault("a } is missing")
                self.at += len(name) + 1
            negated = name.startswith("^")
            if name[negated:] not in UNICODE:
                raise self.fault(f"no topic's name can have characters of the class {name}")
            found = LEGAL - UNICODE[name[1:]] if negated else UNICODE[name]
            found = self.folded(found)
        else:
            return None
        return LEGAL - found if kind.isupper() else found

    def character_escape(self, kind: str) -> str:
        if kind in CONTROL:
            return CONTROL[kind]
        if kind == "x":
            return self.hexadecimal()
        following = self.text[self.at : self.at + 1]
        if kind == "0" or (kind in OCTAL and following and following in OCTAL):
            code = kind
            while len(code) < 3 and not self.at_end() and self.text[self.at] in OCTAL:
                code += self.one("")
            return chr(int(code, 8))
        if kind in punctuation or not kind.isascii():
            return kind
        raise self.fault(f"\\{kind} is not an escape of RE2")

    def hexadecimal(self) -> str:
        if self.take("{"):
            code, closed, _ = self.text[self.at :].partition("}")
            complete = bool(closed and code)
            self.at += len(code) + 1
        else:
            code = self.text[self.at : self.at + 2]
            complete = len(code) == 2
            self.at += 2
        if not complete or not set(code) <= set(hexdigits) or int(code[-9:], 16) > 0x10FFFF:
            raise self.fault("\\x wants two hexadecimal digits, or more in braces")
        return chr(int(code, 16))

    # Characters in brackets -------------------------------------------------------------------------------------

    def bracket(self) -> frozenset[str]:
        negated = self.take("^")
        found: set[str] = set()
        first = True
        while first or not self.ahead("]"):
            if self.at_end():
                raise self.fault("a ] is missing")
            found |= self.bracket_part()
            first = False
        self.take("]")
        return LEGAL - found if negated else frozenset(found) & LEGAL

    def bracket_part(self) -> frozenset[str]:
        if self.ahead("[:") and (named := self.posix()) is not None:
            return named
        if self.ahead("\\"):
            kind = self.text[self.at + 1 : self.at + 2]
            if kind and kind in "dDwWsSpP":
                self.at += 2
                found = self.class_escape(kind)
                assert found is not None
                return found
        low = self.bracket_character()
        if not self.ahead("-") or self.ahead("-]"):
            return self.folded(frozenset(low))
        self.take("-")
        high = self.bracket_character()
        if high < low:
            raise self.fault(f"the range {low}-{high} runs backwards")
        # Letters beyond ASCII that fold into it are in a range only by themselves.
        extra = {character for character in "\u017f\u212a" if low <= character <= high}
        return self.folded(frozenset({character for character in LEGAL if low <= character <= high} | extra))

    def posix(self) -> frozenset[str] | None:
        """[:alpha:] and the like; None where the brackets are no such thing."""
        end = self.text.find(":]", self.at + 2)
        if end < 0:
            return None
        name = self.text[self.at + 2 : end]
        negated = name.startswith("^")
        if name[negated:] not in POSIX:
            raise self.fault(f"[:{name}:] is not a class of RE2")
        self.at = end + 2
        found = self.folded(POSIX[name[negated:]])
        return LEGAL - found if negated else found

    def bracket_character(self) -> str:
        character = self.one("a ] is missing")
        return (
            character if character != "\\" else self.character_escape(self.one("there is nothing behind the last \\"))
        )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _repetitions(node: Node) -> int:
    """How often the most repeated part of a tree is, counted through all groups around it."""
    most = 1
    if node[0] in ("cat", "alt"):
        most = max(map(_repetitions, node[1]), default=1)
    elif node[0] == "repeat":
        most = max(node[2] if node[3] is None else node[3], 1) * _repetitions(node[1])
    return most
