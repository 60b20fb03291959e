"""Millions of records as digests with their places, at about 34 bytes a record."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence

from eosframework.operations.audit.record_digest import DIGEST_BYTES
from eosframework.records import TopicPartition

BUCKETS = 256
"""Digests are matched bucket by bucket, so that only one bucket at a time is a dictionary."""

_SIEVE_BITS = 8
"""Bits for each record, at least; at most twice as many."""


class Ledger:
    """Records in insertion order: a digest and a place in a log for each.

    An expected output has the place of its input record; a found record has its own place.
    """

    def __init__(self) -> None:
        self._numbers: dict[TopicPartition, int] = {}
        self._partitions: list[TopicPartition] = []
        self._digests = bytearray()
        self._buckets = [array("I") for _ in range(BUCKETS)]
        self._partition_of = array("I")
        self._offset_of = array("q")

    def __len__(self) -> int:
        return len(self._offset_of)

    def add(self, partition: TopicPartition, offset: int, digest: bytes) -> None:
        """Append a record."""
        number = self._numbers.get(partition)
        if number is None:
            number = self._numbers[partition] = len(self._partitions)
            self._partitions.append(partition)
        self._buckets[digest[0]].append(len(self._offset_of))
        self._digests += digest
        self._partition_of.append(number)
        self._offset_of.append(offset)

    def extend(self, other: Ledger) -> None:
        """Append the records of another ledger."""
        for index in range(len(other)):
            number, offset = other.place(index)
            self.add(other.partition(number), offset, other.digest(index))

    def sieve(self) -> Callable[[bytes], bool]:
        """Return a Bloom filter over the digests: always true for contained digests.

        It is also true for about one in eight other digests; it takes at most two bytes a record.
        """
        size = 1 << max(len(self) * _SIEVE_BITS, 1 << 16).bit_length()
        bits = bytearray(size >> 3)
        for start in range(0, len(self._digests), DIGEST_BYTES):
            place = int.from_bytes(self._digests[start + 1 : start + 9]) & (size - 1)
            bits[place >> 3] |= 1 << (place & 7)

        def may_hold(digest: bytes) -> bool:
            place = int.from_bytes(digest[1:9]) & (size - 1)
            return bool(bits[place >> 3] & (1 << (place & 7)))

        return may_hold

    def digests(self) -> Iterator[bytes]:
        """Yield the digests in order."""
        return (self.digest(index) for index in range(len(self)))

    def bucket(self, number: int) -> Sequence[int]:
        """Return the indexes of the records in a bucket, ascending."""
        return self._buckets[number]

    def digest(self, index: int) -> bytes:
        """Return the digest of a record."""
        start = index * DIGEST_BYTES
        return bytes(self._digests[start : start + DIGEST_BYTES])

    def place(self, index: int) -> tuple[int, int]:
        """Return the partition's number and the offset of a record."""
        return self._partition_of[index], self._offset_of[index]

    def partition(self, number: int) -> TopicPartition:
        """Return the partition of this number."""
        return self._partitions[number]

    def name(self, index: int) -> str:
        """Return a record's place as messages name it: `flights.raw[1]@532`."""
        return f"{self._partitions[self._partition_of[index]]}@{self._offset_of[index]}"
