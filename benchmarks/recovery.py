"""`recovery`: from `kill -9` of a supervised worker to the next commits on its partitions."""

from __future__ import annotations

import os
import random
import signal
import statistics
import time
from collections.abc import Callable
from typing import TypeVar

import orjson
from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from benchmarks.contestants.framework import Framework
from benchmarks.contestants.work import Work
from benchmarks.feeding import feeding
from benchmarks.inputs import PARTITIONS, create_topics
from benchmarks.measure import LOOK_SECONDS, CommittedOffsets
from benchmarks.options import Options
from benchmarks.processes import Child, ProcessFailed
from benchmarks.report import Report, Table
from benchmarks.session import Session

DEFAULT_KILLS = 10
PARTITION_COUNTS = (PARTITIONS, 64)
GOAL_SECONDS = 3.0
DEADLINE_SECONDS = 180.0
IN_FLIGHT_SECONDS = 0.15
"""A commit that the dead worker had sent may still show for this long; no worker starts faster."""

Found = TypeVar("Found")


def run(session: Session, options: Options, report: Report) -> None:
    """Kill one of two workers at random moments while records keep coming."""
    kills = options.rounds or DEFAULT_KILLS

    def measure(offsets: CommittedOffsets, child: Child, work: Work) -> list[float]:
        fed = range(work.partitions)
        with feeding(session.bootstrap_servers, work.input_topic, partitions=fed):
            return [_kill_once(offsets, child, work) for _ in range(kills)]

    found: dict[int, list[float]] = {}
    for count in PARTITION_COUNTS:
        topic = session.name("trickle")
        create_topics(session.bootstrap_servers, topic, partitions=count)
        found[count] = session.run(Framework(processes=2), topic, measure, partitions=count)
        report.progress(f"{count} partitions: {statistics.median(found[count]):.2f} s")
    table = Table(
        title="SIGKILL of one of two supervised workers to commits on all its partitions",
        columns=("partitions", "kills", "median s", "longest s", "goal, s"),
        rows=[
            (
                str(count),
                str(kills),
                f"{statistics.median(seconds):.2f}",
                f"{max(seconds):.2f}",
                f"< {GOAL_SECONDS:g}",
            )
            for count, seconds in found.items()
        ],
    )
    data = {str(count): [round(one, 3) for one in seconds] for count, seconds in found.items()}
    report.add("recovery", table, {"seconds": data})


def _kill_once(offsets: CommittedOffsets, child: Child, work: Work) -> float:
    members = _await(child, lambda: _members(work), "two members that share the partitions")
    before = offsets.by_partition()
    _await(
        child,
        lambda: (
            all(now > then for now, then in zip(offsets.by_partition(), before, strict=True))
            or None
        ),
        "commits on every partition",
    )
    time.sleep(random.uniform(0, 0.5))
    instance, partitions = random.choice(sorted(members.items()))
    os.kill(_worker(child, instance), signal.SIGKILL)
    killed_at = time.monotonic()
    time.sleep(IN_FLIGHT_SECONDS)
    left = offsets.by_partition()

    def all_committed() -> float | None:
        now = offsets.by_partition()
        moved = all(now[partition] > left[partition] for partition in partitions)
        return time.monotonic() - killed_at if moved else None

    return _await(child, all_committed, f"commits on {sorted(partitions)} of {instance}")


def _members(work: Work) -> dict[str, set[int]] | None:
    """Partitions by instance name, once the group is stable and both members have some."""
    admin = AdminClient({"bootstrap.servers": work.bootstrap_servers})
    try:
        group = admin.describe_consumer_groups([work.application])[work.application].result()
    except KafkaException:  # the group's coordinator is not ready; asked again until the deadline
        return None
    members: dict[str, set[int]] = {}
    for member in group.members:
        if member.group_instance_id and member.assignment:
            mine = {p.partition for p in member.assignment.topic_partitions}
            members[member.group_instance_id] = mine
    complete = sum(len(mine) for mine in members.values()) == work.partitions
    stable = group.state is ConsumerGroupState.STABLE
    return members if stable and complete and len(members) == 2 and all(members.values()) else None


def _worker(child: Child, instance: str) -> int:
    """Return the process that the supervisor started last under this name."""
    started = [
        event["pid"]
        for line in child.log.splitlines()
        if line.startswith("{")
        and (event := orjson.loads(line))["event"] == "worker_started"
        and event["instance"] == instance
    ]
    if not started:
        raise ProcessFailed(f"the supervisor {child.pid} has started no worker {instance}")
    return started[-1]


def _await(child: Child, look: Callable[[], Found | None], wanted: str) -> Found:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (found := look()) is None:
        child.require_running()
        if time.monotonic() > deadline:
            raise ProcessFailed(
                f"waited {DEADLINE_SECONDS:g} s in vain for {wanted}; the workers' last lines:\n"
                f"{child.log_tail()}"
            )
        time.sleep(LOOK_SECONDS)
    return found
