"""The stores of one task with the uncommitted changes of its open transaction.

OS1. records change store transactions, never stores (step 2)
OS2. the changes are produced to the changelogs, in the task's transaction (step 3)
OS3. after the commit they are written to the stores, in one write with their changelog positions
    (step 6); before it, and if the commit failed, they are in no store

The position is the offset after the last changelog record, from its delivery report. So a store is
never ahead of Kafka, and changes missing from it are read from the changelog.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from eosframework.engine.codegen.compiler import CompiledPart, Emission
from eosframework.engine.failures.failure_handler import LateRecords, LeftOut
from eosframework.engine.operators.binding import JoinBinding, bind, handler, transaction_of
from eosframework.engine.operators.expiry import Expiring, StreamTime
from eosframework.engine.operators.handlers import Timers
from eosframework.engine.operators.reordering import Reordering
from eosframework.engine.operators.store_transaction import Journal, Limits, WholeTopic
from eosframework.engine.operators.wall_clock import due_times
from eosframework.engine.operators.watermarks import UpstreamTimes
from eosframework.engine.operators.windows import Alarms, WindowOperator
from eosframework.engine.stores.state_ports import Reached, TaskStores
from eosframework.engine.task.late_results import EmittedResult, LateResults
from eosframework.engine.task.task_windows import TaskWindows, timed_nodes
from eosframework.engine.task.transaction_receipts import TransactionReceipt
from eosframework.errors import RunError
from eosframework.records import EARLIEST_OUTPUT_MS, Headers, TopicPartition
from eosframework.topology.graph.graph import Aggregate, Keyed, Processor, Reorder, WallClock
from eosframework.topology.graph.timed_topics import time_store_of
from eosframework.transactions import failpoints
from eosframework.transactions.ports import Message, Output

BUDGET_BYTES = 32 * 2**20
"""The default: a quarter of the default of `worker.queue_megabytes`."""

SHARE = 4
"""The budget is `worker.queue_megabytes` divided by this. At a commit there are up to three
copies of the changes: in the store transaction, on their way to the changelog, and on their
way to the store."""


class ChangesBudget:
    """The memory budget for uncommitted changes of all tasks of a worker.

    Changes in stores are kept in memory until their transaction is committed. With long commit
    intervals, or large values, they could take any amount; so a transaction is committed early once
    the worker's changes exceed their budget. Their size is estimated after each run of records,
    from the values that were put; only an estimate above the budget is replaced by an exact
    measurement.

    Args:
        limit_bytes: the limit for uncommitted changes.
    """

    def __init__(self, limit_bytes: int = BUDGET_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._taken: dict[OpenState, int] = {}
        self._sum = 0

    def is_spent(self, stores: OpenState) -> bool:
        """Update the size of a task's changes, and return whether it must commit.

        Args:
            stores: the stores of the task.
        """
        self._note(stores, stores.changed_bytes)
        if self._sum < self._limit_bytes:
            return False
        stores.weigh()
        # At least half of the budget is left before the next exact measurement.
        self._note(stores, stores.changed_bytes)
        return self._sum >= self._limit_bytes // 2

    def release(self, stores: OpenState) -> None:
        """Note that a task's changes are committed or dropped."""
        self._sum -= self._taken.pop(stores, 0)

    def _note(self, stores: OpenState, size_bytes: int) -> None:
        self._sum += size_bytes - self._taken.get(stores, 0)
        self._taken[stores] = size_bytes


class OpenState:
    """The state of one task that keyed operators use; see `codegen`.

    Args:
        compiled: the task's sub-topology.
        partition: the task's partition.
        stores: the committed content on this machine.
        topics: the rows of global tables, by topic.
        limits: limits on the work that one record may cause.
        upstream: number of upstream tasks, by topic of `compiled.paced_by`.
        now: returns the seconds since the epoch.
    """

    def __init__(
        self,
        compiled: CompiledPart,
        partition: int,
        stores: TaskStores,
        topics: Mapping[str, WholeTopic] | None = None,
        limits: Limits | None = None,
        upstream: Mapping[str, int] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.journal: Journal = []
        self.stores = stores
        self._partition = partition
        self._sources = compiled.part.sources
        declared = {store.name: store for store in compiled.part.stores}
        self.changelogs = {
            name: TopicPartition(store.changelog, partition) for name, store in declared.items()
        }
        """The changelog partition of each store."""
        self.time = StreamTime()
        self._sessions = {
            name: transaction_of(store, partition, stores.store(name), self.journal, self.time)
            for name, store in declared.items()
        }
        self._expiring = [s for s in self._sessions.values() if isinstance(s, Expiring)]
        self.times = self._upstream_times(compiled, upstream or {})
        """Stream time, if watermarks move it; else None."""
        alarms = Alarms()
        self._limits = limits or Limits()
        joins = JoinBinding(self._sessions, topics or {}, alarms, self._limits, partition)
        self._now = now
        self._due_times = {
            node.store.name: due_times(node, self._sessions[node.store.name], partition)
            for node in compiled.keyed
            if isinstance(node, WallClock)
        }
        bound = [self._bind(node, joins, alarms) for node in compiled.keyed]
        self._reordering = [one for one in bound if isinstance(one, Reordering)]
        self.operators: Sequence[Any] = [
            one.update if isinstance(one, WindowOperator) else one for one in bound
        ]
        self.late = LateRecords(compiled.limits)
        self.keyless = LeftOut()
        self.results = LateResults()
        """Results that are emitted later than the records that caused them."""
        self.windows = TaskWindows(
            timed_nodes(compiled, bound),
            alarms,
            partition,
            self.results,
            lambda: self.changed_bytes,
        )
        self._sent: dict[str, list[tuple[bytes, bytes | None]]] = {}
        self._delivered: dict[str, int] = {}
        self._committing = 0
        """Stream time at the end of the transaction."""

    def _bind(self, node: Keyed, joins: JoinBinding, alarms: Alarms) -> Any:
        match node:
            case Aggregate():
                return bind(node, self._sessions[node.store.name], alarms, self._limits)
            case Processor():
                found = (self._due_times[clock.store.name] for clock in node.wall_clock)
                wall_timers = next((one for one in found if isinstance(one, Timers)), None)
                now, partition = self._now, self._partition
                return handler(node, self._sessions, alarms, wall_timers, now, partition)
            case WallClock():
                return self._due_times[node.store.name]
            case Reorder():
                tables = {source.topic for source in self._sources if source.is_table}
                store = self._sessions[node.store.name]
                limit = self._limits.held
                assert self.times is not None, "a reorder step follows a timed topic"
                return Reordering(store, alarms.closes, self._partition, self.times, tables, limit)
            case _:
                return joins.bind(node)

    def _upstream_times(
        self, compiled: CompiledPart, upstream: Mapping[str, int]
    ) -> UpstreamTimes | None:
        store = time_store_of(compiled.part)
        if store is None or not compiled.paced_by:
            return None
        journal: Journal = []
        own = transaction_of(
            store, self._partition, self.stores.store(store.name), journal, self.time
        )
        self._sessions[store.name] = own
        return UpstreamTimes(own, journal, upstream, compiled.own_times)

    @property
    def held(self) -> int:
        """The number of records that wait for stream time in a reorder step."""
        return sum(step.count for step in self._reordering)

    def begin(self) -> None:
        """Load what is kept in memory; before the first record of a transaction."""
        self.windows.begin()
        if self.times is not None:
            self.times.begin()

    def emitted(self, emission: Emission, stream_time: int) -> list[Message]:
        """Return the results of a node at the commit: each changed key, with its last value.

        A deleted key has the value None and the stream time; one that did not exist before the
        transaction has no result.
        """
        assert isinstance(emission.node, Aggregate), "only aggregates give anything at a commit"
        store = emission.node.store
        if store.window is not None:
            return self.windows.emitted(emission.node)
        session = self._sessions[store.name]
        return [
            EmittedResult(
                store.changelog, self._partition, key, *(entry or (None, stream_time)), store.value
            )
            for key, entry in session.changed_entries()
            if entry is not None or session.before(key) is not None
        ]

    def changelog(
        self, stream_time: int, transaction: TransactionReceipt | None = None
    ) -> list[Output]:
        """Return the changelog records of this transaction's changes (OS2).

        Args:
            stream_time: timestamp of the records, in milliseconds.
            transaction: receipt in the last record of each store; None: they have none.
        """
        for session in self._expiring:
            session.remove_expired(min([stream_time, *(one.first for one in self._reordering)]))
        if self.times is not None:
            self.times.write()
        self._committing = stream_time
        headers = None if transaction is None else [transaction.header]
        outputs: list[Output] = []
        self._sent.clear()
        self._delivered = {}
        for name, session in self._sessions.items():
            if session.has_changes:
                self._sent[name] = changes = session.changes()
                outputs += self._records(name, changes, stream_time, headers)
        return outputs

    @property
    def changed_bytes(self) -> int:
        """An approximate upper bound of the memory of the uncommitted changes, in bytes."""
        return sum(session.changed_bytes for session in self._sessions.values())

    def weigh(self) -> None:
        """Make `changed_bytes` exact; reads every change."""
        for session in self._sessions.values():
            session.weigh()

    def starts_at(self, stream_time: int) -> None:
        """Set stream time to the committed one; entries may have expired up to it."""
        self.time.now = stream_time
        self.windows.starts_at(stream_time)
        if self.times is not None:
            self.times.start_at(stream_time)
        self._note_time(stream_time)

    def committed(self, reached: Reached) -> None:
        """Write the committed changes to the stores (OS3).

        Args:
            reached: the committed transaction.

        Raises:
            RunError: the disk rejects the write.
        """
        self.late.settle()
        self.keyless.settle()
        self.windows.next_transaction()
        if not self._sent:
            self._note_time(self._committing)
            return
        lacking = self._sent.keys() - self._delivered.keys()
        if lacking:
            raise RunError(
                f"the changelog records of {', '.join(sorted(lacking))} were committed without a "
                f"delivery report; start the worker again, and it reads them from the changelog"
            )
        failpoints.hit("state.before_write")
        time = self._committing if self._expiring else None
        self.stores.write(self._sent, self._delivered, time, reached=reached)
        failpoints.hit("state.after_write")
        for name in self._sent:
            self._sessions[name].committed()
        self._sent = {}
        self.journal.clear()

    def drop(self) -> None:
        """Discard the uncommitted changes."""
        for session in self._sessions.values():
            session.drop()
        self.late.drop()
        self.keyless.drop()
        self.windows.reset()
        self._sent = {}
        self.journal.clear()

    def close(self) -> None:
        """Close the stores."""
        self.stores.close()

    def _note_time(self, stream_time: int) -> None:
        """Store the stream time, so that queries hide expired entries."""
        if self._expiring and self.stores.stream_time != stream_time:
            self.stores.write({}, {}, stream_time)

    def _records(
        self,
        name: str,
        changes: Sequence[tuple[bytes, bytes | None]],
        stream_time: int,
        headers: Headers | None,
    ) -> Iterator[Output]:
        topic, partition = self.changelogs[name]
        time_ms = max(stream_time, EARLIEST_OUTPUT_MS)
        for key, data in changes[:-1]:
            yield topic, data, key, partition, None, None, time_ms, None
        key, data = changes[-1]
        # A report of a transaction that is over must not count for the next one.
        delivered = self._delivered

        def report(error: object, message: Any) -> None:
            if error is None:
                delivered[name] = message.offset() + 1

        yield topic, data, key, partition, report, None, time_ms, headers
