"""A driver that begins with the state of a task."""

from __future__ import annotations

import pytest

from eosframework import Topology, tumbling
from eosframework.errors import ConfigurationError
from eosframework.testing import TopologyTestDriver


def amount(value: int) -> int:
    """Return the value itself."""
    return value


def summed() -> Topology:
    """Sums of each key, and counts in windows."""
    app = Topology("app")
    numbers = app.stream("in", key=str, value="json")
    numbers.group_by_key().sum(amount, store="sums").to("out", value="json")
    windows = numbers.group_by_key().window(tumbling("10ms"))
    windows.count(store="counts", emit="close").to("closed", value="json")
    return app


def entries(driver: TopologyTestDriver) -> dict[str, dict[bytes, bytes]]:
    """Return the entries in the changelogs, as a test that is printed has them."""
    found: dict[str, dict[bytes, bytes]] = {}
    for store in ("sums", "counts"):
        log = driver.kafka.logs[driver.kafka.partitions_of(f"app-{store}-changelog")[0]]
        kept: dict[bytes, bytes] = {}
        for message in log.read(0, log.end):
            key, value = message.key() or b"", message.value()
            kept.pop(key, None)
            if value is not None:
                kept[key] = value
        found[store] = kept
    return found


def test_a_restored_driver_gives_what_the_first_one_gives() -> None:
    first = TopologyTestDriver(summed())
    for value, at in ((1, 1), (2, 4), (5, 12)):
        first.send("in", value, key="a", timestamp=at)
    first.run()
    state = entries(first)
    for topic in ("out", "closed"):
        first.read(topic)
    second = TopologyTestDriver(summed())
    second.restore("in", state, stream_time=12)
    for driver in (first, second):
        driver.send("in", 10, key="a", timestamp=25)
        driver.send("in", 7, key="a", timestamp=3)
        driver.run()
    for topic in ("out", "closed"):
        given = [(r.key, r.value, r.timestamp) for r in first.read(topic)]
        assert given == [(r.key, r.value, r.timestamp) for r in second.read(topic)] != []
    assert first.state("sums") == second.state("sums") == {"a": 25}


def test_a_state_of_something_else_is_refused() -> None:
    driver = TopologyTestDriver(summed())
    with pytest.raises(ConfigurationError, match="no sub-topology 'other'; there are in"):
        driver.restore("other", {})
    with pytest.raises(ConfigurationError, match="no store 'other'"):
        driver.restore("in", {"other": {b"a": b"b"}})
