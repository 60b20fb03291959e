"""What is kept of an open transaction is all that is not committed, in its order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eosframework.records import TopicPartition
from eosframework.spark.executor.attempt_context import Chunk, Run
from tests.support.memory.scripted_kafka import At

PARTITIONS = [TopicPartition("a", 0), TopicPartition("b", 0)]


@st.composite
def runs(draw: st.DrawFn) -> list[Run]:
    """Runs of two partitions whose offsets rise with gaps."""
    offsets = dict.fromkeys(PARTITIONS, 0)
    found: list[Run] = []
    for _ in range(draw(st.integers(0, 8))):
        partition = draw(st.sampled_from(PARTITIONS))
        messages: list[At] = []
        for gap in draw(st.lists(st.integers(1, 3), min_size=1, max_size=5)):
            offsets[partition] += gap
            messages.append(At(b"x" * gap, offsets[partition], place=partition))
        found.append((partition, messages))
    return found


def flat(chunk: Chunk | list[Run]) -> list[tuple[TopicPartition, int]]:
    return [(partition, message.offset()) for partition, messages in chunk for message in messages]


@given(runs(), st.integers(0, 40), st.integers(0, 40))
def test_what_lies_before_positions_is_forgotten_and_nothing_else(
    given_runs: list[Run], first: int, second: int
) -> None:
    chunk = Chunk(1000, 1000)
    for run in given_runs:
        chunk.add(*run)
    assert flat(chunk) == flat(given_runs)
    positions = dict(zip(PARTITIONS, (first, second), strict=True))
    kept = [(p, offset) for p, offset in flat(given_runs) if offset >= positions[p]]
    assert chunk.records_before(positions) == len(flat(given_runs)) - len(kept)
    chunk.drop_before(positions)
    assert flat(chunk) == kept


def test_a_chunk_is_full_by_records_or_by_bytes() -> None:
    [partition, _] = PARTITIONS
    by_records, by_bytes = Chunk(2, 1000), Chunk(1000, 10)
    for offset in range(2):
        assert not by_records.is_full
        assert not by_bytes.is_full
        for chunk in (by_records, by_bytes):
            chunk.add(partition, [At(b"12345", offset, place=partition)])
    assert by_records.is_full
    assert by_bytes.is_full
    by_records.drop_before({partition: 1})
    assert not by_records.is_full
