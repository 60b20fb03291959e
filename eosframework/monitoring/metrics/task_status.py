"""The content of `/status`: every task with its partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eosframework.kafka.client.statistics import ClientsSeen, Ends
from eosframework.outbox.relay_views import RelayView
from eosframework.processing.worker_views import WorkerView
from eosframework.records import TopicPartition


def worker_status(view: WorkerView, seen: ClientsSeen) -> Mapping[str, Any]:
    """Return a worker's tasks, each with its partitions' positions and lag."""
    return {
        "tasks": [
            {
                "task": task.name,
                "state": task.state,
                "partitions": [
                    _partition_status(partition, offset, seen.ends.get(partition))
                    for partition, offset in task.read_to.items()
                ],
            }
            for task in view.tasks
        ],
        "records": view.counts.records,
        "restoring": view.counts.restoring,
    }


def relay_status(view: RelayView, seen: ClientsSeen) -> Mapping[str, Any]:
    """Return a relay's shards, each with whether it is in service."""
    return {
        "shards": {str(number): runs for number, runs in view.shards.items()},
        "stands_by": view.stands_by,
        "messages": view.counts.messages,
    }


def _partition_status(
    partition: TopicPartition, read_to: int, ends: Ends | None
) -> Mapping[str, Any]:
    return {
        "partition": str(partition),
        "read_to": read_to,
        "lag": None if ends is None else max(0, ends.stable - read_to),
        "held_back": None if ends is None else max(0, ends.last - max(ends.stable, read_to)),
    }
