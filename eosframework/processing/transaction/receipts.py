"""Receipts: a header on every output that tells which input record it comes from.

With them an audit needs no functions. Three things make that sound:

1. the outputs of one input partition are numbered without a gap, so that a missing number is a
   lost output and a repeated one a copy
2. a receipt tells how many outputs its input gave, and which input before it gave the last one,
   so that a lost output is told from an input that gave none
3. the number to come is stored beside the committed offset, in the same transaction, so that
   losses at the end show, too

The header's value, `__eos.receipt`, in ASCII:

    1/APPLICATION/SINCE/TOPIC/PARTITION/OFFSET/INDEX/COUNT/NUMBER/GAP/TRANSACTION
    1/flights/0/flights.raw/3/1234/0/2/1876/1/18
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from eosframework.processing.ports import Message, Output
from eosframework.records import Position, TopicPartition

HEADER_RECEIPT = "__eos.receipt"

_VERSION = "1"
_SERIES = "r1"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What an output says about where it comes from.

    Args:
        since: offset of the input partition at which the numbering began.
        offset: of the input record.
        index: which of the outputs of this input record, from 0.
        count: how many outputs the input record gave.
        number: which of the outputs of the input partition since `since`, from 0.
        gap: how many offsets before this input record the one is that gave outputs last; 0: none.
        transaction: the task's transaction number.
    """

    application: str
    since: int
    topic: str
    partition: int
    offset: int
    index: int
    count: int
    number: int
    gap: int
    transaction: int

    @property
    def first(self) -> int:
        """Number of the first output of the same input record."""
        return self.number - self.index

    @property
    def end(self) -> int:
        """Number behind the last output of the same input record."""
        return self.first + self.count

    @property
    def previous(self) -> int | None:
        """Offset of the input record that gave outputs before this one; None: there is none."""
        return self.offset - self.gap if self.gap else None

    def __str__(self) -> str:
        return (
            f"{_VERSION}/{self.application}/{self.since}/{self.topic}/{self.partition}/"
            f"{self.offset}/{self.index}/{self.count}/{self.number}/{self.gap}/{self.transaction}"
        )

    @classmethod
    def parse(cls, value: bytes | None) -> Receipt | None:
        """Read what `str` wrote; None: it is no receipt of this version."""
        try:
            version, application, since, topic, *numbers = (value or b"").decode("ascii").split("/")
            if version != _VERSION:
                return None
            receipt = cls(application, int(since), topic, *map(int, numbers))
        except (ValueError, TypeError):
            return None
        return receipt if 0 <= receipt.index < receipt.count and receipt.first >= 0 else None


@dataclass(frozen=True, slots=True)
class Series:
    """The numbering of the outputs of one input partition, as of a committed position.

    Args:
        since: offset of the input partition at which it began.
        number: what the next output gets.
        last: offset of the last input record that gave outputs; None: none has.
    """

    since: int
    number: int = 0
    last: int | None = None

    def __str__(self) -> str:
        return f"{_SERIES};{self.since};{self.number};{'' if self.last is None else self.last}"

    @classmethod
    def parse(cls, metadata: str) -> Series | None:
        """Read what stands behind the progress in a position's metadata; None: there is none."""
        match metadata.rstrip("\0").split(";"):
            case [_, _, _, format_, since, number, last] if format_ == _SERIES:
                with suppress(ValueError):
                    return cls(int(since), int(number), int(last) if last else None)
                return None
            case _:
                return None


class ReceiptedOutputs(list[Output]):
    """Outputs of a task on their way to the producer, each with its receipt.

    The numbering rolls back with the transaction: what `rewind` forgets is numbered again.
    """

    def __init__(self, application: str) -> None:
        super().__init__()
        self._application = application
        self._committed: dict[TopicPartition, Series] = {}
        self._open: dict[TopicPartition, Series] = {}
        self._prefix = self._suffix = ""
        self._number = 0
        self._last: int | None = None

    def restart(self, positions: Sequence[Position]) -> None:
        """Go on behind committed positions; one without a numbering begins its own there."""
        for position in positions:
            series = Series.parse(position.metadata) or Series(position.offset or 0)
            self._committed[position.topic_partition] = series
        self.rewind()

    def begin(self, partition: TopicPartition, transaction: int) -> None:
        """Number the outputs of this partition's records from here on."""
        series = self._open[partition]
        prefix = (_VERSION, self._application, series.since, *partition, "")
        self._prefix = "/".join(map(str, prefix))
        self._suffix = f"/{transaction}"
        self._number, self._last = series.number, series.last

    def seal(self, mark: int, message: Message) -> None:
        """Give the outputs from `mark` on their receipts: they come from `message`."""
        count = len(self) - mark
        if not count:
            return
        offset, number = message.offset(), self._number
        gap = 0 if self._last is None else offset - self._last
        prefix, suffix = self._prefix, self._suffix
        if count == 1:  # most records; by itself this takes a fifth less
            receipt = f"{prefix}{offset}/0/1/{number}/{gap}{suffix}"
            self[mark] = _with_receipt(self[mark], receipt)
        else:
            for index in range(count):
                receipt = f"{prefix}{offset}/{index}/{count}/{number + index}/{gap}{suffix}"
                self[mark + index] = _with_receipt(self[mark + index], receipt)
        self._number, self._last = number + count, offset

    def end(self, partition: TopicPartition) -> None:
        """Take what was numbered since `begin` into the open transaction."""
        series = self._open[partition]
        self._open[partition] = Series(series.since, self._number, self._last)

    def series(self, partition: TopicPartition) -> Series:
        """Return the numbering as the open transaction leaves it."""
        return self._open[partition]

    def committed(self) -> None:
        """Take the open transaction as committed."""
        self._committed.update(self._open)

    def rewind(self) -> None:
        """Forget the numbers of the open transaction."""
        self._open.update(self._committed)


def _with_receipt(output: Output, receipt: str) -> Output:
    """Return an output with a receipt in place of one that came with its input."""
    topic, value, key, place, _, _, timestamp, headers = output
    own = (HEADER_RECEIPT, receipt.encode("ascii"))
    kept = [*(h for h in headers if h[0] != HEADER_RECEIPT), own] if headers else [own]
    return (topic, value, key, place, None, None, timestamp, kept)
