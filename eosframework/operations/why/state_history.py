"""The state of a task as of one of its transactions, from its changelogs.

SH1. the batches of a changelog, with their markers, give its transactions in order, and the offsets
     that compaction has removed ("holes")
SH2. the receipt in the last record of a transaction gives its number, and the positions and the
     stream time with which it began
SH3. the state that a transaction met is the content before its first record. In a store that it did
     not change, it is the content after the last earlier transaction, if no transaction of an
     unknown number follows before the next known one
SH4. an entry is exact if compaction removed nothing after its last record before that offset. If it
     did, then only where no later record has the key: a record is removed for a later one alone

Where SH3 or SH4 does not decide, the answer names the changelog; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from eosframework.config import KafkaSettings
from eosframework.engine.task.transaction_receipts import TransactionReceipt, transaction_of
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.kafka.inspect.partition_log import read_log
from eosframework.kafka.inspect.wire import Wire
from eosframework.records import TopicPartition
from eosframework.state.memory import MemoryStore
from eosframework.topology.graph.graph import SubTopology

RECORD_RECEIPTS = "set worker.receipts=true, which records it from then on"
KEEP_HISTORY = (
    "raise min.compaction.lag.ms of the topic (kafka-configs), which keeps its history for that "
    "long from then on"
)


class HistoryMissing(Exception):
    """A part of the history is not recorded, or was removed; the text says which."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One committed transaction in a changelog.

    Args:
        first: offset of its first record.
        end: the offset after its marker.
        receipt: None: none of its remaining records has one.
    """

    first: int
    end: int
    receipt: TransactionReceipt | None = None


@dataclass(frozen=True, slots=True)
class Changelog:
    """The history of one store of a task (SH1, SH2).

    Args:
        holes: ranges of offsets in which compaction has removed records.
    """

    store: str
    partition: TopicPartition
    start: int
    end: int
    segments: Sequence[Segment]
    holes: Sequence[tuple[int, int]]

    def known(self) -> Iterator[TransactionReceipt]:
        """Yield the receipts, oldest first."""
        return (one.receipt for one in self.segments if one.receipt is not None)

    def boundary(self, number: int) -> int:
        """Return the offset before which the transactions before `number` wrote (SH3).

        Raises:
            HistoryMissing: the logs do not determine it.
        """
        numbers = [receipt.number for receipt in self.known()]
        if any(later <= earlier for earlier, later in pairwise(numbers)):
            raise HistoryMissing(
                f"the transactions in changelog {self.partition} were numbered anew at some point, "
                f"so transaction {number} is ambiguous: the committed positions of the "
                f"application were removed or expired"
            )
        after = 0
        unknown: list[Segment] = []
        for segment in self.segments:
            receipt = segment.receipt
            if receipt is None:
                unknown.append(segment)
            elif receipt.number == number:
                return segment.first
            elif receipt.number > number:
                break
            else:
                unknown.clear()
                after = segment.end
        if not unknown:
            return after
        raise HistoryMissing(
            f"changelog {self.partition} has transactions without a receipt, at offsets "
            f"{unknown[0].first} to {unknown[-1].end - 1}, which may be before or after "
            f"transaction {number}: receipts were off, or compaction removed them; "
            f"{RECORD_RECEIPTS}"
        )


@dataclass(frozen=True, slots=True)
class StoreContent:
    """A store before an offset of its changelog.

    Args:
        store: its entries.
        boundary: that offset.
        last: by key, the offset of its last record before.
        since: by key, the offset of the first record since the entry was last absent.
        later: the keys with later records; read only where compaction has removed records.
    """

    store: MemoryStore
    boundary: int
    last: dict[bytes, int] = field(default_factory=dict[bytes, int])
    since: dict[bytes, int] = field(default_factory=dict[bytes, int])
    later: set[bytes] = field(default_factory=set[bytes])


class StateHistory:
    """The changelogs of one task.

    Args:
        wire: to the cluster, for batches and markers.
        settings: to the same cluster.
        application: name of the application.
        part: the task's sub-topology.
        number: the task's partition.
    """

    def __init__(
        self,
        wire: Wire,
        settings: KafkaSettings,
        application: str,
        part: SubTopology,
        number: int,
    ) -> None:
        self._settings = settings
        self._owner = application, part.name, number
        self.changelogs = {
            store.name: self._read(wire, store.name, TopicPartition(store.changelog, number))
            for store in part.stores
        }

    def start_before(
        self, number: int, partition: TopicPartition, offset: int
    ) -> TransactionReceipt:
        """Return the last recorded transaction up to `number`, whose state is the one to begin at.

        Later ones up to `number` changed no state.

        Args:
            number: of a transaction.
            partition: of a record of that transaction.
            offset: of that record.

        Raises:
            HistoryMissing: there is none.
        """
        found = [
            receipt
            for changelog in self.changelogs.values()
            for receipt in changelog.known()
            if receipt.number <= number and receipt.positions.get(partition, (0, 0))[0] <= offset
        ]
        if not found:
            raise HistoryMissing(
                f"no record in {', '.join(str(c.partition) for c in self.changelogs.values())} "
                f"has the receipt of transaction {number} or of one before it, so the state that "
                f"it met is not known: receipts were off, or compaction removed it; "
                f"{RECORD_RECEIPTS}, and {KEEP_HISTORY}"
            )
        return max(found, key=lambda receipt: receipt.number)

    def receipt_of(self, number: int) -> TransactionReceipt | None:
        """Return the receipt of a transaction; None: it changed no state, or it is not recorded."""
        for changelog in self.changelogs.values():
            for receipt in changelog.known():
                if receipt.number == number:
                    return receipt
        return None

    def writer_at(self, store: str, offset: int) -> TransactionReceipt | None:
        """Return the receipt of the transaction of a changelog record; None: it has none."""
        for segment in self.changelogs[store].segments:
            if segment.first <= offset < segment.end:
                return segment.receipt
        return None

    def content_before(self, number: int) -> dict[str, StoreContent]:
        """Return the content of each store as a transaction met it.

        Raises:
            HistoryMissing: the logs do not determine it.
        """
        return {
            name: self._content(changelog, changelog.boundary(number))
            for name, changelog in self.changelogs.items()
        }

    def doubts(
        self,
        store: str,
        content: StoreContent,
        keys: Iterable[bytes],
        scans: Iterable[tuple[bytes, bytes | None]],
    ) -> str | None:
        """Return the reason why some of these entries are not exact (SH4); None: all are.

        Args:
            store: its name.
            content: of the store.
            keys: that were looked up.
            scans: ranges of keys that were read.
        """
        changelog, boundary = self.changelogs[store], content.boundary
        holes = [hole for hole in changelog.holes if hole[0] < boundary]
        is_cut_after = any(end > boundary for _, end in changelog.holes)
        last_hole = max((start for start, _ in holes), default=-1)
        doubtful = any(
            last_hole > content.last.get(key, -1) and (is_cut_after or key in content.later)
            for key in keys
        ) or any(
            holes and (is_cut_after or any(_is_between(key, *scan) for key in content.later))
            for scan in scans
        )
        if not doubtful:
            return None
        return (
            f"compaction has removed records of changelog {changelog.partition}, perhaps of the "
            f"entries that this record met, so they may be older than shown; {KEEP_HISTORY}"
        )

    def _read(self, wire: Wire, store: str, partition: TopicPartition) -> Changelog:
        if partition not in wire.leaders([partition.topic]):
            raise HistoryMissing(
                f"changelog {partition} of store {store!r} does not exist: the output is older "
                f"than the present topology, or the topology was not applied"
            )
        start = wire.first_offsets([partition])[partition]
        end = wire.last_stable_offsets([partition])[partition]
        receipts = self._receipts(partition, start, end)
        segments, holes = _segments(wire, partition, start, end, receipts)
        return Changelog(store, partition, start, end, segments, holes)

    def _receipts(
        self, partition: TopicPartition, start: int, end: int
    ) -> dict[int, TransactionReceipt]:
        """Return the receipts in a changelog by offset."""
        found: dict[int, TransactionReceipt] = {}
        for _, messages in read_ranges(self._settings, {partition: (start, end)}):
            for message in messages:
                receipt = transaction_of(message.headers())
                if receipt is not None and self._is_own(receipt):
                    found[message.offset()] = receipt
        return found

    def _is_own(self, receipt: TransactionReceipt) -> bool:
        return (receipt.application, receipt.sub_topology, receipt.partition) == self._owner

    def _content(self, changelog: Changelog, boundary: int) -> StoreContent:
        content = StoreContent(MemoryStore(), boundary)
        end = changelog.end if changelog.holes else boundary
        ranges = {changelog.partition: (changelog.start, min(end, changelog.end))}
        for _, messages in read_ranges(self._settings, ranges):
            for message in messages:
                key, value, offset = message.key() or b"", message.value(), message.offset()
                if offset >= boundary:
                    content.later.add(key)
                    continue
                content.last[key] = offset
                if value is None:
                    content.since.pop(key, None)
                else:
                    content.since.setdefault(key, offset)
                content.store.apply([(key, value)])
        return content


def _segments(
    wire: Wire,
    partition: TopicPartition,
    start: int,
    end: int,
    receipts: Mapping[int, TransactionReceipt],
) -> tuple[list[Segment], list[tuple[int, int]]]:
    """Return the committed transactions of a changelog, and its holes (SH1)."""
    segments: list[Segment] = []
    holes: list[tuple[int, int]] = [(0, start)] if start else []
    open_at: dict[int | None, int] = {}
    expected = start
    for batch in read_log(wire, partition, start, end):
        first, next_offset = batch.first_offset, batch.next_offset
        if first > expected:
            holes.append((expected, first))
        if batch.record_count < next_offset - first:
            holes.append((first, next_offset))
        expected = next_offset
        if (marker := batch.marker()) is None:
            if not batch.is_control:
                open_at.setdefault(batch.producer_id, first)
        elif (began := open_at.pop(batch.producer_id, None)) is not None and marker.committed:
            found = [receipts[at] for at in range(began, first) if at in receipts]
            segments.append(Segment(began, next_offset, found[-1] if found else None))
    if expected < end:
        holes.append((expected, end))
    return segments, holes


def _is_between(key: bytes, first: bytes, last: bytes | None) -> bool:
    return key >= first and (last is None or key < last)
