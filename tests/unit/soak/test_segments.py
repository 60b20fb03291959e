"""Segments as brokers write them, made with kafka-python, are read back with their outcomes."""

from __future__ import annotations

import struct
from pathlib import Path

from kafka.record.memory_records import MemoryRecordsBuilder

from tests.soak.history import Input, OffsetWritten, Outcome, Producer, Written
from tests.soak.segments import offsets_in, outputs_in


def batch(at: int, producer: int, epoch: int, *records: tuple[bytes, bytes]) -> bytes:
    builder = MemoryRecordsBuilder(
        magic=2,
        compression_type=0,
        batch_size=1 << 16,
        transactional=True,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=0,
    )
    for key, value in records:
        builder.append(timestamp=1, key=key, value=value)
    builder.close()
    # A broker puts the offset in front; the checksum does not cover it.
    return struct.pack(">q", at) + bytes(builder.buffer())[8:]


def marker(at: int, producer: int, epoch: int, *, commit: bool) -> bytes:
    content = bytearray(batch(at, producer, epoch, (struct.pack(">hh", 0, commit), b"\0" * 6)))
    (attributes,) = struct.unpack_from(">h", content, 21)
    struct.pack_into(">h", content, 21, attributes | 0x20)
    return bytes(content)


def segment(data: Path, partition: str, *batches: bytes) -> None:
    (data / partition).mkdir()
    (data / partition / f"{0:020}.log").write_bytes(b"".join(batches) + b"\0" * 100)


def committed_offset(group: str, topic: str, partition: int, offset: int) -> tuple[bytes, bytes]:
    names = b"".join(struct.pack(">h", len(n)) + n.encode() for n in (group, topic))
    key = struct.pack(">h", 1) + names + struct.pack(">i", partition)
    return key, struct.pack(">hq", 3, offset) + b"\0" * 14


def test_a_marker_decides_what_its_producer_has_written_since_the_last_one(tmp_path: Path) -> None:
    segment(
        tmp_path,
        "app.left-1",
        batch(0, 7, 0, (b"k", b"v"), (b"k", b"v")),
        batch(2, 8, 3, (b"k", b"v")),
        marker(3, 7, 0, commit=True),
        batch(4, 7, 0, (b"k", b"v")),
        marker(5, 8, 4, commit=False),
    )
    assert outputs_in(tmp_path, "app.left", "left") == [
        Written("left", 1, 0, 1, Producer(7, 0), Outcome.COMMITTED),
        Written("left", 1, 2, 2, Producer(8, 3), Outcome.ABORTED),
        Written("left", 1, 4, 4, Producer(7, 0), Outcome.OPEN),
    ]


def test_offsets_take_effect_in_the_order_of_their_markers(tmp_path: Path) -> None:
    segment(
        tmp_path,
        "__consumer_offsets-0",
        batch(0, 7, 0, committed_offset("app", "app.in", 0, 10)),
        batch(1, 8, 0, committed_offset("app", "app.in", 1, 20)),
        batch(2, 9, 0, committed_offset("other", "app.in", 1, 99)),
        marker(3, 8, 0, commit=True),
        marker(4, 7, 0, commit=True),
        marker(5, 9, 0, commit=True),
    )
    assert offsets_in(tmp_path, "app", "app.in") == [
        OffsetWritten(Input(1, 20), Producer(8, 0), Outcome.COMMITTED),
        OffsetWritten(Input(0, 10), Producer(7, 0), Outcome.COMMITTED),
    ]
