"""The settlement of what the database has decided, before anybody resumes after it (ADR 33).

A transaction of an id whose tasks write tables with `commit: together`:

    V1  begin; run the records; produce; send the offsets, whose metadata has the number of each
        task's transaction; wait until the brokers have all of it
    V2  one transaction of the database: the decision, if the id's epoch is still this process's;
        the offset of each partition, if it is still the one before; the rows. Its COMMIT decides
    V3  commit in Kafka. The next transaction begins after that; any other answer leads to V4

Taking over from an id, this process's own included, after any doubt:

    V4  raise the id's epoch in the database, and read its last decision
    V5  init the id: what is open is aborted, and a late request is refused
    V6  read the stable offsets of the decision's partitions. Where they are before the decision's,
        produce again what it has, with its offsets, and commit; no rows

V5 may come first: a decision between the two is found by V4, and produced again. In a takeover V5
is K0 or K3, and in a recovery R1. All partitions of a decision are one transaction, so any one of
them shows whether Kafka has it. The number shows it and not the offset, because a transaction of
timers moves none. `docs/model/together.pml` takes each rule out.

Two takers of one id fence each other at V5: the later one finds the work of the earlier one done,
or does it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import structlog

from eosframework.engine.task.offsets import Progress
from eosframework.engine.task.open_decision import OpenDecision
from eosframework.engine.worker.worker_plan import Plan
from eosframework.errors import Retriable, StartRefused
from eosframework.records import Position, TopicPartition
from eosframework.transactions import failpoints
from eosframework.transactions.ownership import ByTask
from eosframework.transactions.ports import (
    Commit,
    Decided,
    Decisions,
    InputLog,
    TransactionalOutput,
    TransactionalOutputs,
)
from eosframework.transactions.producing import produce_all


class _Offsets(Protocol):
    """The part of an `InputLog` that a settlement uses."""

    def committed(self, partitions: Sequence[TopicPartition]) -> list[Position]: ...
    def membership(self) -> Any: ...


class Settlement:
    """Makes Kafka follow the decisions of ids that this process has inited.

    Args:
        decisions: the database.
        outputs: opens the producers of other processes' ids.
        log: has the committed offsets, and the membership.
    """

    def __init__(self, decisions: Decisions, outputs: TransactionalOutputs, log: _Offsets) -> None:
        self._decisions = decisions
        self._outputs = outputs
        self._log = log
        self._events = structlog.get_logger("eosframework.recovery")

    def settle_others(self, ids: Collection[str]) -> None:
        """Settle the last decisions of other processes, whose ids were inited since (V4, V6).

        Raises:
            Retriable: the ids have to be inited again before another attempt.
            RunError: the database refuses it until the cause is fixed.
        """
        self._follow(self._decisions.take(ids, {}), {})

    def _follow(self, decided: Sequence[Decided], own: Mapping[str, TransactionalOutput]) -> None:
        """Produce again what Kafka lacks (V6)."""
        failpoints.hit("settlement.after_take")
        for one in self._missing(decided):
            if (output := own.get(one.transactional_id)) is not None:
                self._produce_again(one, output)
                continue
            [output] = self._outputs.open([one.transactional_id])
            try:
                self._produce_again(one, output)
            finally:
                self._outputs.close([output])

    def _missing(self, decided: Sequence[Decided]) -> list[Decided]:
        """Return the transactions that Kafka has not committed (V6)."""
        if not decided:
            return []
        partitions = {p.topic_partition for one in decided for p in one.positions}
        stable = {p.topic_partition: p for p in self._log.committed(sorted(partitions))}
        return [
            one
            for one in decided
            if any(_is_before(stable[p.topic_partition], p) for p in one.positions)
        ]

    def _produce_again(self, decided: Decided, output: TransactionalOutput) -> None:
        """Commit in Kafka what the database has decided (V6).

        Raises:
            Retriable: the outcome is not known, or a request may be late.
        """
        output.begin()
        produce_all(output, decided.outputs)
        membership = self._log.membership()
        failpoints.hit("settlement.before_commit")
        [result] = self._outputs.commit([Commit(output, decided.positions, membership)])
        id_ = decided.transactional_id
        if result.error is not None:
            raise Retriable(
                f"transactional.id {id_}: what the database has decided is not committed yet: "
                f"{result.error}"
            ) from result.error
        if result.recycled:
            raise Retriable(f"transactional.id {id_}: its producer was replaced after the commit")
        self._events.warning(
            "decision_produced_again",
            transactional_id=id_,
            outputs=len(decided.outputs),
            offsets={str(p.topic_partition): p.offset for p in decided.positions},
        )


class WorkerSettlement(Settlement):
    """A settlement of a worker's own ids as well.

    Args:
        decisions: the database.
        outputs: opens the producers of other processes' ids.
        log: has the committed offsets, and the membership.
        plan: of the worker.
        timeout_seconds: of transactions; a commit waits for the database for a third of it.
    """

    def __init__(
        self,
        decisions: Decisions,
        outputs: TransactionalOutputs,
        log: InputLog,
        plan: Plan,
        timeout_seconds: float,
    ) -> None:
        super().__init__(decisions, outputs, log)
        self._plan = plan
        self._within_seconds = timeout_seconds / 3

    def open_decisions(self, by_task: ByTask) -> dict[str, OpenDecision]:
        """Return what producers keep for their decisions, by those ids that decide."""
        refused, within_seconds = self._plan.refused_rows, self._within_seconds
        return {
            id_: OpenDecision(self._decisions, id_, refused, within_seconds)
            for id_ in self._plan.deciding(by_task)
        }

    def settle(self, by_task: ByTask, outputs: Sequence[TransactionalOutput]) -> None:
        """Settle the last decisions of this process, whose ids were inited since (V4, V6).

        Args:
            by_task: the partitions of its tasks.
            outputs: their producers, without an open transaction.

        Raises:
            Retriable, RunError: as `settle_others`.
        """
        deciding = self._plan.deciding(by_task)
        if deciding:
            own = {output.transactional_id: output for output in outputs}
            self._follow(self._decisions.take(deciding, deciding), own)

    def refuse_other_offsets(self, by_task: ByTask, stable: Sequence[Position]) -> None:
        """Compare the offsets of Kafka and of the database after `settle`.

        Args:
            by_task: as for `settle`.
            stable: the stable committed positions, read after that.

        Raises:
            StartRefused: the database has the smaller offset: it was restored.
            Retriable: Kafka has it. Its offsets were set, or another process that has taken the
                partitions since has decided more.
        """
        taken = {
            partition: offset
            for id_ in self._plan.deciding(by_task)
            for partition, offset in self._decisions.next_offsets(id_).items()
        }
        later: list[Position] = []
        for position in stable:
            stored, offset = taken.get(position.topic_partition), position.offset
            if stored is None or offset is None or stored == offset:
                continue
            if stored > offset:
                raise Retriable(str(_differing(position, stored)))
            later.append(position)
        # 1. V4 reads an offset  2. another process takes the partition; it decides and commits more
        # 3. the stable offsets are read. So the database is asked once more.
        if later:
            now = self._decisions.offsets()
            for position in later:
                stored = now.get(position.topic_partition) or 0
                if stored < (position.offset or 0):
                    raise _differing(position, stored)


def _is_before(found: Position, decided: Position) -> bool:
    return Progress.parse(found.metadata).transaction < Progress.parse(decided.metadata).transaction


def _differing(position: Position, stored: int) -> StartRefused:
    partition = position.topic_partition
    cause = (
        "the database was restored, lost its last commits, or the application ran for a time "
        "without these tables: rows are missing"
        if stored < (position.offset or 0)
        else "the group's offsets were set or lost: records would be processed again"
    )
    return StartRefused(
        f"{partition}: the group's offset is {position.offset}, and the database has decided up "
        f"to {stored}: {cause}. To go on from the group's offset, stop all workers and run: "
        f"eosframework positions set APP '{partition}=committed'; from the database's: "
        f"'{partition}={stored}'"
    )
