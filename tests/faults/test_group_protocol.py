"""Workers in a group of KIP-848: the product joins none, and would keep its guarantee in one.

It is the seam of the group protocol that is tried here (docs/adr/0046-seams-of-the-client.md);
`--group-protocol=consumer` runs other tests of workers the same way.
"""

from __future__ import annotations

import signal
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.applications.pipeline import Pipeline, wait_until

OF_KIP_848 = {"EOS_TEST_GROUP_PROTOCOL": "consumer"}
RECORDS = 2000
SLOW_TO_EXPIRE = ["worker.transaction_timeout_seconds=300"]


def group_of(pipeline: Pipeline) -> Any:
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap_servers})
    return admin.describe_consumer_groups([pipeline.name])[pipeline.name].result(30)


@pytest.mark.exhaustive
@pytest.mark.parametrize("action", ["kill", "stop"])
@pytest.mark.parametrize("point", ["transaction.after_send_offsets", "transaction.before_commit"])
def test_a_member_that_dies_or_stands_still_is_replaced_by_one_that_fences_it(
    pipeline: Pipeline, point: str, action: str
) -> None:
    pipeline.feed(RECORDS)
    first = pipeline.start_worker(
        instance="one",
        faults=[f"{point}={action}@3"],
        settings=SLOW_TO_EXPIRE,
        environment=OF_KIP_848,
    )
    pipeline.feed_until_fault(first, point)
    group = group_of(pipeline)
    assert group.type.name == "CONSUMER"
    second = pipeline.start_worker(instance="two", environment=OF_KIP_848)
    second.wait_for_event("task_assigned", 4)
    wait_until(lambda: pipeline.committed() == pipeline.fed, "the successor's commit")
    third = pipeline.start_worker(instance="three", environment=OF_KIP_848)
    third.wait_for_event("task_assigned", 1)
    pipeline.feed(RECORDS)
    if action == "stop":
        first.signal(signal.SIGCONT)
        first.wait_until_displaced()
    wait_until(lambda: pipeline.committed() == pipeline.fed, "the rest")
    for worker in (first, second, third):
        if worker.process.poll() is None:
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0, worker.log[-3000:]
    verdict = pipeline.verify()
    assert verdict.clean, verdict
