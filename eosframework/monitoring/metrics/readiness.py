"""Readiness and `/status` of a process, from its snapshots."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from eosframework.kafka.client.statistics import ClientsSeen, Ends
from eosframework.monitoring.http.health import Reason
from eosframework.outbox.relay import RelayView
from eosframework.processing.task_states import TaskState
from eosframework.processing.worker_views import WorkerView
from eosframework.records import TopicPartition

_WAITING = {
    TaskState.ASSIGNED.value: ("restoring", "restore their state"),
    TaskState.RECOVERING.value: ("recovering", "init their transactional id again"),
    TaskState.FENCED.value: ("fenced", "were fenced, and may have a successor"),
    "unclaimed": ("unclaimed", "are not claimed in the database yet"),
    "in_doubt": ("unclaimed", "are claimed again: their last write got no answer"),
}


class OpenTransactions:
    """Detects partitions whose last stable offset an open transaction has held back for long.

    Args:
        limit_seconds: time in which a healthy transaction ends.
        clock: monotonic, in seconds.
    """

    def __init__(self, limit_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_seconds = limit_seconds
        self._clock = clock
        self._since: dict[TopicPartition, tuple[int, float]] = {}

    def look(
        self, read_to: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, Ends]
    ) -> dict[TopicPartition, float]:
        """Return the seconds for which partitions have been held back, if beyond the limit.

        Args:
            read_to: next offset to read, by partition.
            ends: last stable offset and end offset, by partition.
        """
        now = self._clock()
        waiting = {
            partition: ends[partition].stable
            for partition, offset in read_to.items()
            if partition in ends and offset >= ends[partition].stable < ends[partition].last
        }
        self._since = {
            partition: (stable, since if known == stable else now)
            for partition, stable in waiting.items()
            for known, since in [self._since.get(partition, (None, now))]
        }
        return {
            partition: now - since
            for partition, (_, since) in self._since.items()
            if now - since > self._limit_seconds
        }


def worker_reasons(view: WorkerView, seen: ClientsSeen, open_: OpenTransactions) -> list[Reason]:
    """Return the reasons that a worker is not ready."""
    reasons: list[Reason] = []
    if not view.was_assigned:
        reasons.append(Reason("unassigned", "the group has not assigned partitions yet"))
    if view.unavailable is not None:
        reasons.append(Reason("unavailable", view.unavailable))
    for state, (code, what) in _WAITING.items():
        if names := [task.name for task in view.tasks if task.state == state]:
            left = f"; {view.counts.restoring} changelog records are left"
            listed = _listed(names)
            reasons.append(Reason(code, f"{listed} {what}{left if code == 'restoring' else ''}"))
    if waits := [task for task in view.tasks if task.is_held]:
        missing = sorted({name for task in waits for name in task.missing})
        reasons.append(
            Reason(
                "upstream_missing",
                f"{_listed(task.name for task in waits)} hold{'s' * (len(waits) == 1)} stream "
                f"time: no watermark has come from {_listed(missing)}. Run workers for them, of "
                f"this version",
            )
        )
    read_to = {p: offset for task in view.tasks for p, offset in task.read_to.items()}
    if held := open_.look(read_to, seen.ends):
        longest = max(held.values())
        reasons.append(
            Reason(
                "held_back",
                f"{_listed(sorted(map(str, held)))} {'is' if len(held) == 1 else 'are'} held back "
                f"by an open transaction of a producer, for {longest:.0f} s; `eosframework txn "
                f"hanging` names it",
            )
        )
    return reasons


def relay_reasons(view: RelayView, seen: ClientsSeen) -> list[Reason]:
    """Return the reasons that a relay is not ready; a standby relay is ready."""
    reasons: list[Reason] = []
    if view.unavailable is not None:
        reasons.append(Reason("unavailable", view.unavailable))
    elif not view.shards and not view.stands_by:
        reasons.append(Reason("unassigned", "no shard was taken over yet"))
    if out := [f"shard {number}" for number, runs in view.shards.items() if not runs]:
        reasons.append(Reason("recovering", f"{_listed(out)} init their transactional id again"))
    return reasons


def _listed(names: Iterable[str], most: int = 5) -> str:
    names = list(names)
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def worker_status(view: WorkerView, seen: ClientsSeen) -> Mapping[str, Any]:
    """Return a worker's tasks, each with its partitions' positions and lag, and late records."""
    return {
        "tasks": [
            {
                "task": task.name,
                "state": task.state,
                "stream_time": task.stream_time,
                "waits_for": list(task.missing),
                "partitions": [
                    _partition_status(partition, offset, seen.ends.get(partition))
                    for partition, offset in task.read_to.items()
                ],
            }
            for task in view.tasks
        ],
        "records": view.counts.records,
        "commits": view.counts.commits,
        "aborts": view.counts.aborts,
        "recycles": view.counts.recycles,
        "fences": view.counts.fences,
        "restoring": view.counts.restoring,
        "passed_over": view.counts.passed_over,
        "closed_by_clock": view.counts.closed_by_clock,
        "held": view.counts.held,
        "keyless": [
            {"step": place.step, "topic": place.topic, "records": count}
            for place, count in sorted(view.keyless.items())
        ],
        "late": [
            {"step": place.step, "topic": place.topic, "records": count}
            for place, count in sorted(view.late.items())
        ],
    }


def relay_status(view: RelayView, seen: ClientsSeen) -> Mapping[str, Any]:
    """Return a relay's shards, each with whether it is in service."""
    return {
        "shards": {str(number): runs for number, runs in view.shards.items()},
        "stands_by": view.stands_by,
        "messages": view.counts.messages,
        "backlog": None if view.backlog is None else asdict(view.backlog),
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
