"""`status` says who has each task, how far it is, and what holds it back."""

from __future__ import annotations

from eosframework.application.composition.application_status import (
    ApplicationStatus,
    PartitionStatus,
    TaskStatus,
)
from eosframework.cli.status import _lines, _report
from eosframework.kafka.admin.metadata import GroupMember
from eosframework.records import TopicPartition

FOUND = ApplicationStatus(
    "shop",
    {
        "transforms": (
            GroupMember("vm.0", "10.0.0.7", (TopicPartition("in", 0), TopicPartition("in", 1))),
        )
    },
    (
        TaskStatus("in[0]", "transforms", "vm.0", (PartitionStatus("in[0]", 1200, 0, 3),)),
        TaskStatus("in[1]", "transforms", "vm.0", (PartitionStatus("in[1]", 5, 4321, 0),)),
        TaskStatus("in[10]", "transforms", None, (PartitionStatus("in[10]", None, 7, 0),)),
    ),
)
TOLD = {
    "vm:8080": {
        "process": "transforms",
        "ready": False,
        "reasons": ["in[1] wait for their state"],
        "tasks": [{"task": "in[1]", "state": "assigned"}],
    }
}


def test_every_task_has_a_line_with_owner_lag_and_what_holds_it_back() -> None:
    assert _lines(FOUND, {}) == [
        "shop: 1 member, 3 tasks, lag 4,328",
        "  vm.0 on 10.0.0.7: transforms, 2 partitions",
        "in[0]   vm.0, lag 0, 3 held back by an open transaction",
        "in[1]   vm.0, lag 4,321",
        "in[10]  no owner, lag 7, never committed",
    ]


def test_a_process_that_is_asked_adds_states_and_reasons() -> None:
    lines = _lines(FOUND, TOLD)
    assert "in[1]   vm.0, assigned, lag 4,321" in lines
    assert lines[-1] == "vm:8080: not ready: in[1] wait for their state"


def test_the_report_has_everything_that_the_lines_have() -> None:
    report = _report(FOUND, TOLD)
    assert [task["lag"] for task in report["tasks"]] == [0, 4321, 7]
    assert report["members"]["transforms"][0]["partitions"] == ["in[0]", "in[1]"]
    assert report["asked"] == TOLD
