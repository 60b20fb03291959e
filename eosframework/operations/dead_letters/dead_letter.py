"""One dead letter, and the record that it was."""

from __future__ import annotations

from dataclasses import dataclass

from eosframework.processing.failures.failure_headers import (
    HEADER_ATTEMPTS,
    HEADER_EXCEPTION,
    HEADER_FAILED,
    HEADER_OFFSET,
    HEADER_PARTITION,
    HEADER_REPLAYED,
    HEADER_STEP,
    HEADER_TOPIC,
    Headers,
    as_it_came,
)
from eosframework.processing.ports import Message, Output
from eosframework.processing.transaction.receipts import HEADER_RECEIPT, Receipt
from eosframework.records import EARLIEST_OUTPUT_MS, TopicPartition


@dataclass(frozen=True, slots=True)
class Letter:
    """A record that could not be processed, as it lies in its dead-letter topic.

    Args:
        partition: of the dead-letter topic.
        offset: there.
        origin: the partition that the record came from.
        origin_offset: its offset there.
        step: that failed; its name begins with that of its stream or source.
        error: in one line.
        failed_at: milliseconds since the epoch; None: written before letters said so.
        attempts: how often it had failed by then.
        replayed_from: place of the letter that this one was before; None: of none.
        timestamp: event time of the record, in milliseconds.
        headers: those that the record came with.
    """

    partition: TopicPartition
    offset: int
    origin: TopicPartition
    origin_offset: int
    step: str
    error: str
    failed_at: int | None
    attempts: int
    replayed_from: str | None
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers

    @property
    def place(self) -> str:
        """How it is named: `TOPIC[PARTITION]@OFFSET`."""
        return f"{self.partition}@{self.offset}"

    @property
    def input(self) -> str:
        """The record that it is of, named likewise."""
        return f"{self.origin}@{self.origin_offset}"

    @property
    def kind(self) -> str:
        """The type of the error."""
        return self.error.partition(":")[0]

    @classmethod
    def parse(cls, message: Message) -> Letter | None:
        """Read a letter; None: the record was not written as one."""
        pairs = message.headers() or []
        said = {name: (value or b"").decode(errors="replace") for name, value in pairs}
        try:
            origin = TopicPartition(said[HEADER_TOPIC], int(said[HEADER_PARTITION]))
            offset = int(said[HEADER_OFFSET])
            failed_at = int(said[HEADER_FAILED]) if HEADER_FAILED in said else None
            attempts = int(said.get(HEADER_ATTEMPTS, 1))
        except (KeyError, ValueError):
            return None
        return cls(
            partition=TopicPartition(message.topic(), message.partition()),
            offset=message.offset(),
            origin=origin,
            origin_offset=offset,
            step=said.get(HEADER_STEP, ""),
            error=said.get(HEADER_EXCEPTION, ""),
            failed_at=failed_at,
            attempts=attempts,
            replayed_from=said.get(HEADER_REPLAYED),
            key=message.key(),
            value=message.value(),
            timestamp=max(message.timestamp()[1], EARLIEST_OUTPUT_MS),
            headers=as_it_came(pairs),
        )

    def again(self, application: str, topic: str, partitions: int) -> Output:
        """Return the record as it was, on its way to be processed again.

        It goes to the partition that it came from, where there is one of this number, and says
        which letter it was.

        Args:
            application: whose receipts were added to it.
            topic: where it goes.
            partitions: how many that one has.
        """
        number = self.origin.partition if 0 <= self.origin.partition < partitions else -1
        kept = [(n, v) for n, v in self.headers if not _is_receipt_of(application, n, v)]
        headers = [*kept, (HEADER_REPLAYED, self.place.encode())]
        return (topic, self.value, self.key, number, None, None, self.timestamp, headers)


def _is_receipt_of(application: str, name: str, value: bytes | None) -> bool:
    if name != HEADER_RECEIPT:
        return False
    receipt = Receipt.parse(value)
    return receipt is not None and receipt.application == application
