"""The public names: what `import tidelog` promises, and nothing more."""

from __future__ import annotations

import pytest

import tidelog
from proving import proves

PUBLIC = ["App", "Broker", "TidelogError", "__version__", "spark_session", "sql"]


@proves("exports")
def test_the_public_names_are_these() -> None:
    assert sorted(tidelog.__all__) == PUBLIC


@proves("exports")
@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(tidelog, name) is not None


@proves("exports")
def test_any_other_name_is_refused_as_python_does() -> None:
    with pytest.raises(AttributeError, match="module 'tidelog' has no attribute 'Broke'"):
        tidelog.Broke  # noqa: B018
