"""Receipts of a sink's shards, and the books that judge by them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eosframework.engine.task.receipts import HEADER_RECEIPT, Receipt, Series
from eosframework.operations.audit import Verdict
from eosframework.operations.audit.receipt_books import Books, Span
from eosframework.records import TopicPartition
from eosframework.spark.sinks.kafka.sink_log import moved, receipts_of, receipts_topic
from eosframework.spark.sinks.sink_entry import BatchIdentity, SinkBatch, is_batch_key, position
from eosframework.transactions.ports import Output

BATCH = BatchIdentity(query="q", number=0, range="r")
ROW: Output = ("out", b"", None, -1, None, None, 0, [("own", b"x")])


@dataclass
class Found:
    """A record as a reader of the topic finds it."""

    headers_: Any
    offset_: int = field(default=0)

    def headers(self) -> Any:
        return self.headers_

    def offset(self) -> int:
        return self.offset_


class History:
    """The batches of a sink, each with the rows of its shards, and the records of each shard."""

    def __init__(self, batches: list[tuple[bool, list[int]]]) -> None:
        self.positions: tuple[int, ...] = ()
        self.since: tuple[int, ...] | None = None
        self.records: dict[int, list[Found]] = {}
        for sequence, (receipts, counts) in enumerate(batches, start=1):
            self.since = (
                (self.positions if self.since is None else self.since) if receipts else None
            )
            batch = SinkBatch(
                sequence=sequence,
                batch=BATCH,
                shards=len(counts),
                stage=None,
                positions=self.positions,
                receipts_since=self.since,
                attempt="a",
                written_at=0,
            )
            for shard, count in enumerate(counts):
                written = self._written(batch, shard, count)
                self.records.setdefault(shard, []).extend(Found(one[7]) for one in written)
            self.positions = moved(self.positions, dict(enumerate(counts)))

    def _written(self, batch: SinkBatch, shard: int, count: int) -> list[Output]:
        receipts = receipts_of("app", "out", shard, batch)
        if receipts is None:
            return [ROW] * count
        half = count // 2  # two transactions
        return receipts.added([ROW] * half, 0) + receipts.added([ROW] * (count - half), half)

    def judged(self) -> list[tuple[int, int]]:
        """The shard and index of each record that receipts judge."""
        assert self.since is not None
        return [
            (shard, index)
            for shard, end in enumerate(self.positions)
            for index in range(position(self.since, shard), end)
        ]

    def audit(self, lost: set[tuple[int, int]], repeated: set[tuple[int, int]]) -> Verdict:
        assert self.since is not None
        spans: list[Span] = []
        for shard, end in enumerate(self.positions):
            first = position(self.since, shard)
            series = Series(first, end - first, end - 1 if end > first else None)
            place = TopicPartition(receipts_topic("out"), shard)
            spans.append(Span(place, first, end, end, series, 9, end))
        books = Books("app", spans, counted="batch")
        books.take_ranges_as_inputs()
        found = [
            (TopicPartition("out", shard), one)
            for shard, records in self.records.items()
            for index, one in enumerate(records)
            for _ in range(((shard, index) not in lost) + ((shard, index) in repeated))
        ]
        placed = [(place, Found(one.headers_, n)) for n, (place, one) in enumerate(found)]
        for place, one in placed:
            books.add(place, one)  # pyright: ignore[reportArgumentType]
        if books.prepare_second_pass():
            for place, one in placed:
                books.look_up(place, one)  # pyright: ignore[reportArgumentType]
        return books.verdict()


counts = st.lists(st.integers(0, 7), min_size=1, max_size=3)
histories = st.builds(
    lambda earlier, last: History([*earlier, (True, last)]),
    st.lists(st.tuples(st.booleans(), counts), max_size=4),
    counts,
)


@given(histories)
def test_a_sink_as_it_was_written_is_clean_whatever_its_batches_and_shards(
    history: History,
) -> None:
    verdict = history.audit(set(), set())
    assert verdict.clean, verdict
    assert verdict.input == verdict.output == len(history.judged())


@given(histories, st.data())
def test_each_lost_row_and_each_repeated_one_is_counted(history: History, data: Any) -> None:
    judged = history.judged()
    places = st.sets(st.sampled_from(judged)) if judged else st.just(set[tuple[int, int]]())
    lost = data.draw(places)
    repeated = data.draw(places) - lost
    verdict = history.audit(lost, repeated)
    assert (verdict.lost, verdict.duplicated) == (len(lost), len(repeated)), verdict
    assert (verdict.reordered, verdict.torn) == (0, 0), verdict
    assert bool(verdict.details) == bool(lost or repeated)


def test_a_lost_row_is_named_by_its_shard_and_position_and_a_lost_batch_by_its_number() -> None:
    history = History([(True, [2, 3]), (True, [2, 3]), (True, [2, 3])])
    [alone] = history.audit({(1, 4)}, set()).details
    assert alone.text == "the output of sink.out[1]@4 is not there"
    [whole] = history.audit({(1, 3), (1, 4), (1, 5)}, set()).details
    assert whole.text == (
        "3 outputs of input records from sink.out[1]@3 to sink.out[1]@5 are not there; there is "
        "nothing of batch 2"
    )


def test_a_receipt_keeps_the_headers_of_the_row() -> None:
    [[one]] = History([(True, [1])]).records.values()
    (name, value), (own, receipt) = one.headers()
    assert (name, value, own) == ("own", b"x", HEADER_RECEIPT)
    assert Receipt.parse(receipt) == Receipt("app", 0, "sink.out", 0, 0, 0, 1, 0, 0, 1)


def test_only_keys_of_batches_are_those_of_batches() -> None:
    keys = ("sink/out", "sink/out.job", "sink/out/shard/1", "backfill/out", "sink")
    assert list(map(is_batch_key, keys)) == [True, True, False, False, False]
