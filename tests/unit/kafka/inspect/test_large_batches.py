"""Sizes that compressed batches unpack to, read from their formats."""

from __future__ import annotations

import gzip
import struct

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework.kafka.inspect import large_batches
from eosframework.kafka.inspect.large_batches import unpacked_bytes

FRAME = struct.pack("<IBBB", 0x184D2204, 0x60, 0x40, 0)
"""Of LZ4, with blocks of 64 KB and without checksums."""
ZSTD = struct.pack("<I", 0xFD2FB528)
JAVA = b"\x82SNAPPY\0" + bytes(8)


@given(st.binary(max_size=10_000), st.integers(1, 300))
def test_gzip_is_counted_exactly(part: bytes, times: int) -> None:
    assert unpacked_bytes("gzip", gzip.compress(part * times)) == len(part) * times


def test_a_batch_that_unpacks_to_gigabytes_is_counted_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(large_batches, "MOST_BYTES", 3_000_000)
    assert unpacked_bytes("gzip", gzip.compress(bytes(50_000_000))) == 3_000_000


def test_blocks_of_lz4_count_what_they_can_hold_at_most() -> None:
    blocks = [
        struct.pack("<I", 1000) + bytes(1000),  # at most 64 KB, whatever it is
        struct.pack("<I", 10) + bytes(10),
        struct.pack("<I", 5 | 1 << 31) + bytes(5),  # not compressed
        struct.pack("<I", 0) + struct.pack("<I", 9) + bytes(9),  # after the end
    ]
    assert unpacked_bytes("lz4", FRAME + b"".join(blocks)) == 65_536 + 2550 + 5


@pytest.mark.parametrize(("head", "size"), [(b"\x05", 5), (b"\x80\x80\x04", 65_536), (b"", 0)])
def test_snappy_says_its_length(head: bytes, size: int) -> None:
    assert unpacked_bytes("snappy", head) == size
    chunk = head + b"abc"
    chunks = 2 * (struct.pack(">I", len(chunk)) + chunk)
    assert unpacked_bytes("snappy", JAVA + chunks) == (2 * size if head else 2 * ord("a"))


@given(st.binary(max_size=10_000), st.integers(1, 300))
def test_zstd_that_declares_its_size_is_counted_exactly(part: bytes, times: int) -> None:
    stored = pyarrow.compress(part * times, "zstd", asbytes=True)
    skippable = struct.pack("<II", 0x184D2A53, 3) + b"abc"
    assert unpacked_bytes("zstd", stored) == len(part) * times
    assert unpacked_bytes("zstd", skippable + 2 * stored) == 2 * len(part) * times


@given(st.binary(min_size=1, max_size=10_000), st.integers(1, 3000))
def test_zstd_without_its_size_counts_what_its_blocks_can_hold(part: bytes, times: int) -> None:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(part * times)
    size, counted = len(part) * times, unpacked_bytes("zstd", sink.getvalue().to_pybytes())
    assert size <= counted <= size + 2 * 131_072


@given(
    st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd", "7"]),
    st.sampled_from([b"", FRAME, JAVA, ZSTD, gzip.compress(b"x")[:12]]),
    st.binary(max_size=200),
)
def test_whatever_is_stored_has_a_size(codec: str, begin: bytes, rest: bytes) -> None:
    assert 0 <= unpacked_bytes(codec, begin + rest) <= large_batches.MOST_BYTES
