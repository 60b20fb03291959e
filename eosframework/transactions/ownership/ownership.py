"""The claims of a worker: one for each of its tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count

import structlog

from eosframework.errors import ClusterUnreachable, EosError, Retriable
from eosframework.records import TopicPartition
from eosframework.transactions import failpoints
from eosframework.transactions.ownership import steps
from eosframework.transactions.ownership.entries import Claim
from eosframework.transactions.ownership.steps import Found, OwnershipLog
from eosframework.txnid import TransactionalId

ByTask = Mapping[TransactionalId, Sequence[TopicPartition]]
"""The source partitions of tasks."""


class Ownership:
    """The claims of one process.

    Args:
        log: the ownership topic; None: there are no transactions to fence, so nothing is claimed.
        process: a name that no other process ever has, the first part of tokens.
    """

    def __init__(self, log: OwnershipLog | None = None, process: str = "") -> None:
        self._log = log
        self._process = process
        self._numbers = count(1)
        self._claims: dict[TransactionalId, Claim] = {}
        self._events = structlog.get_logger("eosframework.worker")

    def claim(self, by_task: ByTask, producer_of: Callable[[TransactionalId], str]) -> None:
        """Add an entry for each task (K1).

        Raises:
            Retriable: they were not acknowledged; later ones have other tokens.
        """
        if self._log is None or not by_task:
            return
        claims = {
            task: Claim(
                task.sub_topology,
                task.partition,
                tuple(sorted({partition.topic for partition in partitions})),
                producer_of(task),
                f"{self._process}.{next(self._numbers)}",
            )
            for task, partitions in by_task.items()
        }
        failpoints.hit("ownership.before_entry")
        try:
            steps.add(self._log, [*claims.values()])
        except ClusterUnreachable as error:
            raise Retriable(str(error)) from error
        failpoints.hit("ownership.after_entry")
        self._claims.update(claims)

    def take(
        self,
        tasks: Iterable[TransactionalId],
        own_ids: Iterable[str],
        fence: Callable[[list[str]], object],
    ) -> None:
        """Fence all earlier owners of claimed tasks, and remove their entries (K2 to K4).

        Args:
            tasks: their ids were inited after `claim` (K0).
            own_ids: the ids inited there.
            fence: inits ids.

        Raises:
            Retriable: another process has claimed a task later, or the topic cannot be read now;
                claim the tasks again if the group still assigns them.
        """
        if self._log is None:
            return
        found = self._look(self._log, self._claims_of(tasks))
        failpoints.hit("ownership.after_read")
        if found.superseded:
            self._remove(found.superseded)
            raise Retriable(
                f"{_named(found.superseded)}: another process has claimed the partition later; it "
                f"is claimed again if the group still assigns it to this worker"
            )
        if ids := found.ids(own_ids):
            fence(ids)
        failpoints.hit("ownership.after_fence")
        self._remove([entry.claim for entry in found.earlier])

    def superseded(self, tasks: Iterable[TransactionalId]) -> list[TransactionalId]:
        """Return the tasks that another process has claimed since (K6).

        A task without a claim counts as well.

        Raises:
            Retriable: the topic cannot be read now.
        """
        wanted = list(tasks)
        if not wanted or self._log is None:
            return []
        claimed = [task for task in wanted if task in self._claims]
        lost = {claim.key for claim in self._look(self._log, self._claims_of(claimed)).superseded}
        return [t for t in wanted if t not in self._claims or self._claims[t].key in lost]

    def forget(self, tasks: Iterable[TransactionalId]) -> None:
        """Drop the claims of tasks; their entries stay until a successor has fenced the ids."""
        for task in tasks:
            self._claims.pop(task, None)

    def release(self, tasks: Iterable[TransactionalId]) -> None:
        """Remove the entries of tasks: nothing of them is undecided, or can be written any more.

        If that fails, the entries stay, and the next owner inits their ids.
        """
        claims = [self._claims.pop(task) for task in tasks if task in self._claims]
        self._remove(claims)

    def _remove(self, claims: Sequence[Claim]) -> None:
        """Remove entries; one that stays costs the next owner an init, and nothing else."""
        if self._log is None:
            return
        try:
            steps.remove(self._log, claims)
        except EosError as error:
            self._events.warning("ownership_entries_left", error=str(error))

    def _look(self, log: OwnershipLog, claims: Sequence[Claim]) -> Found:
        try:
            return steps.look(log, claims)
        except ClusterUnreachable as error:
            raise Retriable(str(error)) from error

    def _claims_of(self, tasks: Iterable[TransactionalId]) -> list[Claim]:
        return [self._claims[task] for task in tasks]


def _named(claims: Sequence[Claim]) -> str:
    names = [f"{claim.sub_topology}[{claim.partition}]" for claim in claims[:3]]
    more = len(claims) - len(names)
    return ", ".join([*names, *([f"{more} more"] if more else [])])
