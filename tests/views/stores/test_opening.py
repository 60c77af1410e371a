"""What is said of a URL that is no store's: the URL as it was written, and nothing of what was filled in."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from proving import proves
from tidelog.control.urls import VARIABLE
from tidelog.errors import TidelogError, UsageError
from tidelog.schema.declaration import declare
from tidelog.views.stores.opening import checked, open_store
from tidelog.views.stores.store import Ask
from views.stores.applied import AT, REVENUE, Applied, row, stretch

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


@proves("P3")
@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///${FOLDER}/views.db",
        "sqlite+fts:////srv/views.db?columns=${COLUMN}",
        "parquet:///${FOLDER}?day=${COLUMN}&grace=${SECONDS}",
        "delta:////srv/${FOLDER}",
        "rediss://${USER}:${PASSWORD}@${HOST}:${PORT}/${DB}?prefix=${NAME}",
        "opensearch+https://${USER}:${PASSWORD}@${HOST}:${PORT}/?prefix=${NAME}",
        "postgresql://${USER}:${PASSWORD}@${HOST}:${PORT}/${DB}?schema=${NAME}&sslmode=${MODE}",
    ],
)
def test_the_form_of_a_url_is_checked_whatever_its_variables_are(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLE.findall(url):
        monkeypatch.delenv(name, raising=False)
    assert checked(url) == url
    with pytest.raises(UsageError, match="not a store; a URL begins with sqlite://"):
        checked(f"my{url}")


@proves("P3", "hostile")
@pytest.mark.parametrize("kind", ["sqlite", "sqlite+fts", "parquet", "delta"])
def test_what_goes_wrong_later_is_told_by_the_path_as_it_was_written(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is shown of a file is its URL, also where the system or a library names the file itself."""
    url, told = f"{kind}:///{tmp_path}/${{NAME}}/views", []
    monkeypatch.setenv("NAME", SECRET)

    def fail(attempt: Callable[[], object]) -> None:
        with pytest.raises(TidelogError) as raised:
            attempt()
        told.append("".join(traceback.format_exception(raised.value)))

    store = open_store(url, "revenue")
    fail(lambda: store.read(Ask()))
    (tmp_path / SECRET).write_text("a file where a folder is to be")
    fail(lambda: store.prepare(1, REVENUE))
    (tmp_path / SECRET).unlink()
    Applied(store).put(row("tea"))
    fail(lambda: store.apply(1, stretch([], 9), before={AT: 8}))
    fail(lambda: store.apply(2, stretch([], 1), before={}))
    fail(lambda: store.forget(1))
    fail(lambda: store.prepare(1, declare({"product": "long"}, ("product",))))
    for file in (tmp_path / SECRET).rglob("*"):
        if file.is_file():
            file.write_bytes(b"{}damaged")
    store.close()
    fail(lambda: open_store(url, "revenue").read(Ask()))
    assert SECRET not in "".join(told)
    assert sum(f"{tmp_path}/${{NAME}}/views" in one for one in told) >= len(told) - 1, told
