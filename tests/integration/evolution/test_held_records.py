"""Records that wait for stream time are not left behind by a topology without their order."""

from __future__ import annotations

import signal
from collections.abc import Callable

from tests.support.applications.pipeline import wait_until
from tests.support.applications.upgraded import OLD, Upgraded
from tests.support.processes.commands import here


def test_held_records_are_run_before_the_order_of_a_step_may_change(
    make_pipeline: Callable[..., Upgraded],
) -> None:
    application = make_pipeline(Upgraded)
    run = application.folder.run
    text = OLD.replace("count: {}", "count: {order: time}").replace("NAME", application.name)
    in_order = application.directory / application.folder.write("ordered.yaml", text)
    application.topology_file = in_order
    applied = here("apply", str(in_order), *application.server)
    assert applied.exit_code == 0, applied.err
    application.feed(100)
    worker = application.start_worker(settings=["worker.max_task_idle_seconds=3600"])
    changelog = f"{application.name}-counted.keyed.__reorder-changelog"
    wait_until(lambda: len(application.read(changelog)) > 0, "held records")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-4000:]
    assert not application.is_complete()

    by_arrival = str(application.old_file)
    refused = run("run-worker", by_arrival, "--until-caught-up")
    assert refused.exit_code == 2
    assert "__reorder" in refused.error
    assert "holds records that are not read" in refused.error
    application.finish_all()
    changed = run("run-worker", by_arrival, "--until-caught-up")
    assert changed.exit_code == 0, changed.err
    assert application.is_complete()
