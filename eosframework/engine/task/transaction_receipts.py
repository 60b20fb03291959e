"""Receipts of transactions: what a task's transaction began with, in a header of what it wrote.

The last changelog record of each store in a transaction has one, and so has each output that comes
from no single input record. With them the state that a record met can be found in a changelog: it
is the content before the first record of the transaction. A changelog record without a header
belongs to the transaction of the next one with a header.

The header's value, `__eos.transaction`, in ASCII; the last four fields repeat, one for each source
partition that moved:

    1/APPLICATION/SUB-TOPOLOGY/PARTITION/NUMBER/STREAM-TIME/TOPIC/PARTITION/FROM/TO
    1/flights/flights.raw/3/18/1767225600000/flights.raw/3/1200/1235
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eosframework.records import Headers, TopicPartition

HEADER_TRANSACTION = "__eos.transaction"

_VERSION = "1"


@dataclass(frozen=True, slots=True)
class TransactionReceipt:
    """A transaction of a task, as it began.

    Args:
        sub_topology: of the task.
        partition: of the task.
        number: the task's own count of its transactions, from 1.
        stream_time: at the beginning, in milliseconds.
        positions: by source partition, the first offset and the offset after the last record that
            was run; empty in an output.
    """

    application: str
    sub_topology: str
    partition: int
    number: int
    stream_time: int
    positions: Mapping[TopicPartition, tuple[int, int]] = field(
        default_factory=dict[TopicPartition, tuple[int, int]]
    )

    def __str__(self) -> str:
        parts = [_VERSION, self.application, self.sub_topology]
        parts += map(str, (self.partition, self.number, self.stream_time))
        for (topic, partition), (start, end) in self.positions.items():
            parts += (topic, str(partition), str(start), str(end))
        return "/".join(parts)

    @property
    def header(self) -> tuple[str, bytes]:
        """The header of a record."""
        return HEADER_TRANSACTION, str(self).encode("ascii")

    @classmethod
    def parse(cls, value: bytes | None) -> TransactionReceipt | None:
        """Parse the result of `str`; None: not a receipt of this version."""
        try:
            version, application, part, *numbers = (value or b"").decode("ascii").split("/")
            if version != _VERSION or (len(numbers) - 3) % 4:
                return None
            positions = {
                TopicPartition(numbers[at], int(numbers[at + 1])): (
                    int(numbers[at + 2]),
                    int(numbers[at + 3]),
                )
                for at in range(3, len(numbers), 4)
            }
            task, number, stream_time = map(int, numbers[:3])
            return cls(application, part, task, number, stream_time, positions)
        except (ValueError, TypeError):
            return None


def transaction_of(headers: Headers | None) -> TransactionReceipt | None:
    """Return the receipt of a transaction among a record's headers; None: there is none."""
    for name, value in headers or ():
        if name == HEADER_TRANSACTION:
            return TransactionReceipt.parse(value)
    return None
