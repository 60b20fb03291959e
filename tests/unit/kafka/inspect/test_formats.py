"""Decoding what brokers write: real bytes of Kafka 4.3.1, and every value through both versions."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework.errors import RunError
from eosframework.kafka.inspect.formats import (
    CommittedOffset,
    StateValue,
    TxnState,
    coordinator_partition,
    decode_offset,
    decode_state,
    transactional_id_of,
)
from eosframework.records import TopicPartition
from tests.support.faults.coordinator_log import encode_state

KEY = b"\x00\x00\x00\x0eflights:late:0"
ONGOING = (
    b"\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xea`\x01\x03\x06x.out\x02\x00\x00"
    b"\x00\x00\x00\x13__consumer_offsets\x02\x00\x00\x00\x01\x00\x00\x00\x01\xa1\xfc\xf3\x01\xb6"
    b"\x00\x00\x01\xa1\xfc\xf3\x01\xaa\x01\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00"
)
EMPTY = (
    b"\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xea`\x00\x00\x00\x00\x01\xa1\xfc\xf3"
    b"\x01K\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00"
)
OFFSET_KEY = b"\x00\x01\x00\x07flights\x00\x04x.in\x00\x00\x00\x00"
OFFSET = (
    b"\x00\x04\x00\x00\x00\x00\x00\x00\x00\x01\xff\xff\xff\xff\x03m\x00\x00\x00\x01\xa1\xfc\xf3"
    b"\x045\x00"
)


def test_the_states_that_kafka_4_writes_are_read() -> None:
    assert transactional_id_of(KEY) == "flights:late:0"
    assert decode_state(ONGOING) == StateValue(
        producer_id=0,
        producer_epoch=0,
        timeout_ms=60_000,
        state=TxnState.ONGOING,
        partitions=(TopicPartition("__consumer_offsets", 1), TopicPartition("x.out", 0)),
        updated_ms=1795245146550,
        started_ms=1795245146538,
    )
    empty = decode_state(EMPTY)
    assert (empty.state, empty.partitions, empty.started_ms) == (TxnState.EMPTY, (), None)


def test_the_positions_that_kafka_4_writes_are_read() -> None:
    expected = CommittedOffset("flights", TopicPartition("x.in", 0), 1)
    assert decode_offset(OFFSET_KEY, OFFSET) == expected
    group_metadata = b"\x00\x02\x00\x07flights"
    assert decode_offset(group_metadata, b"\x00\x03") is None


@pytest.mark.parametrize(
    ("name", "partitions", "expected"),
    [
        ("flights:early:0", 8, 6),
        ("flights", 4, 1),
        ("", 50, 0),
        ("polygenelubricants", 50, 0),
        ("\N{GRINNING FACE}", 1 << 30, 1772899),
    ],
    ids=["a negative hash", "a group", "empty", "the smallest integer", "a surrogate pair"],
)
def test_names_are_coordinated_where_java_looks_for_them(
    name: str, partitions: int, expected: int
) -> None:
    assert coordinator_partition(name, partitions) == expected


longs = st.integers(0, 2**63 - 1)
values = st.builds(
    StateValue,
    producer_id=longs,
    producer_epoch=st.integers(-1, 2**15 - 1),
    timeout_ms=st.integers(0, 2**31 - 1),
    state=st.sampled_from(TxnState),
    partitions=st.sets(
        st.builds(
            TopicPartition,
            st.text("abc._-", min_size=1, max_size=249),
            st.integers(0, 2**31 - 1),
        ),
        max_size=6,
    ).map(lambda chosen: tuple(sorted(chosen))),
    updated_ms=longs,
    started_ms=st.none() | longs,
)
tagged = st.dictionaries(st.integers(0, 300), st.binary(max_size=200), max_size=4)


@given(values, st.sampled_from([0, 1]), tagged)
def test_every_state_is_read_back_whatever_tags_later_versions_add(
    value: StateValue, version: int, tags: dict[int, bytes]
) -> None:
    assert decode_state(encode_state(value, version, tags)) == value


@given(values, st.sampled_from([0, 1]), st.data())
def test_a_state_cut_short_is_an_error_and_no_other_state(
    value: StateValue, version: int, data: st.DataObject
) -> None:
    whole = encode_state(value, version, {})
    # The tags that end version 1 are not read: cutting them off is not noticed.
    cut = whole[: data.draw(st.integers(0, len(whole) - 1 - version))]
    with pytest.raises(RunError, match="cannot be read"):
        decode_state(cut)


def test_a_version_from_the_future_is_said_to_be_one() -> None:
    with pytest.raises(RunError, match=r"version 2 of TransactionLogValue.*0 to 1"):
        decode_state(b"\x00\x02" + ONGOING[2:])


@given(st.sampled_from([0, 1, 2, 3, 4]), st.text(max_size=20), longs, st.integers(0, 2**31 - 1))
def test_a_position_is_read_from_every_version(
    version: int, group: str, offset: int, partition: int
) -> None:
    name = group.encode()
    key = struct.pack(">hh", 1, len(name)) + name + struct.pack(">h3si", 3, b"top", partition)
    value = struct.pack(">hq", version, offset)
    value += struct.pack(">i", 5) if version >= 3 else b""
    value += b"\x01" if version >= 4 else struct.pack(">h", 0)
    value += struct.pack(">q", 1) + (struct.pack(">q", 2) if version == 1 else b"")
    value += b"\x00" if version >= 4 else b""
    expected = CommittedOffset(group, TopicPartition("top", partition), offset)
    assert decode_offset(key, value) == expected
