"""The claims of a worker: one for each of its tasks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
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
        self._before: frozenset[bytes] = frozenset()
        """Keys of entries of the own ids, read before these were inited."""
        self._explained: set[bytes] = set()
        """Keys of other processes' entries that have explained a fence."""
        self._events = structlog.get_logger("eosframework.worker")

    def prepare(self, own_ids: Collection[str]) -> None:
        """Read the entries of the ids that are inited next (K0).

        Raises:
            Retriable: the topic cannot be read now.
        """
        if self._log is not None and own_ids:
            try:
                self._before = steps.read_ids(self._log, own_ids)
            except ClusterUnreachable as error:
                raise Retriable(str(error)) from error

    def claim(self, by_task: ByTask, producer_of: Callable[[TransactionalId], str]) -> None:
        """Add an entry for each task, whose id was inited (K1).

        Raises:
            Retriable: they were not acknowledged; later ones have other tokens.
        """
        self._add(
            {
                task: Claim(
                    task.sub_topology,
                    task.partition,
                    tuple(sorted({partition.topic for partition in partitions})),
                    producer_of(task),
                    token="",
                )
                for task, partitions in by_task.items()
            }
        )

    def renew(self, tasks: Iterable[TransactionalId]) -> None:
        """Write the entries of tasks anew, because their ids were inited again (K6).

        Raises:
            Retriable: they were not acknowledged, and nothing may be written under the ids before
                they were inited once more.
        """
        self._add({task: self._claims[task] for task in tasks if task in self._claims})

    def take(
        self,
        tasks: Iterable[TransactionalId],
        own_ids: Collection[str],
        fence: Callable[[list[str]], object],
    ) -> None:
        """Fence all other owners of claimed tasks, and remove their entries (K2 to K4).

        Args:
            tasks: claimed since their ids were inited.
            own_ids: the ids passed to `prepare` and inited since.
            fence: inits ids.

        Raises:
            Retriable: the topic cannot be read now.
        """
        if self._log is None:
            return
        others = self._look(self._log, tasks).others
        failpoints.hit("ownership.after_read")
        if ids := sorted({entry.claim.transactional_id for entry in others} - set(own_ids)):
            fence(ids)
        failpoints.hit("ownership.after_fence")
        # An entry of the own id may be that of a process that has inited it since.
        read_before_init = self._before.union(
            entry.claim.key for entry in others if entry.claim.transactional_id in ids
        )
        self._remove([e.claim for e in others if e.claim.key in read_before_init])

    def has_successor(self, tasks: Iterable[TransactionalId]) -> bool:
        """Return whether another process has claimed one of the tasks, which explains a fence.

        It has removed the entry, or added one under its own id. An entry explains one fence only.

        Raises:
            Retriable: the topic cannot be read now.
        """
        wanted = [task for task in tasks if task in self._claims]
        if not wanted or self._log is None:
            return False
        found = self._look(self._log, wanted)
        own_ids = {self._claims[task].transactional_id for task in wanted}
        new = {e.claim.key for e in found.others if e.claim.transactional_id not in own_ids}
        new -= self._explained
        self._explained |= new
        return bool(found.removed or new)

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

    def _add(self, claims: Mapping[TransactionalId, Claim]) -> None:
        """Add entries under new tokens, in place of the earlier ones of the same tasks."""
        if self._log is None or not claims:
            return
        new = {
            task: replace(claim, token=f"{self._process}.{next(self._numbers)}")
            for task, claim in claims.items()
        }
        earlier = [self._claims[task] for task in new if task in self._claims]
        failpoints.hit("ownership.before_entry")
        try:
            steps.add(self._log, [*new.values()], instead_of=earlier)
        except ClusterUnreachable as error:
            raise Retriable(str(error)) from error
        failpoints.hit("ownership.after_entry")
        self._claims.update(new)

    def _remove(self, claims: Sequence[Claim]) -> None:
        """Remove entries; one that stays costs the next owner an init, and nothing else."""
        if self._log is None:
            return
        try:
            steps.remove(self._log, claims)
        except EosError as error:
            self._events.warning("ownership_entries_left", error=str(error))

    def _look(self, log: OwnershipLog, tasks: Iterable[TransactionalId]) -> Found:
        try:
            return steps.look(log, [self._claims[task] for task in tasks])
        except ClusterUnreachable as error:
            raise Retriable(str(error)) from error
