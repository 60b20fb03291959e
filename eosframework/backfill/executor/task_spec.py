"""What a task of a backfill needs to know; it travels to the executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eosframework.application.start_checks import Facts
from eosframework.config import Settings
from eosframework.records import TopicPartition


@dataclass(frozen=True, slots=True)
class Work:
    """One stage of a job: a sub-topology over the whole range.

    Args:
        graph: of the application, packed.
        job: its name.
        partitions: how many tasks the sub-topology has.
        starts: by source partition of every task, the first position.
        ends: the position when everything is processed; None, or not there: the number of rows
            tells, as they are counted from 0.
        facts: of the cluster, when the job was started.
        own_topics: records that go there tell who wrote them; see `job.WRITER_HEADER`.
        run: of the stage by one driver. What it has started may be at work still, whatever number
            Spark gives the next attempt: after a lost shuffle it counts from 0 again.
    """

    graph: bytes
    settings: Settings
    job: str
    sub_topology: str
    partitions: int
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int | None]
    facts: Facts
    own_topics: frozenset[str]
    run: str = ""
