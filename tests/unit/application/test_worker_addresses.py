"""The addresses that workers announce in the control topic."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from eosframework.application import worker_addresses as module
from eosframework.application.control_topic import ControlState, ControlTopic
from eosframework.application.worker_addresses import announce, worker_addresses
from eosframework.config import Settings, WorkerSettings


class Entries(ControlTopic):
    """The entries of a control topic, in memory."""

    def __init__(self, entries: dict[str, Any]) -> None:
        self.entries = entries

    def refresh(self) -> ControlState:
        return ControlState(entries=self.entries)

    def write(self, entries: Any) -> None:
        self.entries = {k: v for k, v in {**self.entries, **entries}.items() if v is not None}


def test_an_address_is_announced_and_those_of_workers_long_gone_are_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 10 * module.KEPT_SECONDS
    monkeypatch.setattr(module.time, "time", lambda: now)
    old, new = (now - 2 * module.KEPT_SECONDS) * 1000, (now - 60) * 1000
    topic = Entries(
        {
            "application": {"version": 1},
            "worker/gone": {"http": "a:1", "at": int(old)},
            "worker/member": {"http": "b:1", "at": int(old)},
            "worker/starting": {"http": "c:1", "at": int(new)},
            "worker/odd": 7,
        }
    )
    announce(topic, "own", "[::1]:80", {"member"})
    assert topic.entries.keys() == {
        "application",
        "worker/member",
        "worker/starting",
        "worker/own",
    }
    assert topic.entries["worker/own"] == {"http": "[::1]:80", "at": int(now * 1000)}


@pytest.mark.parametrize(
    "entry", [7, None, {}, {"http": 7}, {"http": "a"}, {"http": "u@a:1"}, {"http": "a:1/x?y:2"}]
)
def test_an_entry_that_is_no_address_counts_as_none(entry: Any) -> None:
    entries = {"worker/a": entry, "worker/b": {"http": "host.shop.svc:8080"}, "worker/": {}}
    assert worker_addresses(ControlState(entries=entries)) == {"b": "host.shop.svc:8080"}


@pytest.mark.parametrize(
    ("stated", "taken", "announced"),
    [
        (None, "127.0.0.1:8080", "127.0.0.1:8080"),
        (None, "0.0.0.0:8080", None),
        (None, "[::]:8080", None),
        ("worker-0.shop.svc:9000", "0.0.0.0:8080", "worker-0.shop.svc:9000"),
        ("worker-0.shop.svc:0", "0.0.0.0:8080", "worker-0.shop.svc:8080"),
    ],
)
def test_a_wildcard_is_not_announced(stated: str | None, taken: str, announced: str | None) -> None:
    settings = WorkerSettings(http_address=taken, http_advertised_address=stated)
    assert settings.announced_address(taken) == announced


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"http_advertised_address": "a:1"}, "needs http_address"),
        ({"http_address": "0.0.0.0:1", "http_advertised_address": "0.0.0.0:1"}, "is a wildcard"),
        ({"http_address": "a:1", "http_advertised_address": "http://a:1"}, "pattern"),
    ],
)
def test_an_address_that_reaches_no_worker_is_refused(values: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Settings.model_validate({"worker": values})
