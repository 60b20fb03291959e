"""The content of receipts; their numbers have no gap, whatever the outcome of transactions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework.engine.failures.failure_handler import FailureHandler
from eosframework.engine.task.offsets import Progress
from eosframework.engine.task.receipts import (
    HEADER_RECEIPT,
    Receipt,
    ReceiptedOutputs,
    Series,
)
from eosframework.engine.task.transaction_receipts import TransactionReceipt
from eosframework.records import Position, TopicPartition
from eosframework.topology.graph.graph import Operator
from tests.unit.engine.messages import DEAD, SKIP, Sent, compiled, json_messages, sink, step

PLACE = TopicPartition("in", 3)
NUMBERS = st.integers(0, 2**62)


def outputs(metadata: str = "", *, offset: int = 0, transaction: int = 1) -> ReceiptedOutputs:
    made = ReceiptedOutputs("app")
    made.restart([Position("in", 3, offset, metadata)])
    made.begin(PLACE, transaction)
    return made


def receipts(out: Any) -> list[str]:
    return [dict(output[7])[HEADER_RECEIPT].decode() for output in out]


def run(out: ReceiptedOutputs, target: Any, messages: Any) -> list[str]:
    target.run(messages, out, 0, FailureHandler())
    out.end(PLACE)
    return receipts(out)


@given(NUMBERS, NUMBERS, st.integers(0, 99), st.integers(0, 9), NUMBERS, NUMBERS, NUMBERS)
def test_a_receipt_reads_back_as_it_was_written(
    since: int, offset: int, index: int, more: int, first: int, gap: int, transaction: int
) -> None:
    receipt = Receipt(
        "a.b_1",
        since,
        "T.in-x_1",
        7,
        offset,
        index,
        index + 1 + more,
        first + index,
        gap,
        transaction,
    )
    assert Receipt.parse(str(receipt).encode()) == receipt
    assert (receipt.first, receipt.end) == (first, first + index + 1 + more)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"1/a/0/t/0/1",
        b"2/a/0/t/0/1/0/1/0/0/1",
        b"1/a/0/t/0/x/0/1/0/0/1",
        b"\xff",
        b"1/a/0/t/0/1/1/1/1/0/1",
        b"1/a/0/t/0/1/1/2/0/0/1",
    ],
)
def test_what_is_no_receipt_is_not_taken_for_one(value: bytes | None) -> None:
    assert Receipt.parse(value) is None


@given(NUMBERS, NUMBERS, st.none() | NUMBERS)
def test_a_numbering_reads_back_beside_the_progress(
    since: int, number: int, last: int | None
) -> None:
    progress, series = Progress(5, 6), Series(since, number, last)
    metadata = f"{progress};{series}"
    assert Series.parse(metadata) == Series.parse(f"{metadata}\0") == series
    assert Progress.parse(metadata) == progress
    assert Series.parse(str(progress)) is None


def test_outputs_are_numbered_across_records_and_know_the_one_before() -> None:
    target = compiled(step(Operator.FLAT_MAP_VALUES, lambda v: v, sink()), receipts=True)
    found = run(outputs(transaction=9), target, json_messages([1, 2], [], [3]))
    assert found == [
        "1/app/0/in/3/0/0/2/0/0/9",
        "1/app/0/in/3/0/1/2/1/0/9",
        "1/app/0/in/3/2/0/1/2/2/9",
    ]


def test_a_numbering_goes_on_behind_a_committed_position() -> None:
    target = compiled(sink(), receipts=True)
    found = run(outputs("eos1;4;0;r1;2;70;9", offset=12), target, [Sent(b"1", 12)])
    assert found == ["1/app/2/in/3/12/0/1/70/3/1"]


def test_without_a_numbering_at_the_position_a_new_one_begins_there() -> None:
    found = run(outputs("eos1;4;0", offset=12), compiled(sink(), receipts=True), [Sent(b"1", 12)])
    assert found == ["1/app/12/in/3/12/0/1/0/0/1"]


def test_what_is_rewound_is_numbered_again() -> None:
    target, messages = compiled(sink(), receipts=True), json_messages(1, 2)
    out = outputs()
    first = run(out, target, messages)
    assert out.series(PLACE) == Series(0, 2, 1)
    out.clear()
    out.rewind()
    assert out.series(PLACE) == Series(0)
    out.begin(PLACE, 1)
    assert run(out, target, messages) == first
    out.committed()
    out.rewind()
    assert out.series(PLACE) == Series(0, 2, 1)


def test_a_dead_letter_has_a_receipt_and_a_skipped_record_none() -> None:
    def fail(value: Any) -> Any:
        raise ValueError(value)

    dead = compiled(step(Operator.MAP_VALUES, fail, sink(), on_error=DEAD), receipts=True)
    assert run(outputs(), dead, json_messages(1)) == ["1/app/0/in/3/0/0/1/0/0/1"]
    skipped = compiled(step(Operator.MAP_VALUES, fail, sink(), on_error=SKIP), receipts=True)
    assert run(outputs(), skipped, json_messages(1)) == []


def test_a_receipt_that_came_with_the_input_is_replaced_and_other_headers_stay() -> None:
    theirs = [("h", b"1"), (HEADER_RECEIPT, b"1/other/0/t/0/1/0/1/0/0/1"), ("g", None)]
    out = outputs()
    compiled(sink(), receipts=True).run([Sent(b"1", headers_=theirs)], out, 0, FailureHandler())
    assert out[0][7] == [("h", b"1"), ("g", None), (HEADER_RECEIPT, b"1/app/0/in/3/0/0/1/0/0/1")]


def test_an_output_that_no_record_causes_has_the_receipt_of_its_transaction_alone() -> None:
    held = [("h", b"1"), (HEADER_RECEIPT, b"1/app/0/t/0/1/0/1/0/0/1")]
    out = outputs()
    out += [("late", b"1", None, 0, None, None, 5, headers) for headers in (held, [], None)]
    own = TransactionReceipt("app", "part", 0, 7, 99)
    out.attribute(own)
    assert [output[7] for output in out] == [[("h", b"1"), own.header], [own.header], [own.header]]


def test_without_receipts_the_generated_function_is_the_same_as_ever() -> None:
    plain, receipted = compiled(sink()), compiled(sink(), receipts=True)
    lines = receipted.text.splitlines()
    assert [line for line in lines if "seal" not in line] == plain.text.splitlines()
    assert len(lines) == len(plain.text.splitlines()) + 1
