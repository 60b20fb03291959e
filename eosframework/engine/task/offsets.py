"""The processed and committed offsets of a task, and the metadata of committed offsets.

The metadata has the task's transaction number and stream time. An offset alone does not show
whether a transaction in doubt was committed: a transaction of timers only moves no offset. The
number does, because each transaction of a task increments it and commits it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from eosframework.engine.stores.state_ports import Reached
from eosframework.engine.task.receipts import ReceiptedOutputs
from eosframework.records import Position, TopicPartition
from eosframework.transactions.ports import Output
from eosframework.transactions.session.session_states import Outcome

_FORMAT = "eos1"


@dataclass(frozen=True, slots=True)
class Progress:
    """A task's progress as of one committed transaction.

    Args:
        transaction: number of the last committed transaction; 0 before the first.
        stream_time: highest event time seen, in milliseconds since the epoch; 0 before any.
    """

    transaction: int = 0
    stream_time: int = 0

    def __str__(self) -> str:
        return f"{_FORMAT};{self.transaction};{self.stream_time}"

    @staticmethod
    def is_in(metadata: str) -> bool:
        """Return whether an offset was committed by this framework, by its metadata."""
        return metadata.startswith(f"{_FORMAT};")

    @classmethod
    def parse(cls, metadata: str) -> Progress:
        """Parse the result of `str`; foreign metadata counts as no progress.

        The numbering of receipts may follow (`receipts.Series`). librdkafka stores the NUL of a C
        string as well; some clients return it.
        """
        match metadata.rstrip("\0").split(";"):
            case [format_, transaction, stream_time, *_] if format_ == _FORMAT:
                with suppress(ValueError):
                    return cls(int(transaction), int(stream_time))
                return cls()
            case _:
                return cls()


def outcome(before: Progress, found: Progress) -> Outcome:
    """Return the outcome of the transaction after `before`.

    Args:
        before: the progress of the last transaction known to be committed.
        found: the progress with the stable offsets, read after the decision.
    """
    match found.transaction - before.transaction:
        case 0:
            return Outcome.NOT_COMMITTED
        case 1:
            return Outcome.COMMITTED
        case _:
            return Outcome.OVERTAKEN


def latest(positions: Iterable[Position]) -> Progress:
    """Return the progress of the last transaction that committed any of `positions`.

    A partition without recent records keeps the metadata of an older transaction.
    """
    return max(
        (Progress.parse(position.metadata) for position in positions),
        key=lambda progress: progress.transaction,
        default=Progress(),
    )


class TaskOffsets:
    """Offsets of the source partitions, with their committed metadata.

    Args:
        markers: start markers, written by the first transaction of each partition.
        receipts: the numbering to commit as well; None: outputs are not numbered.
    """

    def __init__(
        self, markers: Mapping[TopicPartition, Output], receipts: ReceiptedOutputs | None
    ) -> None:
        self.reached: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, int] = {}
        self._markers = dict(markers)
        self._receipts = receipts
        self._progress = Progress()
        self._ends: dict[TopicPartition, int] = {}
        self._sent: dict[TopicPartition, int] = {}

    @property
    def transaction(self) -> int:
        """Number of the open transaction, or of the next one."""
        return self._progress.transaction + 1

    @property
    def stream_time(self) -> int:
        """Stream time at the beginning of the open transaction, or of the next one."""
        return self._progress.stream_time

    @property
    def last_reached(self) -> Reached:
        """The last committed transaction, with the positions after it."""
        positions = {str(partition): offset for partition, offset in self.committed.items()}
        return Reached(self._progress.transaction, positions)

    @property
    def have_moved(self) -> bool:
        """True if anything was run since the last commit."""
        return self.reached != self.committed

    @property
    def are_at_end(self) -> bool:
        """True if every partition is processed up to its last stable offset."""
        return all(self._ends.get(p, -1) >= offset for p, offset in self.reached.items())

    @property
    def unread(self) -> dict[TopicPartition, int]:
        """The positions of the partitions that are not processed up to their last stable offset.

        The last record of the others may be followed by transaction markers, which consumers never
        see.
        """
        return {p: o for p, o in self.reached.items() if self._ends.get(p, -1) < o}

    def read_to(self, partition: TopicPartition) -> int:
        """Return the offset up to which a partition is read, including the markers at its end."""
        return max(self.reached[partition], self._ends.get(partition, 0))

    @property
    def lag_behind_markers(self) -> bool:
        """True if committed positions are followed by transaction markers alone."""
        return any(self.read_to(p) > offset for p, offset in self.committed.items())

    def read_to_end(self, partition: TopicPartition, offset: int) -> None:
        """Note that a partition is read up to `offset`, its last stable offset."""
        self._ends[partition] = offset

    def start_at(self, positions: Sequence[Position]) -> int:
        """Reset to committed positions, and return the stream time in their metadata."""
        self._progress = latest(positions)
        for position in positions:
            assert position.offset is not None, "a start position is an offset"
            self.reached[position.topic_partition] = position.offset
            self.committed[position.topic_partition] = position.offset
        self._sent = dict(self.committed)
        if self._receipts is not None:
            self._receipts.restart(positions)
        return self._progress.stream_time

    def to_commit(
        self, stream_time: int, unfinished: Collection[TopicPartition] = ()
    ) -> list[Position]:
        """Return the positions that moved, or all if none did, because their number has changed.

        They include the markers that were read: retention may remove a marker, and the offset of a
        removed one is not in the log any more.

        Args:
            stream_time: of the task.
            unfinished: partitions with fetched messages that were not run.
        """
        sent = {p: r if p in unfinished else self.read_to(p) for p, r in self.reached.items()}
        moved_none = sent == self.committed
        progress = Progress(self.transaction, stream_time)
        positions: list[Position] = []
        for partition, offset in sent.items():
            if moved_none or offset != self.committed[partition]:
                metadata = str(progress)
                if self._receipts is not None:
                    metadata += f";{self._receipts.series(partition)}"
                positions.append(Position(*partition, offset, metadata))
        self._sent = sent
        return positions

    def markers(self, positions: Sequence[Position]) -> list[Output]:
        """Return the start markers of partitions that were not committed before."""
        partitions = (position.topic_partition for position in positions)
        return [self._markers[p] for p in partitions if p in self._markers]

    def settle(self, stream_time: int) -> None:
        """Take the sent positions as committed."""
        self._progress = Progress(self.transaction, stream_time)
        for partition, offset in self._sent.items():
            if offset != self.committed[partition]:
                self.committed[partition] = self.reached[partition] = offset
                self._markers.pop(partition, None)
        if self._receipts is not None:
            self._receipts.committed()

    def rewind(self) -> None:
        """Return to the committed positions."""
        self.reached.update(self.committed)
        self._ends.clear()
        if self._receipts is not None:
            self._receipts.rewind()

    def outcome(self, positions: Sequence[Position]) -> Outcome:
        """Return the outcome of the transaction after the last one known to be committed.

        The number alone is not enough: another worker that committed one transaction of its own has
        written the same number. Either its positions differ, or its transaction had the same
        effect.

        Args:
            positions: the stable committed positions, read after the decision.
        """
        became = outcome(self._progress, latest(positions))
        expected = self._sent if became is Outcome.COMMITTED else self.committed
        if any(p.offset != expected[p.topic_partition] for p in positions):
            return Outcome.OVERTAKEN
        return became
