"""The parameters of a backfill's tasks, sent to the executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eosframework.application.start_checks import Facts
from eosframework.config import Settings
from eosframework.records import TopicPartition


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One stage of a job: a sub-topology over the whole range.

    Args:
        graph: of the application, pickled.
        job: its name.
        partitions: number of tasks.
        starts: first position by source partition of every task.
        ends: end offset by source partition; None or missing: the rows' number determines it,
            counted from 0.
        facts: of the cluster, at the start of the job.
        own_topics: internal topics; their records get `WRITER_HEADER`.
        run: id of the stage in one driver. Its attempts may still be active, whatever number Spark
            gives the next attempt: after a lost shuffle it counts from 0 again.
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
