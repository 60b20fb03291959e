"""Attempts at tasks that Spark may repeat: retries, speculative copies, repeated stages.

A task is an owned key (`transactions/session/owned_keys`): its transactional id is the same for
every attempt, and its progress names the attempt that wrote it. A later attempt watches the first
one before it claims the task: a retry and a speculative copy are indistinguishable, and a copy that
took over at its start would undo the work that it should speed up.

There is no group that could show whether an id was taken or a transaction expired: the entries
written since the claim do. A new init would fence a successor, which would init in turn: each of
them ends the other's transaction. So an attempt in doubt checks them before it takes its id again.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import structlog

from eosframework.config import Settings
from eosframework.errors import ClusterUnreachable, DatabaseUnavailable
from eosframework.transactions.ports import Entries, Journal, TransactionalOutputs
from eosframework.transactions.session.owned_keys import Claim, KeyWork, OwnedKey, OwnedKeys
from eosframework.transactions.session.session_states import Policy, State

LOOK_SECONDS = 1.0
"""Interval between two looks at the other attempt's progress."""

SUCCESSOR_SECONDS = 5.0
"""Wait of an attempt whose transaction expired for a sign of a successor; one that took the task
announces itself with its first transaction."""


@dataclass(frozen=True, slots=True)
class SignOfLife:
    """The visible activity of a task's owner.

    Args:
        mark: a change is a sign of life; None: nothing was written yet.
        ended: the task has no owner any more, or is complete.
    """

    mark: object = None
    ended: bool = False


def wait_for_turn(
    look: Callable[[], SignOfLife],
    stall_seconds: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> SignOfLife:
    """Wait for a period without a sign of life, and return the last sign.

    Time without an answer says nothing of the other attempt, and does not count.

    Args:
        look: returns the current sign.
        stall_seconds: length of the period.
        clock: seconds, monotonic.
        sleep: waits for a number of seconds.
    """
    events = structlog.get_logger("eosframework.backfill")
    last = look()
    heard_at = looked_at = clock()
    if not last.ended:
        events.info("attempt_watches", stall_seconds=stall_seconds)
    pause_seconds = min(LOOK_SECONDS, stall_seconds / 5)
    while not last.ended and looked_at - heard_at < stall_seconds:
        sleep(pause_seconds)
        try:
            sign = look()
        except (ClusterUnreachable, DatabaseUnavailable) as error:
            events.warning("watch_retried", error=str(error))
            heard_at += clock() - looked_at
            looked_at = clock()
            continue
        looked_at = clock()
        if sign.mark != last.mark:
            heard_at = looked_at
        last = sign
    return last


class AttemptProgress(Protocol):
    """The progress of a task as an attempt wrote it."""

    @property
    def attempt(self) -> str:
        """Name of the attempt that wrote it."""
        ...

    @property
    def complete(self) -> bool:
        """True if nothing of the task is left."""
        ...

    @property
    def ended(self) -> bool:
        """True if the attempt that wrote it has ended, so its successor need not wait."""
        ...


P = TypeVar("P", bound=AttemptProgress)


class TaskAttempt(Generic[P]):
    """One attempt at some tasks.

    Args:
        outputs: transactional producers.
        journal: has the progress of the tasks.
        settings: the transaction timeout, and the period without a sign of life after which another
            attempt counts as lost.
        number: of the attempt; 0 only if no other one can be healthy.
        logger: name of the log.
        lost: see `OwnedKeys`.
        run: id of the attempts that one driver started; empty: there is none.
        signs_since: offset in the journal at which signs of life begin; 0: all entries are.
        since: see `OwnedKeys`.
        before: see `OwnedKeys`.
        checks: see `OwnedKeys`.
        clock: seconds, monotonic.
        sleep: waits for a number of seconds.

    Attributes:
        name: unique, in the progress that it writes.
        keys: claims the tasks and commits their progress.
    """

    def __init__(
        self,
        outputs: TransactionalOutputs,
        journal: Journal,
        settings: Settings,
        number: int,
        *,
        logger: str,
        lost: str,
        run: str = "",
        signs_since: int = 0,
        since: int | None = None,
        before: Entries | None = None,
        checks: Mapping[str, Callable[[Any], None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._suffix = f"@{run}" if run else ""
        place = f"{socket.gethostname()}/{os.getpid()}"
        self.name = f"{place}/{number}/{uuid.uuid4().hex[:8]}{self._suffix}"
        self._journal = journal
        self._number = number
        self._stall_seconds = settings.backfill.stall_seconds
        self._signs_since = signs_since
        self._clock = clock
        self._sleep = sleep
        policy = Policy(
            settings.worker.transaction_timeout_seconds,
            successor="another attempt",
            advice="Another attempt of the task resumes at the committed progress",
        )
        self.keys: OwnedKeys[P] = OwnedKeys(
            outputs,
            journal,
            policy,
            structlog.get_logger(logger).bind(attempt=self.name),
            lost=lost,
            since=since,
            before=before,
            checks=checks,
            clock=clock,
            sleep=sleep,
        )

    def take(
        self, tasks: Sequence[Claim[P]], *, skip_complete: bool = True
    ) -> tuple[dict[str, P], list[OwnedKey[P]]]:
        """Own tasks, or find that another attempt has completed them meanwhile (A1 to A3).

        Args:
            tasks: at least one.
            skip_complete: a task that another attempt completed meanwhile is not owned.

        Returns:
            By key, the progress of those that another attempt completed; and the others, owned.

        Raises:
            InstanceFenced: another attempt took one meanwhile.
            RunError: the brokers refuse an id.
            ClusterUnreachable: the cluster did not answer for long.
        """
        done: dict[str, P] = {}
        if self._number > 0 or self._is_shared(tasks):
            self._watch(tasks, self._stall_seconds)
            if skip_complete:
                done = self.keys.patiently(lambda: self._completed(tasks), tasks[0].name)
        left = [task for task in tasks if task.key not in done]
        owned = self.keys.claim(left) if left else []
        for one in owned:
            AttemptWork(self, one)
        return done, owned

    def prove(self, owned: OwnedKey[P]) -> None:
        """Prove that no other attempt has the task.

        An abort needs no proof: the brokers have just accepted this producer.

        Raises:
            InstanceFenced: another attempt has written.
        """
        if owned.state is State.ABORTABLE:
            return
        if owned.fence is not None:
            self._watch([owned.claim], min(SUCCESSOR_SECONDS, self._stall_seconds))
        for _, newest in self._newest([owned.claim], owned.claimed_at).values():
            if newest.attempt != self.name:
                raise owned.taken_over(newest.attempt)

    def _is_shared(self, tasks: Sequence[Claim[P]]) -> bool:
        """Return whether another attempt of this run was active before."""
        if not self._suffix:
            return False
        newest = self.keys.patiently(lambda: self._newest(tasks), tasks[0].name)
        return any(progress.attempt.endswith(self._suffix) for _, progress in newest.values())

    def _watch(self, tasks: Sequence[Claim[P]], stall_seconds: float) -> None:
        """Wait until no other attempt is active; it writes one task after the other."""
        newest: dict[str, tuple[int, P]] = {}
        looked_to = 0

        def look() -> SignOfLife:
            # Other tasks' entries make the log long: each look resumes where the last one ended.
            nonlocal looked_to
            end = self._journal.written_end()
            newest.update(self._newest(tasks, looked_to))
            looked_to = end
            if not newest:
                return SignOfLife()
            offset, last = max(newest.values(), key=lambda one: one[0])
            ended = last.ended
            if len(newest) == len(tasks) and all(one.complete for _, one in newest.values()):
                ended = len(self._completed(tasks)) == len(tasks)
            return SignOfLife(offset, ended)

        wait_for_turn(look, stall_seconds, clock=self._clock, sleep=self._sleep)

    def _newest(self, tasks: Sequence[Claim[P]], since: int = 0) -> dict[str, tuple[int, P]]:
        """Return the newest progress of tasks with its offset, by key, committed or not."""
        found = self._journal.newest([task.key for task in tasks], max(since, self._signs_since))
        return {
            task.key: (found[task.key][0], progress)
            for task in tasks
            if task.key in found and (progress := task.read(found[task.key][1])) is not None
        }

    def _completed(self, tasks: Sequence[Claim[P]]) -> dict[str, P]:
        """Return the decided progress of the tasks that are complete, by key."""
        decided = self._journal.decided([task.key for task in tasks])
        found = {task.key: task.of(decided) for task in tasks}
        return {key: one for key, one in found.items() if one is not None and one.complete}


class AttemptWork(KeyWork[P]):
    """The work of an attempt at one task.

    Args:
        attempt: has taken the task.
        owned: the task's key.
    """

    def __init__(self, attempt: TaskAttempt[P], owned: OwnedKey[P]) -> None:
        super().__init__(owned)
        self.attempt = attempt

    def prove(self) -> None:
        """Prove that no other attempt has the task; see `TaskAttempt.prove`."""
        self.attempt.prove(self.owned)
