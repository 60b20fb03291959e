"""The demo of a backfill as a user runs it, over four weeks of flights."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.support.processes.demos import Demo

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

SPAN = ("--since", "2013-11-15", "--cutover", "2013-12-05", "--until", "2013-12-10")


@pytest.mark.exhaustive
def test_an_archive_by_spark_and_the_rest_live_make_what_all_of_it_makes_live(
    start: Callable[..., Demo],
) -> None:
    """Topics, windows and rows are the same, although Spark and a worker are killed.

    The cutover is on an evening in New York: hours that are open then have flights on both sides.
    That live workers make what pandas makes of the flights is shown by `test_delays_example`.
    """
    demo = start("demo", "backfill", *SPAN, "--seed", "7")
    assert demo.process.wait(2000) == 0, demo.told()
    verdict = demo.verdict()
    assert (verdict["missing"], verdict["extra"]) == (0, 0)
    assert verdict["backfilled"] > 15_000
    assert verdict["live"] > 3_500
    assert verdict["compared"] > verdict["backfilled"] + verdict["live"] + 2 * 2_500
    assert verdict["kills"] == 3
    killed = re.findall(r"SIGKILL to pid \d+, (.*), in the middle of", demo.told())
    assert [name.split(" ")[0] for name in killed] == ["a", "the", "worker"]
    assert "Traceback" not in demo.told()
    assert demo.left_running() == []
    assert list(demo.directory.iterdir()) == [demo.story]
