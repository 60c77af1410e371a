"""What is said of a URL that is no store's: the URL as it was written, and nothing of what was filled in."""

from __future__ import annotations

import traceback

import pytest

from proving import proves
from tidelog.errors import UsageError
from tidelog.views.stores.opening import open_store

SECRET = "hunter2"


@proves("P3", "hostile")
@pytest.mark.parametrize(
    "url",
    [
        "sqlite://${NAME}",
        "sqlite+fts://${NAME}",
        "sqlite+fts:////srv/${NAME}/x.db?a=1",
        "sqlite+fts:////srv/x.db?${NAME}=1",
        "parquet:////srv/${NAME}?a=1",
        "parquet:////srv/views?grace=${NAME}",
        "delta:////srv/${NAME}?a=1",
        "delta:////srv/${PERCENT}",
        "redis://:${NAME}@/0",
        "redis://host:${NAME}/0",
        "opensearch+http://host:${NAME}/",
        "opensearch+http://host/?${NAME}=1",
        "postgresql://host:${NAME}/shop",
    ],
)
def test_a_url_that_is_refused_is_told_as_it_was_written(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAME", SECRET)
    monkeypatch.setenv("PERCENT", f"{SECRET}%41")
    with pytest.raises(UsageError) as refused:
        open_store(url, "revenue")
    assert str(refused.value).startswith(url)
    assert SECRET not in "".join(traceback.format_exception(refused.value))
