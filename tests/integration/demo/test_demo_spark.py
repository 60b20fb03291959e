"""The demo of Spark's sinks as a user runs it, over the first flights of the year."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.support.processes.demos import Demo

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]


@pytest.mark.exhaustive
def test_a_topic_and_a_table_have_what_pandas_computes_although_spark_is_killed(
    start: Callable[..., Demo],
) -> None:
    demo = start("demo", "spark", "--flights", "30000", "--seed", "7")
    assert demo.process.wait(2000) == 0, demo.told()
    verdict = demo.verdict()
    assert (verdict["missing"], verdict["extra"], verdict["repeated"]) == (0, 0, 0)
    assert verdict["flights"] == 30_000
    assert verdict["changes"] > verdict["hours"] > 1_500
    assert verdict["kills"] == 3
    killed = re.findall(r"SIGKILL to pid \d+, (.*), in the middle of shard", demo.told())
    assert [name.split(" ")[1] for name in killed] == ["Python", "executor", "driver"]
    assert "Traceback" not in demo.told()
    assert demo.left_running() == []
    assert list(demo.directory.iterdir()) == [demo.story]
