"""Workers are replaced by those of a newer topology, one after the other, while records flow."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.support.applications.load import Feeder
from tests.support.applications.pipeline import wait_until
from tests.support.applications.upgraded import Upgraded
from tests.support.processes.commands import here


@pytest.fixture
def application(make_pipeline: Callable[..., Upgraded]) -> Upgraded:
    return make_pipeline(Upgraded)


def test_a_rolling_upgrade_under_load_with_a_kill_counts_every_record_once(
    application: Upgraded,
) -> None:
    first, second = (application.work(place, is_new=False) for place in ("one", "two"))
    with Feeder(application):
        for worker in (first, second):
            worker.wait_for_event("task_assigned")
        wait_until(lambda: application.counted_by("old") > 200, "counts of the old topology")
        applied = here("apply", str(application.new_file), *application.server)
        assert applied.exit_code == 0, applied.err

        first.signal(signal.SIGTERM)
        assert first.wait() == 0, first.log[-4000:]
        newer = application.work("one", is_new=True)
        newer.wait_for_event("task_assigned")
        wait_until(lambda: application.counted_by("new") > 200, "counts of the new topology")
        before = application.counted_by("old")
        wait_until(lambda: application.counted_by("old") > before, "both at the same time")

        second.signal(signal.SIGKILL)
        assert second.wait() == -signal.SIGKILL
        last = application.work("two", is_new=True)
        last.wait_for_event("task_assigned")
        after = application.counted_by("new")
        wait_until(lambda: application.counted_by("new") > after + 200, "both replaced")
    wait_until(application.is_complete, "every number counted")
    for worker in (newer, last):
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log[-4000:]
    assert application.findings() == []
