"""The sentence on the first page, and the problems below it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from eosframework.application.composition.application_status import (
    ApplicationStatus,
    PartitionStatus,
    TaskFailure,
    TaskStatus,
)
from eosframework.application.monitoring.metrics.alerts import ALERTS, Firing
from eosframework.kafka.admin.metadata import GroupMember
from eosframework.operations.console.health import Level, Seen, health_of
from eosframework.operations.console.readings import Reading

MEMBER = GroupMember("shop.one", "10.0.0.1", ())
READY: dict[str, Any] = {"instance": "shop.one", "process": "transforms", "ready": True}


def status(owner: str | None = "shop.one", held: int = 0, **more: Any) -> ApplicationStatus:
    task = TaskStatus("orders[0]", "transforms", owner, (PartitionStatus("in[0]", 5, 0, held),))
    members = (MEMBER,) if owner else ()
    return ApplicationStatus("shop", {"transforms": members}, (task,), **more)


def answered(**content: Any) -> dict[str, Reading[dict[str, Any]]]:
    return {"a:1": Reading({**READY, **content}, datetime.now(UTC))}


def test_all_is_well_only_if_processes_were_asked() -> None:
    assert health_of(Seen(status(), None, answered())).level is Level.GOOD
    unasked = health_of(Seen(status(), None, {}))
    assert unasked.level is Level.NOTE
    assert "not known" in unasked.sentence
    assert health_of(Seen(None, None, {})).level is Level.NOTE


def test_a_process_that_is_not_ready_says_why() -> None:
    found = health_of(
        Seen(status(), None, answered(ready=False, reasons=["orders[0] were fenced"]))
    )
    assert found.level is Level.WARNING
    assert "shop.one is not ready: orders[0] were fenced" in found.sentence


def test_an_alert_that_fires_is_bad_with_its_action() -> None:
    [alert] = [alert for alert in ALERTS if alert.name == "EosDeadLetters"]
    firing = Firing(alert, (("application", "shop"),), "shop writes dead letters", 0.0)
    found = health_of(Seen(status(), None, answered(), [firing]))
    assert found.level is Level.BAD
    [problem] = found.problems
    assert problem.link == "/dead-letters"
    assert problem.detail == alert.action


def test_the_worst_problem_is_the_sentence_and_the_first_of_the_list() -> None:
    failure = TaskFailure("orders[0]", "transforms", "in[0]@5", "boom", "shop.one", 0)
    late = [
        {"step": "count", "topic": "in", "records": 12},
        {"step": "x", "topic": "in", "records": 0},
    ]
    letters = [
        {
            **dict.fromkeys(("step", "error", "topic", "input", "example"), "x"),
            "count": 9,
            "replayed": 2,
        }
    ]
    seen = Seen(
        status(held=3, failures=(failure,)),
        None,
        answered(late=late, passed_over=2, tasks=[{"task": "orders[0]", "waits_for": ["up"]}]),
        dead_letters=letters,
        hanging=[{"topic": "in", "partition": 0, "meaning": "its producer is gone"}],
    )
    found = health_of(seen)
    assert found.level is Level.BAD
    assert found.sentence == "Not well: orders[0] is stopped at record in[0]@5, and 1 more"
    told = " | ".join(problem.what for problem in found.problems)
    for part in ("hanging", "held back", "12 late", "2 records passed over", "held by", "7 dead"):
        assert part in told
    assert "0 late" not in told
    assert all(problem.link.startswith("/") for problem in found.problems)


def test_brokers_that_are_away_and_tasks_without_owner() -> None:
    away = health_of(Seen(status(), "no broker answered", answered()))
    assert away.sentence == "Not well: the cluster cannot be read"
    nobody = health_of(Seen(status(None), None, {}))
    assert "no process runs transforms: 1 task without an owner" in nobody.sentence
    assert nobody.level is Level.BAD
    gone = {"a:1": Reading(READY, None, "connection refused")}
    assert health_of(Seen(status(), None, gone)).sentence == "Look at this: a:1 does not answer"
