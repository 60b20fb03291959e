"""`plan`, `apply` and `run-worker` on a topology that is not the one that ran."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.soak.foreign import ForeignTransaction
from tests.support.applications.pipeline import wait_until
from tests.support.applications.upgraded import OLD, Upgraded
from tests.support.processes.commands import here

COUNT = "count: {}"


@pytest.fixture
def application(make_pipeline: Callable[..., Upgraded]) -> Upgraded:
    return make_pipeline(Upgraded)


def written(application: Upgraded, name: str, old: str, new: str) -> str:
    assert old in OLD
    text = OLD.replace(old, new).replace("NAME", application.name)
    return str(application.directory / application.folder.write(name, text))


def test_a_change_is_planned_applied_or_refused_by_what_it_does_to_running_workers(
    application: Upgraded,
) -> None:
    run, server = application.folder.run, application.server
    application.feed(100)
    worker = application.work("one", is_new=False)
    wait_until(application.is_complete, "all counted")

    allowed = here("plan", str(application.new_file), "--json", *server)
    assert allowed.exit_code == 0, allowed.err
    assert {c["change"]: c["verdict"] for c in allowed.json["changes"]} == {
        "outputs": "apply",
        "steps": "rolling",
    }
    assert allowed.json["refused"] is None

    windowed = written(application, "windowed.yaml", COUNT, "count: {window: {tumbling: 1s}}")
    planned = here("plan", windowed, *server)
    assert "other_store: store counted.count: made for tumbling windows of 1s" in planned.out
    assert "a worker would not start: the topology of application" in planned.out
    for refused in (here("apply", windowed, *server), run("run-worker", windowed)):
        assert refused.exit_code == 2
        assert "store counted.count" in refused.error
        assert "Give the step another `store:`" in refused.error

    more = f"deduplicate: {{within: 1h, store: once}}\n      - {COUNT}"
    longer = written(application, "longer.yaml", COUNT, more)
    assert here("apply", longer, *server).exit_code == 0
    refused = run("run-worker", longer)
    assert refused.exit_code == 2
    assert "1 workers run" in refused.error

    renamed = written(application, "renamed.yaml", COUNT, "count: {store: again}")
    assert here("apply", renamed, *server).exit_code == 0
    changelog = f"{application.name}-counted.count-changelog"
    accept = ("apply", renamed, "--accept", changelog, *server)
    assert "stop them before another changelog or journal is accepted" in here(*accept).error
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-4000:]
    refused = run("run-worker", renamed)
    assert f"{changelog} has state" in refused.error
    assert "to keep it, write store: counted.count in " in refused.error
    assert here(*accept).exit_code == 0
    started = run("run-worker", renamed, "--until-caught-up")
    assert started.exit_code == 0, started.err
    back = run("run-worker", str(application.old_file))
    assert back.exit_code == 2
    assert "the topology that ran last did without it" in back.error


def test_a_topic_on_the_way_is_left_only_when_nothing_is_unread_in_it(
    application: Upgraded,
) -> None:
    run = application.folder.run
    caught_up = ("run-worker", str(application.old_file), "--until-caught-up")
    application.feed(10)
    assert run(*caught_up).exit_code == 0
    other = written(
        application, "other.yaml", 'tens", key: string}', 'tens", key: string, value: bytes}'
    )
    way = f"{application.name}-counted-repartition"
    hidden = ForeignTransaction(application.bootstrap_servers, way, 1)
    application.sent_aside(way)
    wait = ("--set", "kafka.request_timeout_seconds=5")
    behind = run("run-worker", other, "--until-caught-up", *wait)
    assert behind.exit_code == 2
    assert "holds records that are not read" in behind.error, "the last stable offset hides it"
    hidden.end()
    refused = run("run-worker", other, "--until-caught-up")
    assert refused.exit_code == 2
    assert f"topic {way}" in refused.error
    assert "holds records that are not read" in refused.error
    assert "--until-caught-up" in refused.error
    assert run(*caught_up).exit_code == 0
    done = run("run-worker", other, "--until-caught-up")
    assert done.exit_code == 0, done.err
