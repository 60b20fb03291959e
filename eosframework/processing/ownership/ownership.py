"""The claims of a worker: one for each of its tasks, once entries are recorded.

An application records no entries until a worker with an id of its own has asked for them
(`application/ownership_topic`). So a takeover reads the request after its init (S4):

    the request is there        K1, K0, K2 to K5
    it was not read yet         T1 inits the static ids. If the request is there now: all again

That is sound because the first worker that asks inits every static id afterwards: an id was inited
before that and is fenced, or after it and its owner has read the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count

import structlog

from eosframework import failpoints
from eosframework.errors import ClusterUnreachable, EosError, Retriable
from eosframework.processing.ownership import steps
from eosframework.processing.ownership.entries import Claim
from eosframework.processing.ownership.steps import Found, OwnershipLog
from eosframework.records import TopicPartition
from eosframework.txnid import TransactionalId

ByTask = Mapping[TransactionalId, Sequence[TopicPartition]]
"""The source partitions of tasks."""


class Ownership:
    """The claims of one process.

    Args:
        log: the ownership topic.
        is_asked: returns whether entries are to be recorded.
        process: a name that no other process ever has, the first part of tokens.
        records: entries are known to be recorded.
    """

    def __init__(
        self,
        log: OwnershipLog,
        is_asked: Callable[[], bool],
        process: str,
        *,
        records: bool = False,
    ) -> None:
        self._log = log
        self._is_asked = is_asked
        self._process = process
        self._numbers = count(1)
        self._records = records
        self._claims: dict[TransactionalId, Claim] = {}
        self._events = structlog.get_logger("eosframework.worker")

    @property
    def records(self) -> bool:
        """True once entries are known to be recorded."""
        return self._records

    def is_asked_now(self) -> bool:
        """Return whether entries are to be recorded; read after an init (S4).

        Raises:
            Retriable: it cannot be determined now.
        """
        if not self._records:
            try:
                self._records = self._is_asked()
            except ClusterUnreachable as error:
                raise Retriable(str(error)) from error
        return self._records

    def claim(self, by_task: ByTask, producer_of: Callable[[TransactionalId], str]) -> None:
        """Add an entry for each task, if entries are recorded (K1).

        Raises:
            Retriable: they were not acknowledged; later ones have other tokens.
        """
        if not self._records or not by_task:
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
        if not self._records:
            return
        claims = self._claims_of(tasks)
        found = self._look(claims)
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

        Once entries are recorded, a task without a claim counts as well.

        Raises:
            Retriable: the topic cannot be read now.
        """
        wanted = list(tasks)
        if not wanted or not self.is_asked_now():
            return []
        claimed = [task for task in wanted if task in self._claims]
        lost = {claim.key for claim in self._look(self._claims_of(claimed)).superseded}
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
        try:
            steps.remove(self._log, claims)
        except EosError as error:
            self._events.warning("ownership_entries_left", error=str(error))

    def _look(self, claims: Sequence[Claim]) -> Found:
        try:
            return steps.look(self._log, claims)
        except ClusterUnreachable as error:
            raise Retriable(str(error)) from error

    def _claims_of(self, tasks: Iterable[TransactionalId]) -> list[Claim]:
        return [self._claims[task] for task in tasks]


class _NoLog:
    topic = ""

    def write(self, values: Mapping[bytes, bytes | None]) -> None:
        raise AssertionError("nothing is recorded")

    def read(self) -> steps.Stored:
        raise AssertionError("nothing is recorded")


def unrecorded() -> Ownership:
    """Return the ownership of a worker whose application records no entries."""
    return Ownership(_NoLog(), lambda: False, "")


def _named(claims: Sequence[Claim]) -> str:
    names = [f"{claim.sub_topology}[{claim.partition}]" for claim in claims[:3]]
    more = len(claims) - len(names)
    return ", ".join([*names, *([f"{more} more"] if more else [])])
