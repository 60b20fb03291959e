"""The ports of a worker over a log in memory, strict about their protocols, with planned faults.

More than `eosframework.testing.memory_kafka` it knows: producers that must not be used after an
error, transactions whose commit comes late, rounds that are waited for, memberships that are
over, and what was committed in which transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from eosframework.errors import DataRejected, TaskFenced, TransactionError
from eosframework.processing.ports import (
    Commit,
    Committed,
    Fetched,
    Message,
    Output,
    RebalanceListener,
    TransactionalOutput,
)
from eosframework.processing.stores.state_ports import Bounds, StoreIdentity
from eosframework.records import Position, TopicPartition
from eosframework.testing.memory_kafka import MemoryKafka, MemoryStartPositions
from eosframework.testing.stateless_driver import Sent
from eosframework.testing.topology_test_driver import MachineState
from tests.unit.matrix.faults import Faults, Killed, Misuse

FETCH_SECONDS = 0.03
FAR = 1_000_000
"""Offset of records that were delivered and never committed: others may have followed them."""

READ_RECORDS = 3
UNAWARE_FETCHES = 4
"""So often a member fetches before it hears that the group goes on without it."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """One that was committed."""

    transactional_id: str
    positions: Sequence[Position]
    sent: Sequence[Sent]


@dataclass(slots=True)
class _Late:
    """A commit that takes effect when its id is taken next."""

    outputs: list[Output]
    positions: Sequence[Position]


class Log(MemoryKafka):
    """What outlasts workers, with the history of what was committed."""

    def __init__(self, topics: Mapping[str, int]) -> None:
        super().__init__(topics)
        self.history: list[Transaction] = []
        self.holders: dict[str, PlannedOutput] = {}
        self.late: dict[str, _Late] = {}
        self.generation = 0
        self.has_one_fence = False
        self.misuses: list[str] = []

    def take(self, output: PlannedOutput) -> None:
        """Init an id: ends what is open; a commit that was on its way is done by now."""
        late = self.late.pop(output.transactional_id, None)
        if late is not None:
            self.commit(output.transactional_id, late.outputs, late.positions)
        self.holders[output.transactional_id] = output

    def commit(
        self, transactional_id: str, outputs: Sequence[Output], positions: Sequence[Position]
    ) -> list[Sent]:
        """Make a transaction visible."""
        sent = [self.append(output) for output in outputs]
        for partition in {TopicPartition(s.topic_, s.partition_) for s in sent}:
            self.logs[partition].end += 1
        self.positions |= {p.topic_partition: p for p in positions}
        self.history.append(Transaction(transactional_id, positions, sent))
        return sent

    def misused(self, what: str) -> Misuse:
        """Note and return that a port was used as its protocol forbids."""
        self.misuses.append(what)
        return Misuse(what)


class PlannedOutput:
    """See `TransactionalOutput`."""

    def __init__(
        self, log: Log, faults: Faults, transactional_id: str, overtake: Callable[[], None]
    ) -> None:
        self.transactional_id = transactional_id
        self.state = "ready"
        self.open: list[Output] = []
        self.log = log
        self.faults = faults
        self._overtake = overtake

    @property
    def produce(self) -> Callable[..., None]:
        return self._produce

    def _produce(self, *fields: Any) -> None:
        self._require("produce", "open")
        self._check("output.produce")
        output = cast("Output", fields)
        if self.faults.refuses((output[0], output[2], output[1])) == "produce":
            self.state = "failed"
            raise DataRejected(f"{output[0]} refuses {output[2]}: {output[1]}")
        self.open.append(output)

    def explain(self, error: Exception) -> TransactionError:
        if not isinstance(error, TransactionError):
            raise self.log.misused(f"explain was given {error!r}")
        return error

    def begin(self) -> None:
        self._require("begin", "ready")
        self._check("output.begin")
        self.state, self.open = "open", []

    def poll(self, timeout_seconds: float = 0) -> None:
        self._require("poll", "open")
        self._check("output.poll")

    def deliver(self) -> None:
        self._require("deliver", "open")
        self._check("output.deliver")
        if (error := self._refusal()) is not None:
            self.state = "failed"
            raise error

    def _refusal(self) -> DataRejected | None:
        refused = (o for o in self.open if (o[0], o[2], o[1]) in self.faults.refused)
        if (output := next(refused, None)) is None:
            return None
        return DataRejected(f"{output[0]} refuses {output[2]}: {output[1]}")

    def renew(self) -> None:
        """Take the id again; what was delivered of a transaction that is over is told now."""
        self.log.take(self)
        for topic, value, key, number, report, _, time, _ in self.open:
            if report is not None:
                report(None, Sent(topic, value, key, time, FAR, None, number))
        self.state, self.open = "ready", []

    def _check(self, call: str) -> None:
        kind = self.faults.hit(call)
        if kind is not None:
            if kind not in ("BufferError", "KeyboardInterrupt"):
                self.state = "failed"
            raise self.faults.error(kind, call)

    def _require(self, call: str, state: str) -> None:
        if self.faults.killed:
            raise Killed
        if self.state != state:
            where = self.state
            raise self.log.misused(f"{self.transactional_id}: {call} of a producer that is {where}")

    def commit(self, commit: Commit) -> Committed:
        """Send the offsets and commit, or what is planned instead."""
        if self.faults.killed:
            raise Killed
        if self.state != "open":
            raise self.log.misused(f"{self.transactional_id}: commit of one that is {self.state}")
        kind = self.faults.hit("outputs.commit")
        words = (kind or "done").split()
        error: TransactionError | None = None if kind == "kill" else self._refusal()
        if self.log.holders.get(self.transactional_id) is not self:
            error = TaskFenced(f"{self.transactional_id}: another one has it")
        elif commit.membership != self.log.generation and not self.log.has_one_fence:
            error = TaskFenced(f"{self.transactional_id}: the generation is over")
        if error is not None:
            self.state = "failed"
            return Committed(error)
        if "done" in words:
            sent = self.log.commit(self.transactional_id, self.open, commit.positions)
            if "unreported" not in words:
                self._report(sent)
            self.open = []
        if "late" in words:
            self.log.late[self.transactional_id] = _Late(self.open, commit.positions)
        if "kill" in words:
            raise self.faults.error("kill", "outputs.commit")
        if words[0] not in ("done", "late", "overtaken"):
            error = cast("TransactionError", self.faults.error(words[0], "outputs.commit"))
        self.state = "ready" if error is None else "failed"
        if "overtaken" in words:
            self._overtake()
        if "recycled" in words:
            self.renew()
        return Committed(error, "recycled" in words)

    def _report(self, sent: Sequence[Sent]) -> None:
        for output, message in zip(self.open, sent, strict=True):
            if output[4] is not None:
                output[4](None, message)


class PlannedOutputs:
    """See `TransactionalOutputs`."""

    def __init__(self, log: Log, faults: Faults, overtake: Callable[[], None]) -> None:
        self._log = log
        self._faults = faults
        self._overtake = overtake

    def open(self, transactional_ids: Sequence[str]) -> list[TransactionalOutput]:
        self._faults.check("outputs.open")
        outputs = [
            PlannedOutput(self._log, self._faults, name, self._overtake)
            for name in transactional_ids
        ]
        for output in outputs:
            output.renew()
        return list(outputs)

    def commit(
        self, commits: Sequence[Commit], within_seconds: float | None = None
    ) -> list[Committed]:
        return [_output(commit).commit(commit) for commit in commits]

    def abort(self, outputs: Sequence[TransactionalOutput]) -> list[TransactionError | None]:
        return self._end("outputs.abort", outputs)

    def recycle(self, outputs: Sequence[TransactionalOutput]) -> list[TransactionError | None]:
        return self._end("outputs.recycle", outputs)

    def close(self, outputs: Sequence[TransactionalOutput]) -> None:
        self._faults.check("outputs.close")
        for output in cast("Sequence[PlannedOutput]", outputs):
            output.state = "closed"

    def stop(self) -> None:
        return

    def _end(
        self, call: str, outputs: Sequence[TransactionalOutput]
    ) -> list[TransactionError | None]:
        answers: list[TransactionError | None] = []
        for output in cast("Sequence[PlannedOutput]", outputs):
            if output.state == "closed":
                raise self._log.misused(f"{output.transactional_id}: {call} while {output.state}")
            kind = self._faults.hit(call)
            if kind == "kill":
                raise self._faults.error(kind, call)
            if kind is None:
                output.renew()
                answers.append(None)
            else:
                output.state = "failed"
                answers.append(cast("TransactionError", self._faults.error(kind, call)))
        return answers


class PlannedInput:
    """See `InputLog`; the only member of its group, until another one overtakes it.

    Args:
        overtake: lets another worker run for a while.
    """

    def __init__(self, log: Log, faults: Faults, overtake: Callable[[], None]) -> None:
        self._log = log
        self._faults = faults
        self._overtake = overtake
        self._listener: RebalanceListener | None = None
        self._topics: Sequence[str] = ()
        self._wanted = False
        self._at: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._membership = 0
        self._unaware = 0

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        self._faults.check("log.subscribe")
        self._listener, self._topics, self._wanted = listener, topics, True

    def fetch(self, limit: int, timeout_seconds: float, gather_seconds: float = 0.0) -> Fetched:
        kind = self._faults.hit("log.fetch")
        assert self._listener is not None
        if self._membership != self._log.generation and not self._wanted:
            self._unaware += 1
            if self._unaware > UNAWARE_FETCHES:
                self._let_go(self._listener.lost)
        match kind:
            case None:
                pass
            case "revoke" | "lose":
                self._let_go(self._listener.revoked if kind == "revoke" else self._listener.lost)
                return Fetched({}, {}, self._membership)
            case "overtake":
                self._overtake()
            case _:
                raise self._faults.error(kind, "log.fetch")
        if self._wanted:
            self._join()
        return self._fetched(limit, timeout_seconds)

    def _join(self) -> None:
        assert self._listener is not None
        self._wanted, self._unaware = False, 0
        self._log.generation += 1
        self._membership = self._log.generation
        given = [p for topic in self._topics for p in self._log.partitions_of(topic)]
        starts = self._listener.assigned(given)
        self._at = {p.topic_partition: p.offset or 0 for p in starts}
        self._paused = set(self._at)

    def _let_go(self, tell: Callable[[list[TopicPartition]], None]) -> None:
        gone = sorted(self._at)
        try:
            tell(gone)
        finally:
            self._at, self._wanted = {}, True

    def _fetched(self, limit: int, timeout_seconds: float) -> Fetched:
        messages: dict[TopicPartition, list[Message]] = {}
        ends: dict[TopicPartition, int] = {}
        for partition in sorted(self._at.keys() - self._paused):
            if limit <= 0:
                break
            log = self._log.logs[partition]
            if found := log.read(self._at[partition], limit):
                messages[partition] = found
                self._at[partition] = found[-1].offset() + 1
                limit -= len(found)
            else:
                self._at[partition] = ends[partition] = log.end
        self._log.now += FETCH_SECONDS if messages else max(timeout_seconds, 0.005)
        return Fetched(messages, ends, self._membership)

    def membership(self) -> int:
        return self._membership

    def committed(self, partitions: Sequence[TopicPartition]) -> list[Position]:
        self._faults.check("log.committed")
        return [self._log.positions.get(p, Position(*p, None)) for p in partitions]

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self._faults.check("log.resume")
        self._require_assigned("resume", partitions)
        self._paused.difference_update(partitions)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self._faults.check("log.pause")
        self._paused.update(partitions)

    def seek(self, positions: Sequence[Position]) -> None:
        self._faults.check("log.seek")
        self._require_assigned("seek", [p.topic_partition for p in positions])
        self._at |= {p.topic_partition: p.offset or 0 for p in positions}

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        self._faults.check("log.end_offsets")
        return {partition: self._log.logs[partition].end for partition in partitions}

    def partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
        self._faults.check("log.partitions")
        return [partition for topic in topics for partition in self._log.partitions_of(topic)]

    def lag(self, positions: Mapping[TopicPartition, int]) -> int:
        return 0

    def close(self, *, leave: bool) -> None:
        return

    def _require_assigned(self, call: str, partitions: Sequence[TopicPartition]) -> None:
        if missing := [p for p in partitions if p not in self._at]:
            raise self._log.misused(f"{call} of {missing}, not assigned")


class PlannedLedger(MemoryStartPositions):
    """See `ProgressLedger`; writes markers into a topic `registry`."""

    def __init__(self, log: Log, faults: Faults) -> None:
        self._log = log
        self._faults = faults

    def starting_positions(self, committed: Sequence[Position], log: Any) -> list[Position]:
        self._faults.check("ledger.starting_positions")
        return super().starting_positions(committed, log)

    def marker(self, sub_topology: str, partition: TopicPartition) -> Output | None:
        if partition in self._log.positions:
            return None
        return ("registry", b"", str(partition).encode(), 0, None, None, 0, None)

    def confirm_ids(self, by_task: Any) -> None:
        self._faults.check("ledger.confirm_ids")

    def confirm_start(self) -> None:
        self._faults.check("ledger.confirm_start")


class PlannedChangelogs:
    """See `Changelogs`; a little comes with each look."""

    def __init__(self, log: Log, faults: Faults) -> None:
        self._log = log
        self._faults = faults

    def bounds(self, partitions: Sequence[TopicPartition]) -> Bounds:
        self._faults.check("changelogs.bounds")
        return {partition: (0, self._log.logs[partition].end) for partition in partitions}

    def written_ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self._faults.check("changelogs.written_ends")
        return {partition: self._log.logs[partition].end for partition in partitions}

    def open(self, ranges: Bounds) -> PlannedReading:
        self._faults.check("changelogs.open")
        return PlannedReading(self._log, self._faults, ranges)


class PlannedReading:
    """See `ChangelogReading`."""

    def __init__(self, log: Log, faults: Faults, ranges: Bounds) -> None:
        self._log = log
        self._faults = faults
        self._ends = {partition: end for partition, (_, end) in ranges.items()}
        self._read_to = {partition: start for partition, (start, _) in ranges.items()}

    def read(self, seconds: float) -> Mapping[TopicPartition, Sequence[Message]]:
        self._faults.check("reading.read")
        self._log.now += 0.001
        found: dict[TopicPartition, Sequence[Message]] = {}
        for partition, end in self._ends.items():
            at = self._read_to[partition]
            messages = self._log.logs[partition].read(at, READ_RECORDS)
            messages = [message for message in messages if message.offset() < end]
            if messages:
                found[partition] = messages
                self._read_to[partition] = messages[-1].offset() + 1
            else:
                self._read_to[partition] = max(at, end)
        return found

    def read_to(self, partition: TopicPartition) -> int:
        return self._read_to[partition]

    def close(self) -> None:
        return


@dataclass(slots=True)
class Machine:
    """The stores of one machine, with planned faults; see `StateBackend`."""

    faults: Faults
    kept: MachineState = field(default_factory=MachineState)
    opened: dict[str, Any] = field(default_factory=dict[str, Any])

    def open(self, task: str, partitions: int, stores: Sequence[StoreIdentity]) -> Any:
        self.faults.check("state.open")
        self.opened[task] = kept = self.kept.open(task, partitions, stores)
        return PlannedStores(kept, self.faults)

    def lose(self) -> None:
        """Forget everything."""
        self.kept, self.opened = MachineState(), {}

    def close(self) -> None:
        return


class PlannedStores:
    """See `TaskStores`."""

    def __init__(self, kept: Any, faults: Faults) -> None:
        self._kept = kept
        self._faults = faults

    def store(self, name: str) -> Any:
        return _Store(self._kept.store(name), self._faults)

    def position(self, name: str) -> int | None:
        return self._kept.position(name)

    def written_at(self, name: str) -> float | None:
        return self._kept.written_at(name)

    @property
    def stream_time(self) -> int | None:
        return self._kept.stream_time

    def write(self, *args: Any) -> None:
        self._faults.check("stores.write")
        self._kept.write(*args)

    def stats(self) -> Any:
        return self._kept.stats()

    def clear(self, name: str) -> None:
        self._faults.check("stores.clear")
        self._kept.clear(name)

    def close(self) -> None:
        return


class _Store:
    def __init__(self, kept: Any, faults: Faults) -> None:
        self._kept = kept
        self._faults = faults

    def get(self, key: bytes) -> bytes | None:
        self._faults.check("stores.get")
        return self._kept.get(key)

    def scan(
        self, first: bytes = b"", last: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        self._faults.check("stores.scan")
        for entry in self._kept.scan(first, last, reverse=reverse):
            self._faults.check("stores.next")
            yield entry


def _output(commit: Commit) -> PlannedOutput:
    return cast("PlannedOutput", commit.output)
