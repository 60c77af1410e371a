"""A broker that stops waits for its clients as long as the machine takes: what it left unanswered is a fault then."""

from __future__ import annotations

import pytest

from tidelog.broker import server

PATIENCE_S = 300.0


@pytest.fixture(autouse=True)
def patient_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STOP_WITHIN_S", PATIENCE_S)
