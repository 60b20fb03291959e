"""Compressed batches that unpack to much, found without unpacking them into memory.

librdkafka unpacks a fetched batch of gzip, lz4 or snappy whole, without a limit, before a consumer
sees any of it, and one of zstd up to `receive.message.max.bytes`. A batch of 1 MB that unpacks to
1 GB can end each worker that fetches it, and the kernel's out-of-memory killer leaves no message.
Here a batch is fetched as it is stored, and its size is read from the codec's format in constant
memory.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from eosframework.kafka.inspect.partition_log import LogBatch, read_log
from eosframework.kafka.inspect.wire import Wire
from eosframework.records import TopicPartition

LOOK_BYTES = 16_777_216
"""Stored bytes to look at in each partition: as much as a worker's client fetches ahead."""

MOST_BYTES = 4 * 2**30
"""Counting stops there."""

_CHUNK_BYTES = 1 << 20
_SNAPPY_JAVA = b"\x82SNAPPY\x00"
_LZ4_MAGIC = 0x184D2204
_LZ4_RATIO = 255
"""The most that a byte of an lz4 block stands for."""

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE = 0x184D2A5
"""The first 28 bits of a frame's magic number, for a frame that stands for nothing."""

_ZSTD_BLOCK_BYTES = 1 << 17
"""The most that a block stands for."""

_ZSTD_REPEATED, _ZSTD_COMPRESSED = 1, 2
"""Types of blocks. The size of any but a compressed one is what it stands for."""


@dataclass(frozen=True, slots=True)
class LargeBatch:
    """A stored batch that unpacks to much.

    Args:
        first_offset: of its records.
        next_offset: the offset after its last record.
        records: the number of its records.
        codec: gzip, lz4, snappy or zstd.
        stored_bytes: its size in the log.
        unpacked_bytes: its size in a consumer; of lz4 and zstd an upper bound.
    """

    partition: TopicPartition
    first_offset: int
    next_offset: int
    records: int
    codec: str
    stored_bytes: int
    unpacked_bytes: int

    def __str__(self) -> str:
        """Return its place, its sizes and the memory that it takes."""
        return (
            f"{self.partition}@{self.first_offset}: a {self.codec} batch of {self.stored_bytes:,} "
            f"bytes (records: {self.records}) unpacks to {self.unpacked_bytes:,} bytes, and a "
            f"worker needs about three times as much"
        )


def large_batches(
    wire: Wire, ranges: Mapping[TopicPartition, tuple[int, int]], above_bytes: int
) -> Iterator[LargeBatch]:
    """Yield the batches that unpack to more than a size, among the first `LOOK_BYTES` of ranges.

    Args:
        wire: to the cluster.
        ranges: of each partition, the first offset and the offset to stop before.
        above_bytes: smaller ones are left out.

    Raises:
        ConfigurationError: this principal may not read a topic.
        RunError: a batch is in a format older than transactions.
    """
    for partition, (start, end) in sorted(ranges.items()):
        looked_at = 0
        for batch in read_log(wire, partition, start, end):
            size = unpacked_bytes(batch.codec, batch.stored)
            if size > above_bytes:
                yield _large(partition, batch, size)
            looked_at += batch.size_bytes
            if looked_at > LOOK_BYTES:
                break


def unpacked_bytes(codec: str, stored: bytes) -> int:
    """Return to how many bytes the records of a batch unpack, at most `MOST_BYTES`.

    What is damaged counts up to the damage. A consumer unpacks zstd only up to
    `receive.message.max.bytes`.

    Args:
        codec: its name, as in `compression.type`.
        stored: the bytes after the batch's header.
    """
    count = _COUNTS.get(codec)
    return len(stored) if count is None else min(count(stored), MOST_BYTES)


def _gzip_bytes(stored: bytes) -> int:
    unpacker, total = zlib.decompressobj(31), 0
    try:
        while stored and not unpacker.eof and total < MOST_BYTES:
            total += len(unpacker.decompress(stored, _CHUNK_BYTES))
            stored = unpacker.unconsumed_tail
    except zlib.error:
        pass
    return total


def _snappy_bytes(stored: bytes) -> int:
    """Add up the lengths that snappy's blocks begin with; a block of another length is refused."""
    if not stored.startswith(_SNAPPY_JAVA):
        return _varint(stored)
    total, at = 0, len(_SNAPPY_JAVA) + 8
    while at + 4 < len(stored):
        (length,) = struct.unpack_from(">I", stored, at)
        total += _varint(stored[at + 4 : at + 9])
        at += 4 + length
    return total


def _varint(data: bytes) -> int:
    value = 0
    for number, byte in enumerate(data[:5]):
        value |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return value
    return 0


def _lz4_bytes(stored: bytes) -> int:
    """Add up the most that each block of an LZ4 frame can hold (LZ4_Frame_format.md)."""
    if len(stored) < 7 or struct.unpack_from("<I", stored)[0] != _LZ4_MAGIC:
        return 0
    flags, sizes = stored[4], stored[5]
    block_bytes = 1 << (8 + 2 * max(4, sizes >> 4 & 7))
    has_block_checksum, has_size, has_dictionary = flags & 0x10, flags & 0x08, flags & 0x01
    at = 7 + (8 if has_size else 0) + (4 if has_dictionary else 0)
    total = 0
    while at + 4 <= len(stored):
        (head,) = struct.unpack_from("<I", stored, at)
        length, is_plain = head & 0x7FFF_FFFF, head >> 31
        if length == 0:
            break
        total += length if is_plain else min(block_bytes, _LZ4_RATIO * length)
        at += 4 + length + (4 if has_block_checksum else 0)
    return total


def _zstd_bytes(stored: bytes) -> int:
    """Add up what each frame declares, or else the most that its blocks can hold (RFC 8878)."""
    total = at = 0
    while at + 8 <= len(stored):
        magic, size = struct.unpack_from("<II", stored, at)
        if magic >> 4 == _ZSTD_SKIPPABLE:
            at += 8 + size
            continue
        if magic != _ZSTD_MAGIC:
            break
        has_checksum = stored[at + 4] & 0x04
        declared, at = _zstd_header(stored, at + 4)
        held, at = _zstd_blocks(stored, at)
        at += 4 if has_checksum else 0
        total += held if declared is None else declared
    return total


def _zstd_header(stored: bytes, at: int) -> tuple[int | None, int]:
    """Return the content size that a frame declares, and where its first block begins."""
    flags = stored[at]
    is_single = flags & 0x20
    dictionary_bytes = (0, 1, 2, 4)[flags & 0x03]
    size_bytes = (1 if is_single else 0, 2, 4, 8)[flags >> 6]
    at += 1 + (0 if is_single else 1) + dictionary_bytes
    declared = int.from_bytes(stored[at : at + size_bytes], "little") if size_bytes else None
    if declared is not None and size_bytes == 2:
        declared += 256
    return declared, at + size_bytes


def _zstd_blocks(stored: bytes, at: int) -> tuple[int, int]:
    """Return the most that a frame's blocks can hold, and where the frame's last one ends."""
    total, is_last = 0, 0
    while not is_last and at + 3 <= len(stored):
        head = int.from_bytes(stored[at : at + 3], "little")
        is_last, kind, size = head & 1, head >> 1 & 3, head >> 3
        total += _ZSTD_BLOCK_BYTES if kind == _ZSTD_COMPRESSED else size
        at += 3 + (1 if kind == _ZSTD_REPEATED else size)
    return total, at


_COUNTS: Mapping[str, Callable[[bytes], int]] = {
    "gzip": _gzip_bytes,
    "snappy": _snappy_bytes,
    "lz4": _lz4_bytes,
    "zstd": _zstd_bytes,
}


def _large(partition: TopicPartition, batch: LogBatch, size: int) -> LargeBatch:
    return LargeBatch(
        partition=partition,
        first_offset=batch.first_offset,
        next_offset=batch.next_offset,
        records=batch.record_count,
        codec=batch.codec,
        stored_bytes=batch.size_bytes,
        unpacked_bytes=size,
    )
