"""The scene of an output: the task, its state and its input just before the record was run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from eosframework.config import KafkaSettings
from eosframework.engine.operators.watermarks import WATERMARK_KEY
from eosframework.engine.task.receipts import HEADER_RECEIPT, Receipt
from eosframework.engine.task.transaction_receipts import TransactionReceipt
from eosframework.errors import raised_by_functions
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.kafka.inspect.written_record import RecordPlace
from eosframework.operations.why.explanation import (
    LISTED,
    Explanation,
    GivenOutput,
    MetEntry,
    Rerun,
    bytes_shown,
)
from eosframework.operations.why.rerun import (
    EntryKey,
    NotedStores,
    Provenance,
    Start,
    TaskCode,
    memory_stores,
    traced_stores,
)
from eosframework.operations.why.state_history import HistoryMissing, StateHistory, StoreContent
from eosframework.process.steps import OnProgress
from eosframework.records import TopicPartition, WindowResult
from eosframework.state.layout import Row
from eosframework.state.memory import MemoryStore, MemoryTaskStores
from eosframework.state.query import layout_of
from eosframework.topology.graph.graph import Store
from eosframework.topology.spec.keyed_spec import Window
from eosframework.transactions.ports import Message, Output

MOST_RECORDS = 100_000
"""Most records that run again for one answer."""

Records = list[tuple[TopicPartition, Message]]


@dataclass(slots=True)
class Scene:
    """A task just before the record in question.

    Args:
        code: of the task.
        stores: its content then.
        start: its positions, stream time and transaction number then.
        records: the record in question; for a result of a commit, all of its transaction.
        receipt: of the output; None: it comes from no single record.
        output: in the log.
        passed: the stores of the steps to the output.
        search: for the inputs; None: the task has no state.
        doubts: reasons why a part of the answer may be wrong or is missing.
    """

    code: TaskCode
    stores: MemoryTaskStores
    start: Start
    records: Records
    receipt: Receipt | None
    output: Message
    passed: Collection[str] = ()
    search: _Inputs | None = None
    doubts: list[str] = field(default_factory=list[str])
    noted: NotedStores | None = None

    def outputs(self) -> list[Output]:
        """Run the record, and return its outputs without changelog records.

        Raises:
            RecordFailed: a function fails, and its policy is to fail.
        """
        copies = {s.name: _copied(self.stores.store(s.name)) for s in self.code.part.stores}
        self.noted = NotedStores(copies)
        task = self.code.open(self.noted, self.start)
        return task.others(task.run(self.records))

    def met(self) -> dict[str, dict[bytes, bytes]]:
        """Return the entries that the record met, by store, as in the changelogs."""
        assert self.noted is not None, "the record was run"
        return {name: reads.found for name, reads in self.noted.reads.items() if reads.found}

    def rerun(self) -> Rerun:
        """Run the record, and compare its outputs with the one in the log."""
        record = self.output
        given = [_given(output) for output in self._candidates(self.outputs())]
        is_same = any(_is_same(output, record) for output in given)
        assert self.noted is not None, "the record was run"
        rows = [row for row in _rows(self.code, self.noted) if row.place[0] in self.passed]
        is_by_clock = not is_same and self.receipt is None and self._may_close_by_clock
        unproved = ""
        if is_by_clock:
            unproved = "the wall clock closed a window, which is not recorded"
            rows = list(self._rows_of_key())
        absent = [e for e in _absent(self.code, self.noted) if e.store in self.passed]
        inputs = None
        if self.search is not None:
            doubts = self.search.doubts(self.noted)
            self.doubts += doubts
            if doubts and not is_same:
                unproved = "the state that it met is not known exactly"
            if any(name in self.passed for name in traced_stores(self.code.part)):
                inputs = self.search.inputs(rows, record, self.records)
            self.doubts += self.search.missing
        return Rerun(
            is_same=None if unproved else is_same,
            unproved=unproved,
            outputs=given,
            met=[row.entry for row in rows] + absent,
            inputs=() if inputs is None else inputs[:LISTED],
            input_count=None if inputs is None else len(inputs),
        )

    @property
    def _may_close_by_clock(self) -> bool:
        """True if the wall clock may have closed a window of the steps."""
        traced = traced_stores(self.code.part)
        return any(traced.get(name, False) for name in self.passed)

    def _rows_of_key(self) -> Iterator[_MetRow]:
        """Yield the windows of the output's key, as its transaction met them."""
        wanted = self.output.key() or b""
        for store in self.code.part.stores:
            if store.name in self.passed:
                for key, data in self.stores.store(store.name).scan():
                    if wanted in key:
                        yield from _decoded(self.code, store, key, data)

    def _candidates(self, outputs: Sequence[Output]) -> Sequence[Output]:
        """Return the outputs of the record in question."""
        if self.receipt is None:
            return [output for output in outputs if _receipt(output) is None]
        return [
            output
            for output in outputs
            if (own := _receipt(output)) is None or own.offset == self.receipt.offset
        ]


@dataclass(frozen=True, slots=True)
class _MetRow:
    """A row that was met, with its entry in the store."""

    entry: MetEntry
    place: EntryKey
    key: bytes


def scene_of(
    code: TaskCode,
    history: StateHistory | None,
    found: Explanation,
    output: Message,
    settings: KafkaSettings,
    admin: ClusterAdmin,
    on_progress: OnProgress,
) -> Scene:
    """Return the scene of an output, with the state that earlier records left.

    Args:
        code: of the task.
        history: its changelogs; None: it has no stores.
        found: has the receipts.
        output: the record in the log.
        settings: to the cluster.
        admin: of the same cluster.
        on_progress: see `OnProgress`.

    Raises:
        HistoryMissing: the state or the input is not there.
        RecordFailed: an earlier record fails now.
    """
    reader = _Input(settings, admin, on_progress)
    receipt = found.receipt
    passed = {store for step in found.steps for store in step.stores}
    if history is None:
        if receipt is None:
            raise HistoryMissing("a result of many records, of a task without a state")
        partition = TopicPartition(receipt.topic, receipt.partition)
        records = reader.read({partition: (receipt.offset, receipt.offset + 1)})
        if not records[partition]:
            raise HistoryMissing(f"the input {partition}@{receipt.offset} was removed")
        start = Start(receipt.transaction - 1, 0, {partition: receipt.offset})
        one = [(partition, records[partition][0])]
        return Scene(code, memory_stores(code.part, {}), start, one, receipt, output)
    scene = _StatefulScene(code, history, found, reader).scene(output)
    scene.passed = passed
    return scene


class _Input:
    """Reads input records; refuses what retention removed, or what is too much."""

    def __init__(
        self, settings: KafkaSettings, admin: ClusterAdmin, on_progress: OnProgress
    ) -> None:
        self._settings = settings
        self._admin = admin
        self._on_progress = on_progress

    def read(
        self, ranges: Mapping[TopicPartition, tuple[int, int | None]]
    ) -> dict[TopicPartition, list[Message]]:
        """Return the records of each range; an end of None is the end of the log.

        Raises:
            HistoryMissing: the beginning was removed, or there are too many.
        """
        bounds = self._admin.log_bounds(list(ranges))
        known: dict[TopicPartition, tuple[int, int]] = {}
        for partition, (start, end) in ranges.items():
            first, last = bounds[partition]
            stop = last if end is None else min(end, last)
            if start < min(first, stop):
                raise HistoryMissing(
                    f"the input {partition}@{start} was removed from the log, which begins at "
                    f"{first}; lengthen retention.ms of {partition.topic} for the future"
                )
            known[partition] = start, stop
        total = sum(max(end - start, 0) for start, end in known.values())
        if total > MOST_RECORDS:
            raise HistoryMissing(
                f"{total:,} input records would have to run again to find the state; at most "
                f"{MOST_RECORDS:,} do"
            )
        read: dict[TopicPartition, list[Message]] = {partition: [] for partition in known}
        for partition, messages in read_ranges(self._settings, known):
            read[partition] += messages
            self._on_progress("input record", sum(map(len, read.values())), total)
        return read


class _StatefulScene:
    """Finds the state of a task just before a record."""

    def __init__(
        self, code: TaskCode, history: StateHistory, found: Explanation, reader: _Input
    ) -> None:
        self._code, self._history, self._reader = code, history, reader
        self._receipt = found.receipt
        assert found.number is not None, "the transaction is known"
        self._number = found.number

    def scene(self, output: Message) -> Scene:
        """Return the scene of an output."""
        history, first = self._history, self._first()
        contents = history.content_before(first.number)
        stores = memory_stores(self._code.part, {n: c.store for n, c in contents.items()})
        search = _Inputs(self, history, contents, first)
        start = Start(
            first.number - 1, first.stream_time, {p: at for p, (at, _) in first.positions.items()}
        )
        records = self.records(first)
        if (receipt := self._receipt) is None:
            return Scene(self._code, stores, start, records, None, output, search=search)
        partition = TopicPartition(receipt.topic, receipt.partition)
        before, one = _split(records, RecordPlace(partition, receipt.offset))
        task = self._code.open(stores, start)
        for each in before:
            task.run([each])
        return Scene(self._code, stores, task.reached, [one], receipt, output, search=search)

    def _first(self) -> TransactionReceipt:
        """Return the transaction at whose beginning the search starts."""
        if (receipt := self._receipt) is not None:
            partition = TopicPartition(receipt.topic, receipt.partition)
            return self._history.start_before(self._number, partition, receipt.offset)
        own = self._history.receipt_of(self._number)
        if own is None:
            raise HistoryMissing(
                f"no changelog of the task has the receipt of transaction {self._number} any "
                f"more: compaction removed it"
            )
        return own

    def records(self, first: TransactionReceipt) -> Records:
        """Return the input from the beginning of a transaction to the end of the one in question.

        Records of other partitions than that of the input run up to the end of the transaction, or
        to the beginning of the next one that is recorded.
        """
        ends = self._ends(first)
        ranges = {p: (start, ends.get(p)) for p, (start, _) in first.positions.items()}
        return list(self._code.in_order(self._reader.read(ranges)))

    def _ends(self, first: TransactionReceipt) -> dict[TopicPartition, int]:
        own = self._history.receipt_of(self._number)
        if own is not None:
            return {p: end for p, (_, end) in own.positions.items()}
        receipts = [r for c in self._history.changelogs.values() for r in c.known()]
        later = [r for r in receipts if r.number > self._number]
        ends: dict[TopicPartition, int] = {}
        if later:
            following = min(later, key=lambda receipt: receipt.number)
            ends = {p: start for p, (start, _) in following.positions.items()}
        if self._receipt is not None:
            partition = TopicPartition(self._receipt.topic, self._receipt.partition)
            ends[partition] = self._receipt.offset + 1
        return ends

    @property
    def code(self) -> TaskCode:
        """The code of the task."""
        return self._code


def _split(records: Records, place: RecordPlace) -> tuple[Records, tuple[TopicPartition, Message]]:
    """Return the records before a place, and the record there."""
    for index, (partition, message) in enumerate(records):
        if partition == place.partition and message.offset() == place.offset:
            return records[:index], records[index]
    raise HistoryMissing(f"the input {place} is not in the log any more: it was removed")


class _Inputs:
    """The records in the windows, joins and tables that a record met.

    Args:
        scene: of the record.
        history: of the task.
        contents: before the transaction `first`.
        first: the first transaction of which records ran again.
    """

    def __init__(
        self,
        scene: _StatefulScene,
        history: StateHistory,
        contents: Mapping[str, StoreContent],
        first: TransactionReceipt,
    ) -> None:
        self._scene, self._history = scene, history
        self._contents, self._first = contents, first
        self._traced = traced_stores(scene.code.part)
        self.missing: list[str] = []

    def doubts(self, noted: NotedStores) -> list[str]:
        """Return the reasons why entries that were met are not exact."""
        found: list[str] = []
        for name, reads in noted.reads.items():
            keys = {*reads.found, *reads.absent}
            content = self._contents[name]
            if reason := self._history.doubts(name, content, keys, reads.scans):
                found.append(reason)
        return found

    def inputs(
        self, rows: Sequence[_MetRow], record: Message, last: Records
    ) -> list[RecordPlace] | None:
        """Return the records in what was met, with the record itself; None: not found, or none.

        Args:
            rows: that were met.
            record: the output.
            last: the records that ran last.
        """
        met = _of_record([row for row in rows if row.place[0] in self._traced], record)
        try:
            provenance = self._provenance(met, last)
        except HistoryMissing as error:
            self.missing.append(f"inputs: {error}")
            return None
        windows = {store.name: store.window for store in self._scene.code.part.stores}
        found = {
            place: None
            for row in met
            for place in _within(row.entry, windows[row.place[0]], provenance.of(row.place))
        }
        if len(last) == 1 and last[0][1].key() != WATERMARK_KEY:
            found[self._origin(*last[0])] = None
        return list(found)

    def _origin(self, partition: TopicPartition, message: Message) -> RecordPlace:
        """Return the place of an input; of one in an internal topic, of the record it came from."""
        if partition.topic in self._scene.code.graph.repartition_topics:
            for name, value in message.headers() or ():
                if name == HEADER_RECEIPT and (own := Receipt.parse(value)) is not None:
                    return RecordPlace(TopicPartition(own.topic, own.partition), own.offset)
        return _place(partition, message)

    def _provenance(self, met: Sequence[_MetRow], last: Records) -> Provenance:
        """Run the records since the oldest of these entries was absent, and note what they write.

        Raises:
            HistoryMissing: the history does not go back that far.
        """
        first = self._first
        for row in met:
            store, key = row.place
            content = self._contents[store]
            offset = (content.since if self._traced[store] else content.last).get(key)
            if offset is None or key not in content.since:
                continue
            writer = self._history.writer_at(store, offset)
            if writer is None:
                raise HistoryMissing(
                    f"the entry of store {store!r} was written by a transaction without a receipt"
                )
            if writer.number < first.number:
                first = writer
        return self._run_from(first, last)

    def _run_from(self, first: TransactionReceipt, last: Records) -> Provenance:
        code = self._scene.code
        contents = self._history.content_before(first.number)
        stores = memory_stores(code.part, {n: c.store for n, c in contents.items()})
        positions = {p: at for p, (at, _) in first.positions.items()}
        task = code.open(stores, Start(first.number - 1, first.stream_time, positions))
        provenance = Provenance(code.part)
        end = _place(*last[0]) if len(last) == 1 else None
        for partition, message in self._scene.records(first):
            place = _place(partition, message)
            if place == end:
                break
            time_ms = code.compiled.sources[partition.topic].time_of(message)
            outputs = task.run([(partition, message)])
            provenance.wrote(self._origin(partition, message), time_ms, task.written(outputs))
        return provenance


def _within(
    entry: MetEntry, window: Window | None, writers: Sequence[tuple[RecordPlace, int]]
) -> Iterator[RecordPlace]:
    """Yield the records in an entry, of those that wrote it."""
    if entry.window is None:
        yield from (place for place, _ in writers)
        return
    start, end = entry.window
    if window is None or window.is_timed:
        yield from (place for place, time_ms in writers if start <= time_ms <= end)
    elif end - start != window.records:  # A complete window was sent, and is an input of nothing.
        yield from (place for place, _ in writers[start - end :])


def _of_record(rows: Sequence[_MetRow], record: Message) -> Sequence[_MetRow]:
    """Return the rows that an output is about: of its key and time, of its key, or all."""
    of_key = [row for row in rows if row.key == record.key()]
    of_time = [row for row in of_key if row.entry.timestamp == record.timestamp()[1]]
    windows = any(row.entry.window is not None for row in of_key)
    return (of_time if windows else None) or of_key or rows


def _place(partition: TopicPartition, message: Message) -> RecordPlace:
    return RecordPlace(partition, message.offset())


def _copied(store: MemoryStore) -> MemoryStore:
    copy = MemoryStore()
    copy.apply(list(store.scan()))
    return copy


def _receipt(output: Output) -> Receipt | None:
    for name, value in output[7] or ():
        if name == HEADER_RECEIPT:
            return Receipt.parse(value)
    return None


def _given(output: Output) -> GivenOutput:
    topic, value, key, _, _, _, timestamp, _ = output
    return GivenOutput(topic, key, value, timestamp)


_BROKER_TIME = 2
"""The type of a timestamp that the broker set."""


def _is_same(given: GivenOutput, record: Message) -> bool:
    kind, timestamp = record.timestamp()
    return (given.topic, given.key, given.value) == (
        record.topic(),
        record.key(),
        record.value(),
    ) and (kind == _BROKER_TIME or given.timestamp == timestamp)


def _rows(code: TaskCode, noted: NotedStores) -> Iterator[_MetRow]:
    """Yield the rows that a record met, decoded."""
    for store in code.part.stores:
        for key, data in noted.reads[store.name].found.items():
            yield from _decoded(code, store, key, data)


def _decoded(code: TaskCode, store: Store, key: bytes, data: bytes) -> Iterator[_MetRow]:
    """Yield the rows of one entry; none, if it is an index."""
    content = MemoryStore()
    content.apply([(key, data)])
    layout = layout_of(code.part, store)
    try:
        rows = list(layout.scan(content, b"", None))
    except raised_by_functions():
        entry = MetEntry(store.name, bytes_shown(key), bytes_shown(data))
        yield _MetRow(entry, (store.name, key), key)
        return
    for row in rows:
        yield _MetRow(_entry(store, row), (store.name, key), _key_bytes(store, row))


def _entry(store: Store, row: Row) -> MetEntry:
    key = bytes_shown(row.key) if isinstance(row.key, bytes) else row.key
    if isinstance(row.value, WindowResult):
        result = cast("WindowResult", row.value)
        is_timed = store.window is None or store.window.is_timed
        bounds = result.start, result.end
        return MetEntry(store.name, key, result.value, row.timestamp, bounds, is_timed)
    return MetEntry(store.name, key, row.value, row.timestamp)


def _key_bytes(store: Store, row: Row) -> bytes:
    if isinstance(row.key, bytes):
        return row.key
    return b"" if store.key.encode is None else store.key.encode(row.key)


def _absent(code: TaskCode, noted: NotedStores) -> Iterator[MetEntry]:
    """Yield the keys that were looked up and have no entry, of stores without windows and joins."""
    windowed = {name for name, adds in traced_stores(code.part).items() if adds}
    for store in code.part.stores:
        reads = noted.reads[store.name]
        for key in sorted(reads.absent) if store.name not in windowed else ():
            yield MetEntry(store.name, _key_shown(store, key), None)


def _key_shown(store: Store, key: bytes) -> Any:
    if store.key.decode is None:
        return bytes_shown(key)
    try:
        return store.key.decode(key)
    except raised_by_functions():
        return bytes_shown(key)
