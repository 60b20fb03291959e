"""Workers that a late request of their own fences, which are started again.

A worker that is fenced starts again once, because the fence may be its own:

1. It sends JoinGroup with its `group.instance.id`; the connection breaks before the answer.
2. It sends JoinGroup again, becomes a member and is assigned partitions.
3. The first request arrives late. To the coordinator it is a restart of the instance (KIP-345): the
   name gets a new member id, which no process has, and the worker is fenced.

The coordinator's description of the group is no help: a replaced member keeps the client id and
host of its predecessor. The worker that starts again takes the name back at once. A real rival with
the same name fences it again, which ends it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import structlog

from eosframework.engine.worker.worker_plan import WorkerCounts
from eosframework.kafka.taxonomy import InstanceReplaced
from eosframework.process.progress import total

RIVAL_SECONDS = 300.0
"""A worker that is fenced twice within this time has a rival with the same instance name."""

Report = Callable[[WorkerCounts], WorkerCounts]
"""Takes the counts of the running worker, and returns them with those of the runs before."""


def run_through_own_fence(
    run: Callable[[Report], WorkerCounts],
    instance: str,
    clock: Callable[[], float] = time.monotonic,
) -> WorkerCounts:
    """Run a worker, and once more after a fence that may be its own.

    Args:
        run: makes the checks before a start, and runs a worker to its end; it passes the worker's
            counts through the `Report` that it gets.
        instance: name of the worker.
        clock: seconds, monotonic.

    Returns:
        The counts of all runs.

    Raises:
        InstanceFenced: the group fenced it twice within `RIVAL_SECONDS`, or a rival takes its
            transactional ids, which no late request does.
    """
    former: WorkerCounts | None = None
    latest, fenced_at = WorkerCounts(), -RIVAL_SECONDS

    def report(counts: WorkerCounts) -> WorkerCounts:
        nonlocal latest
        latest = counts if former is None else total([former, counts])
        return latest

    while True:
        try:
            return report(run(report))
        except InstanceReplaced as fence:
            if (now := clock()) - fenced_at < RIVAL_SECONDS:
                raise
            fenced_at = now
            former = replace(latest, lag=0, restoring=0, held=0)
            events = structlog.get_logger("eosframework.worker")
            events.warning("worker_fenced", instance=instance, reason=str(fence))
