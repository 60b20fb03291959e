"""What receipts prove: each kind of damage to constructed histories is named, and no other."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from eosframework.engine.task.receipts import HEADER_RECEIPT, ReceiptedOutputs, Series
from eosframework.operations.audit.audit_verdict import Verdict
from eosframework.operations.audit.receipt_books import Books, Span
from eosframework.records import Position, TopicPartition
from tests.unit.engine.messages import Sent

PLACE = TopicPartition("in", 3)


@dataclass(frozen=True)
class Found:
    """An output as a consumer gives it."""

    headers_: list[tuple[str, bytes | None]]
    offset_: int = 0

    @property
    def receipt(self) -> str:
        return (dict(self.headers_)[HEADER_RECEIPT] or b"").decode()

    def headers(self) -> list[tuple[str, bytes | None]]:
        return self.headers_

    def offset(self) -> int:
        return self.offset_


@dataclass
class History:
    """Input records that each gave some outputs, some records to a transaction.

    Args:
        counts: how many outputs each input record gave.
        each: how many input records a transaction took.
    """

    counts: Sequence[int]
    each: int = 4
    since: int = 0

    def __post_init__(self) -> None:
        self.outputs: list[Found] = []
        self.input_of: list[int] = []
        made = ReceiptedOutputs("app")
        made.restart([Position(*PLACE, self.since)])
        for number, count in enumerate(self.counts):
            offset = self.since + number
            if number % self.each == 0:
                made.begin(PLACE, number // self.each + 1)
            mark = len(made)
            made += [("out", b"", None, -1, None, None, 0, None)] * count
            made.seal(mark, Sent(b"", offset))
            made.end(PLACE)
            self.input_of += [offset] * count
        self.series = made.series(PLACE)
        self.outputs = [Found(output[7]) for output in made]
        self.end = self.since + len(self.counts)

    def audit(
        self,
        found: Iterable[tuple[Found, int]] | None = None,
        *,
        start: int = 0,
        end: int | None = None,
        position_now: int | None = None,
        series: Series | None = None,
    ) -> Verdict:
        """Audit what was found: outputs, each with its output partition."""
        found = [(output, 0) for output in self.outputs] if found is None else found
        span = Span(
            PLACE,
            max(start, self.since),
            self.end if end is None else end,
            self.end,
            series or self.series,
            len(self.counts) // self.each + bool(len(self.counts) % self.each),
            self.end if position_now is None else position_now,
        )
        books = Books("app", [span])
        books.add_inputs(PLACE, [Sent(b"", n) for n in range(span.start, span.end)])
        placed: list[tuple[TopicPartition, Found]] = []
        ends: defaultdict[int, int] = defaultdict(int)
        for output, partition in found:
            place = TopicPartition("out", partition)
            placed.append((place, Found(output.headers_, ends[partition])))
            ends[partition] += 1
        placed.sort(key=lambda one: one[0])
        for place, output in placed:
            assert books.add(place, output)  # pyright: ignore[reportArgumentType]
        if books.prepare_second_pass():
            for place, output in placed:
                books.look_up(place, output)  # pyright: ignore[reportArgumentType]
        return books.verdict()

    def without(self, *indexes: int) -> list[tuple[Found, int]]:
        return [(o, 0) for i, o in enumerate(self.outputs) if i not in indexes]


def faults(verdict: Verdict) -> dict[str, int]:
    return {
        name: n for name, n in verdict.counts().items() if n and name not in ("input", "output")
    }


def texts(verdict: Verdict) -> list[str]:
    return [detail.text for detail in verdict.details]


def test_a_history_with_filtered_records_is_clean() -> None:
    verdict = History([1, 0, 2, 0, 0, 3, 1, 0]).audit()
    assert verdict.clean, verdict
    assert (verdict.input, verdict.output) == (8, 7)


def test_a_lost_output_is_told_from_a_filtered_record() -> None:
    history = History([1, 0, 1, 0, 1])
    verdict = history.audit(history.without(1))
    assert faults(verdict) == {"lost": 1}
    assert texts(verdict) == ["the output of in[3]@2 is not there"]
    assert verdict.details[0].input == "in[3]@2"


def test_a_loss_at_the_end_shows_by_the_number_at_the_committed_position() -> None:
    history = History([1, 1, 1, 0])
    verdict = history.audit(history.without(2))
    assert faults(verdict) == {"lost": 1}
    assert texts(verdict) == ["the output of in[3]@2 is not there"]


def test_a_loss_at_the_beginning_is_named() -> None:
    history = History([2, 1, 1], since=50)
    verdict = history.audit(history.without(0, 1))
    assert faults(verdict) == {"lost": 2}
    assert texts(verdict) == ["all 2 outputs of in[3]@50 are not there"]


def test_a_record_with_half_of_its_outputs_is_torn() -> None:
    history = History([2, 2, 2])
    verdict = history.audit(history.without(3))
    assert faults(verdict) == {"lost": 1, "torn": 1}
    assert texts(verdict) == [
        "output 2 of 2 of in[3]@1 is not there",
        "in[3]@1: only a part of its outputs is there",
    ]


def test_a_lost_transaction_is_told_as_one() -> None:
    history = History([1] * 12)
    verdict = history.audit(history.without(4, 5, 6, 7))
    assert faults(verdict) == {"lost": 4}
    [detail] = verdict.details
    assert (detail.input, detail.through, detail.transaction) == ("in[3]@4", "in[3]@7", 2)
    assert detail.text == (
        "4 outputs of input records from in[3]@4 to in[3]@7 are not there; "
        "there is nothing of transaction 2"
    )


def test_a_copy_names_its_input_and_the_first() -> None:
    history = History([1, 2, 1])
    verdict = history.audit([*history.without(), (history.outputs[2], 1)])
    assert faults(verdict) == {"duplicated": 1}
    assert texts(verdict) == ["out[1]@0 repeats out[0]@2: output 2 of 2 of in[3]@1"]


def test_a_doubled_transaction_is_told_as_one() -> None:
    history = History([1] * 12)
    again = [(output, 0) for output in history.outputs[4:8]]
    verdict = history.audit([*history.without(), *again])
    assert faults(verdict) == {"duplicated": 4}
    [detail] = verdict.details
    assert (detail.input, detail.through, detail.transaction) == ("in[3]@4", "in[3]@7", 2)
    assert detail.text == (
        "all 4 outputs of in[3]@4 to in[3]@7 are there again: the whole of transaction 2, "
        "from out[0]@12 on"
    )


def test_outputs_of_one_partition_in_another_order_are_reordered() -> None:
    history = History([1] * 5)
    order = [0, 2, 1, 3, 4]
    verdict = history.audit([(history.outputs[i], 0) for i in order])
    assert faults(verdict) == {"reordered": 1}
    assert texts(verdict) == ["out[0]@2, an output of in[3]@1, comes after an output of in[3]@2"]


def test_order_between_output_partitions_is_free() -> None:
    history = History([2] * 5)
    assert history.audit([(o, i % 2) for i, o in enumerate(history.outputs)]).clean


def test_outputs_of_one_record_in_two_transactions_are_torn() -> None:
    history = History([2, 2, 2])
    moved = Found([(HEADER_RECEIPT, (history.outputs[3].receipt[:-1] + "7").encode())])
    found = [(moved if i == 3 else o, 0) for i, o in enumerate(history.outputs)]
    verdict = history.audit(found)
    assert faults(verdict) == {"torn": 1}
    assert texts(verdict)[0].startswith("the outputs of in[3]@1 are in different transactions")


def test_an_output_whose_position_is_not_committed_is_torn() -> None:
    longer = History([1] * 6)
    shorter = History([1] * 4)
    verdict = shorter.audit([(o, 0) for o in longer.outputs])
    assert faults(verdict) == {"torn": 2}
    assert "in[3]@4 is not committed" in texts(verdict)[0]
    assert shorter.audit([(o, 0) for o in longer.outputs], position_now=6).clean


def test_a_number_that_was_never_given_is_unexpected() -> None:
    history = History([1] * 3)
    forged = Found([(HEADER_RECEIPT, b"1/app/0/in/3/2/0/1/9/1/1")])
    verdict = history.audit([*history.without(), (forged, 0)])
    assert (faults(verdict), verdict.unexpected) == ({"duplicated": 1}, 1)
    assert "has number 9" in texts(verdict)[0]


def test_input_that_was_processed_under_an_earlier_numbering_as_well_is_duplicated() -> None:
    earlier, later = History([1] * 6), History([1] * 3, since=3)
    verdict = later.audit([(o, 0) for o in [*earlier.outputs[3:], *later.outputs]])
    assert faults(verdict) == {"duplicated": 3}
    assert "processed again since @3" in texts(verdict)[0]


def test_receipts_of_others_are_left_to_the_functions() -> None:
    books = Books("app", [Span(PLACE, 3, 6, 6, Series(3), 1, 6)])
    for receipt in (
        b"1/other/3/in/3/4/0/1/0/0/1",
        b"1/app/3/in/0/4/0/1/0/0/1",
        b"1/app/0/in/3/2/0/1/2/1/1",
        b"nonsense",
    ):
        message = Found([(HEADER_RECEIPT, receipt)])
        assert not books.add(TopicPartition("out", 0), message)  # pyright: ignore[reportArgumentType]
    assert not books.add(TopicPartition("out", 0), Found([]))  # pyright: ignore[reportArgumentType]


def test_a_part_does_not_answer_for_what_retention_removed_before_it() -> None:
    history = History([1, 0, 2] * 10)
    kept = [(o, 0) for i, o in enumerate(history.outputs) if history.input_of[i] >= 12]
    assert history.audit(kept, start=12).clean
    assert history.audit(kept, start=13).clean
    assert not history.audit(kept, start=8).clean


def test_a_part_does_not_answer_for_its_neighbours() -> None:
    history = History([2] * 10)
    lost = history.without(8, 9)
    assert history.audit(lost, end=4).clean
    assert history.audit(lost, start=5).clean
    assert faults(history.audit(lost, start=4, end=5)) == {"lost": 2}
    assert faults(history.audit(lost, start=2, end=8)) == {"lost": 2}


def stretch(history: History, *, until: int | None = None, end: int | None = None) -> Span:
    """The span of a history, up to `end`."""
    return Span(
        PLACE,
        history.since,
        history.end if end is None else end,
        history.end,
        history.series,
        1,
        history.end,
        until,
    )


def judged(spans: Sequence[Span], outputs: Iterable[Found]) -> tuple[Verdict, list[bool]]:
    """The verdict of the books of several stretches, and which outputs they took."""
    books = Books("app", spans)
    books.add_inputs(PLACE, [Sent(b"", n) for n in range(100)])
    placed = [Found(one.headers_, n) for n, one in enumerate(outputs)]
    out = TopicPartition("out", 0)
    taken = [books.add(out, one) for one in placed]  # pyright: ignore[reportArgumentType]
    if books.prepare_second_pass():
        for one in placed:
            books.look_up(out, one)  # pyright: ignore[reportArgumentType]
    return books.verdict(), taken


def test_a_job_after_live_workers_is_judged_by_a_book_of_its_own() -> None:
    """Its outputs follow theirs in the topic, for records that precede theirs."""
    job, live = History([1, 2, 0, 1]), History([1] * 4, since=4)
    spans = [stretch(job, until=4), stretch(live)]
    outputs = [*live.outputs, *job.outputs]
    verdict, taken = judged(spans, outputs)
    assert verdict.clean, verdict
    assert (verdict.input, verdict.output, all(taken)) == (8, 8, True)
    lost, _ = judged(spans, [*live.outputs[1:], *job.outputs[:-1], job.outputs[0]])
    assert faults(lost) == {"lost": 2, "duplicated": 1}
    assert {detail.input for detail in lost.details} == {"in[3]@0", "in[3]@3", "in[3]@4"}


def test_what_a_job_and_live_workers_both_processed_is_duplicated() -> None:
    job, live = History([1] * 6), History([1] * 6, since=4)
    spans = [stretch(job, until=6, end=4), stretch(live)]
    verdict, _ = judged(spans, [*job.outputs, *live.outputs])
    assert faults(verdict) == {"duplicated": 2}
    assert (verdict.input, verdict.output) == (10, 12)
    assert [detail.input for detail in verdict.details] == ["in[3]@4", "in[3]@5"]
    lost, _ = judged(spans, [*job.outputs[:3], *job.outputs[4:], *live.outputs])
    assert faults(lost) == {"lost": 1, "duplicated": 2}


def test_what_live_workers_wrote_on_in_a_numbering_that_ended_is_left_to_the_functions() -> None:
    whole = History([1] * 6)
    job, live = History([1] * 4), History([1] * 2, since=6)
    spans = [replace(stretch(job, until=4), position_now=8), stretch(live)]
    verdict, taken = judged(spans, [*whole.outputs, *live.outputs])
    assert verdict.clean, verdict
    assert taken == [True] * 4 + [False] * 2 + [True] * 2


def test_outputs_of_a_job_whose_progress_is_not_committed_are_torn() -> None:
    written, committed = History([1] * 6), History([1] * 4)
    verdict, _ = judged([stretch(committed, until=10)], written.outputs)
    assert faults(verdict) == {"torn": 2}


COUNTS = st.lists(st.integers(0, 3), min_size=1, max_size=60)


@given(COUNTS, st.data())
@settings(max_examples=150, deadline=None)
def test_any_part_of_a_healthy_history_is_clean(counts: list[int], data: st.DataObject) -> None:
    history = History(counts, since=data.draw(st.integers(0, 5)))
    start = data.draw(st.integers(history.since, history.end))
    end = data.draw(st.integers(start, history.end))
    found = [(o, data.draw(st.integers(0, 2))) for o in history.outputs]
    verdict = history.audit(found, start=start, end=end)
    assert verdict.clean, verdict
    inside = sum(start <= offset < end for offset in history.input_of)
    assert (verdict.input, verdict.output) == (end - start, inside)


@given(COUNTS, st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_every_loss_and_every_copy_is_counted(counts: list[int], chance: random.Random) -> None:
    history = History(counts, each=chance.randint(1, 9))
    kept = [i for i in range(len(history.outputs)) if chance.random() > 0.2]
    copied = [i for i in kept if chance.random() < 0.2]
    found = [(history.outputs[i], chance.randint(0, 2)) for i in kept]
    found += [(history.outputs[i], 3) for i in copied]
    verdict = history.audit(found)
    there: defaultdict[int, int] = defaultdict(int)
    for i in kept:
        there[history.input_of[i]] += 1
    torn = sum(0 < there[n] < count for n, count in enumerate(counts))
    expected = (len(history.outputs) - len(kept), len(copied), 0, torn)
    found_faults = (verdict.lost, verdict.duplicated, verdict.reordered, verdict.torn)
    assert found_faults == expected
    lost_inputs = {history.input_of[i] for i in range(len(history.outputs)) if i not in kept}
    for detail in verdict.details:
        assert detail.input is not None
        first, through = (
            int((name or "@-1").split("@")[1]) for name in (detail.input, detail.through)
        )
        if detail.kind == "lost":
            assert lost_inputs & set(range(first, max(first, through) + 1)), (detail, lost_inputs)
