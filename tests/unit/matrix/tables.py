"""Table writers, and attempts of a backfill, over a database in memory with planned faults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from eosframework.errors import Superseded
from eosframework.postgres.tables.table_ports import Batch, Claim, RowMaker, Seen, Written
from eosframework.postgres.tables.write_cycle import TableWriter, TableWriterOptions
from eosframework.records import Position, Record, TopicPartition
from eosframework.serialization.serdes import JSON, STRING
from eosframework.spark.executor.attempt_context import Run
from eosframework.spark.executor.table_attempt import Pace, TableAttempt
from eosframework.topology.graph.graph import Function, Policy, SinkTable, TableMode, TableSink
from tests.support.memory.fault_plan import CURRENT, LOG, Faults, Killed, function_called
from tests.support.memory.faulty_kafka import FaultyKafka, faulty_input
from tests.unit.matrix.play import ROUNDS, Choices, Endless, Wrong

KINDS = {
    "store.claim": (
        "DatabaseUnavailable",
        "DatabaseRefused",
        "StartRefused",
        "DatabaseUnavailable done",
        "kill",
    ),
    "store.write": (
        "DatabaseUnavailable",
        "DatabaseUnavailable done",
        "DatabaseUnavailable late",
        "DatabaseConflict",
        "DatabaseRefused",
        "overtaken",
        "kill",
        "kill done",
        "kill late",
    ),
    "log.subscribe": LOG,
    "log.fetch": (*LOG, "PositionLost", "TransactionFatal", "revoke", "lose", "overtake", "kill"),
    "log.seek": ("RunError", "InstanceFenced"),
    "log.pause": ("RunError",),
    "log.resume": ("RunError",),
    "log.end_offsets": LOG,
    "log.partitions": LOG,
    "user": ("SchemaRegistryUnavailable", "KeyboardInterrupt"),
}
"""By call, what is raised there. Of a write is said besides: `done`, it took effect; `late`, it
does before the next claim; `overtaken`, another table writer came and ran for a while."""

ATTEMPT_KINDS = {
    "store.claim": KINDS["store.claim"],
    "store.write": KINDS["store.write"],
    "look": ("DatabaseUnavailable", "kill"),
    "rows": ("RunError", "kill"),
    "user": KINDS["user"],
}
"""The same for an attempt of a backfill, which reads no log and has no group."""

PARTITIONS = [TopicPartition("in", number) for number in range(2)]
VALUES = [1, 2, 13, 4, 5, 6, 7, 13, 9, 10, 11, 12]


@dataclass
class Database:
    """What outlasts table writers."""

    positions: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    epochs: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    rows: list[tuple[int, int, Any]] = field(default_factory=list[tuple[int, int, Any]])
    """Partition and offset of the record, and the row."""
    refused: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    late: list[Sequence[Batch]] = field(default_factory=list[Sequence[Batch]])

    def take(self, batches: Sequence[Batch]) -> None:
        """Write batches, if all of them may be."""
        gone = [batch.claim.partition for batch in batches if not self._is_owned(batch)]
        if gone:
            raise Superseded("claimed by another", partitions=gone)
        for batch in batches:
            self.positions[batch.claim.partition] = batch.next_offset
            self.refused += [(r.origin.partition(), r.origin.offset()) for r in batch.refused]
            for table in batch.tables:
                for row, origin in zip(table.rows, table.origins, strict=True):
                    self.rows.append((origin.partition(), origin.offset(), row))

    def settle(self) -> None:
        """End what is in doubt; a claim waits for that."""
        waiting, self.late = self.late, []
        for batches in waiting:
            with suppress(Superseded):
                self.take(batches)

    def _is_owned(self, batch: Batch) -> bool:
        claim = batch.claim
        known = self.positions.get(claim.partition)
        return self.epochs[claim.partition] == claim.epoch and known == claim.next_offset


class PlannedStore:
    """See `RowStore`."""

    def __init__(self, database: Database, faults: Faults, overtake: Any) -> None:
        self._database = database
        self._faults = faults
        self._overtake = overtake

    def claim(self, partitions: Sequence[TopicPartition]) -> list[Claim]:
        words = (self._faults.hit("store.claim") or "").split()
        if words and "done" not in words:
            raise self._faults.error(words[0], "store.claim")
        database = self._database
        database.settle()
        for partition in partitions:
            database.epochs[partition] = database.epochs.get(partition, 0) + 1
        if words:
            raise self._faults.error(words[0], "store.claim")
        return [Claim(p, database.epochs[p], database.positions.get(p)) for p in partitions]

    def write(self, batches: Sequence[Batch]) -> Written:
        words = (self._faults.hit("store.write") or "").split()
        if words == ["overtaken"]:
            self._overtake()
            words = []
        if not words or "done" in words:
            self._database.take(batches)
        if "late" in words:
            self._database.late.append(batches)
        if words:
            raise self._faults.error(words[0], "store.write")
        return Written()

    def close(self) -> None:
        return


def row(record: Record) -> dict[str, int]:
    function_called()
    if record.value == 13:
        raise ValueError("unlucky")
    return {"n": record.value}


SINK = SinkTable(
    "s.to(t)", "t", TableMode.APPEND, (), Function("row", row), None, Policy.DEAD_LETTER
)
TABLE_SINK = TableSink("s", "in", STRING, JSON, (SINK,), Policy.DEAD_LETTER)


def play_tables(faults: Faults, choices: Choices) -> list[str]:
    """Run table writers until everything is in the table, and return how those ended that failed.

    Raises:
        Wrong: says what is wrong with what is in the database, or that it does not end.
    """
    log, database, endings = FaultyKafka({"in": 2}), Database(), list[str]()
    CURRENT[0] = faults
    try:
        for since in (0, 8):
            for number, value in enumerate(VALUES[since : since + 8], since):
                key = f"k{number % 5}".encode()
                log.append(("in", orjson.dumps(value), key, -1, None, None, number, None))
            while not _is_done(log, database):
                ending = _work(log, database, faults, choices)
                _judge(log, database)
                if ending is not None:
                    endings.append(ending)
                    if len(endings) > len(faults.fired):
                        raise Wrong(f"a table writer ended without a reason: {endings}")
                elif not _is_done(log, database):
                    raise Wrong("a table writer ended without an error before all was done")
    finally:
        CURRENT[0] = Faults()
    return endings


def _work(log: FaultyKafka, database: Database, faults: Faults, choices: Choices) -> str | None:
    faults.killed = False
    worker = _table_writer(log, database, faults, choices)
    try:
        worker.run(until_caught_up=choices.until_caught_up)
    except Killed:
        return "killed"
    except Endless as error:
        raise Wrong(f"a table writer is not through after {ROUNDS} turns") from error
    except BaseException as error:
        if log.misuses or not faults.explains(error):
            raise Wrong(f"{log.misuses}: {type(error).__name__}: {error}") from error
        return f"{type(error).__name__}: {error}"
    return None


def _table_writer(
    log: FaultyKafka, database: Database, faults: Faults, choices: Choices, rounds: int = ROUNDS
) -> TableWriter:
    left = [rounds]

    def on_round(_: Any) -> None:
        left[0] -= 1
        if left[0] <= 0 and rounds == ROUNDS:
            raise Endless
        if left[0] <= 0 and not choices.rival_stops:
            faults.killed = True
            raise Killed
        if left[0] <= 0 or _is_done(log, database):
            worker.stop()

    def overtake() -> None:
        with suppress(Killed):
            _table_writer(log, database, Faults(), choices, 6).run()

    def start(partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def tell(positions: Sequence[Position]) -> None:
        for told in positions:
            if (told.offset or 0) > database.positions.get(told.topic_partition, 0):
                raise log.misused(f"told {told}, the database is behind that")

    worker = TableWriter(
        "app",
        [TABLE_SINK],
        faulty_input(log, faults, overtake),
        PlannedStore(database, faults, overtake),
        TableWriterOptions(
            commit_interval_seconds=choices.interval_seconds,
            longest_interval_seconds=10,
            longest_pause_seconds=1,
            heartbeat_interval_seconds=0.5,
            batch_records=choices.batch_records,
            batch_rows=1000,
            leave_on_stop=True,
        ),
        start=start,
        commit_to_group=tell,
        clock=lambda: log.now,
        chance=lambda: 0.0,
        on_round=on_round,
    )
    return worker


def _is_done(log: FaultyKafka, database: Database) -> bool:
    return all(
        not log.logs[partition].messages
        or database.positions.get(partition, 0) > log.logs[partition].messages[-1].offset()
        for partition in PARTITIONS
    )


def _judge(log: FaultyKafka, database: Database) -> None:
    """Each record before a position is in the table once, and in its order; no other is."""
    if log.misuses:
        raise Wrong(f"misused: {log.misuses}")
    database.settle()
    for partition in PARTITIONS:
        until = database.positions.get(partition, 0)
        done = [m for m in log.logs[partition].messages if m.offset() < until]
        values = [(m.offset(), orjson.loads(m.value() or b"")) for m in done]
        rows = [(o, r["n"]) for number, o, r in database.rows if number == partition.partition]
        refused = [o for number, o in database.refused if number == partition.partition]
        if rows != [(o, v) for o, v in values if v != 13]:
            raise Wrong(f"rows of {partition}: {rows}, expected {values}")
        if refused != [o for o, v in values if v == 13]:
            raise Wrong(f"refused of {partition}: {refused}, expected those of {values}")


# --- attempts of a backfill -------------------------------------------------------------


@dataclass
class _Time:
    """Time that passes by sleeping alone."""

    now: float = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def play_attempts(faults: Faults, choices: Choices) -> list[str]:
    """Repeat an attempt, as Spark does, until all rows are written; return how others ended.

    Raises:
        Wrong: the content of the database is wrong, or an attempt ended without a reason.
    """
    log, database, endings = FaultyKafka({"in": 2}), Database(), list[str]()
    for number, value in enumerate(VALUES):
        log.append(("in", orjson.dumps(value), b"k", 0, None, None, number, None))
    CURRENT[0] = faults
    try:
        while database.positions.get(PARTITIONS[0], 0) < len(VALUES):
            ending = _attempt(log, database, faults, choices, len(endings))
            _judge(log, database)
            if ending is None:
                break
            endings.append(ending)
            if len(endings) > len(faults.fired):
                raise Wrong(f"an attempt ended without a reason: {endings}")
    finally:
        CURRENT[0] = Faults()
    if database.positions.get(PARTITIONS[0]) != len(VALUES):
        raise Wrong(f"an attempt ended before the end of its range: {database.positions}")
    return endings


def _attempt(
    log: FaultyKafka, database: Database, faults: Faults, choices: Choices, number: int
) -> str | None:
    faults.killed = False
    try:
        _table_attempt(log, database, faults, choices).run(_rows(log, faults, choices), number)
    except Killed:
        return "killed"
    except BaseException as error:
        if not faults.explains(error):
            raise Wrong(f"{type(error).__name__}: {error}") from error
        return f"{type(error).__name__}: {error}"
    return None


def _rows(
    log: FaultyKafka, faults: Faults, choices: Choices, last: int | None = None
) -> Iterator[Run]:
    size = max(1, choices.batch_records)
    messages = log.logs[PARTITIONS[0]].messages
    for first in range(0, len(messages), size):
        faults.check("rows")
        if last is not None and first > last:
            raise Killed
        yield PARTITIONS[0], messages[first : first + size]


def _table_attempt(
    log: FaultyKafka, database: Database, faults: Faults, choices: Choices
) -> TableAttempt:
    time = _Time()
    partition = PARTITIONS[0]

    def overtake() -> None:
        """A copy of the attempt takes over, writes some rows and is killed."""
        with suppress(Killed):
            rival = _table_attempt(log, database, Faults(), choices)
            rival.run(_rows(log, Faults(), choices, last=6), 0)

    def look() -> Seen:
        faults.check("look")
        return Seen(database.epochs.get(partition), database.positions.get(partition), False)

    return TableAttempt(
        partition,
        0,
        len(VALUES),
        RowMaker(TABLE_SINK),
        PlannedStore(database, faults, overtake),
        Pace(
            commit_interval_seconds=choices.interval_seconds,
            batch_rows=2,
            kept_records=4,
            longest_pause_seconds=1,
            stall_seconds=5,
        ),
        look,
        clock=lambda: time.now,
        sleep=time.sleep,
    )
