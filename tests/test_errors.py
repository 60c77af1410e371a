"""The tree of errors is the one that its module draws."""

from __future__ import annotations

import re

from proving import proves
from tidelog import errors

LINE = re.compile(r"^    (?P<branches>(?:│   |    )*(?:[├└]── )?)(?P<name>[A-Z]\w+)", re.MULTILINE)


@proves("errors")
def test_the_drawn_tree_has_every_error_below_its_parent() -> None:
    drawn: dict[str, str] = {}
    above: list[str] = []
    for line in LINE.finditer(errors.__doc__ or ""):
        depth = len(line["branches"]) // 4
        del above[depth:]
        drawn[line["name"]] = above[-1] if above else "Exception"
        above.append(line["name"])
    real = {
        name: one.__bases__[0].__name__
        for name, one in vars(errors).items()
        if isinstance(one, type) and issubclass(one, errors.TidelogError)
    }
    assert drawn == real
