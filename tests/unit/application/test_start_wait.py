"""How long a start waits for brokers, by who would start it again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from eosframework.application import start_wait
from eosframework.application.start_wait import WARN_SECONDS, waiting_for_brokers
from eosframework.errors import ClusterUnreachable, ConnectionRefused, StartRefused

CALL_SECONDS = 10.0


class Brokers:
    """Answer at the last of so many calls; each other one takes ten seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, silent: int, error: Exception) -> None:
        self.calls = 0
        self._silent, self._error, self._now = silent, error, 0.0
        monkeypatch.setattr(start_wait.time, "monotonic", lambda: self._now)
        monkeypatch.setattr(start_wait.time, "sleep", self._pass)

    def _pass(self, seconds: float) -> None:
        self._now += seconds

    def ask(self) -> str:
        self.calls += 1
        if self.calls <= self._silent:
            self._pass(CALL_SECONDS)
            raise self._error
        return "answer"


Make = Callable[[int, Exception], Brokers]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Make:
    return lambda silent, error: Brokers(monkeypatch, silent, error)


def test_a_start_that_no_supervisor_repeats_waits_for_its_limit(make: Make) -> None:
    assert waiting_for_brokers(make(5, ClusterUnreachable("no")).ask, 60) == "answer"
    brokers = make(100, ClusterUnreachable("no"))
    with pytest.raises(ClusterUnreachable):
        waiting_for_brokers(brokers.ask, 60)
    assert brokers.calls == 6


def test_a_supervised_start_waits_without_limit_and_warns_each_minute(make: Make) -> None:
    with capture_logs() as logs:
        waiting_for_brokers(make(100, ConnectionRefused("no")).ask, None)
    waits = [log for log in logs if log["event"] == "start_waits_for_brokers"]
    assert len(waits) == pytest.approx(100 * (CALL_SECONDS + 1) / WARN_SECONDS, abs=2)


@pytest.mark.parametrize("error", [ConnectionRefused("credentials"), StartRefused("mismatch")])
def test_what_waiting_does_not_change_is_raised_at_once(make: Make, error: Exception) -> None:
    brokers = make(100, error)
    with pytest.raises(type(error)):
        waiting_for_brokers(brokers.ask, 60)
    assert brokers.calls == 1


def test_a_start_that_is_asked_to_stop_waits_no_longer(make: Make) -> None:
    brokers = make(100, ClusterUnreachable("no"))
    with pytest.raises(ClusterUnreachable):
        waiting_for_brokers(brokers.ask, None, lambda: brokers.calls == 3)
    assert brokers.calls == 3
