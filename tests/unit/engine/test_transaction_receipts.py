"""Receipts of transactions, and the records that have one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eosframework.engine.task.transaction_receipts import (
    HEADER_TRANSACTION,
    TransactionReceipt,
    transaction_of,
)
from eosframework.records import TopicPartition

NUMBERS = st.integers(0, 2**62)
TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)
PARTITIONS = st.builds(TopicPartition, TOPICS, st.integers(0, 999))
RECEIPTS = st.builds(
    TransactionReceipt,
    st.just("app"),
    TOPICS,
    st.integers(0, 999),
    NUMBERS,
    NUMBERS,
    st.dictionaries(PARTITIONS, st.tuples(NUMBERS, NUMBERS), max_size=3),
)


@given(RECEIPTS)
def test_a_receipt_is_read_as_it_was_written(receipt: TransactionReceipt) -> None:
    name, value = receipt.header
    assert name == HEADER_TRANSACTION
    assert transaction_of([("other", b"1"), (name, value)]) == receipt


@given(st.binary())
def test_anything_else_is_no_receipt(value: bytes) -> None:
    found = TransactionReceipt.parse(value)
    assert found is None or str(found).encode() == value


def test_a_receipt_of_another_version_is_none() -> None:
    assert TransactionReceipt.parse(b"2/app/part/0/1/0") is None
    assert TransactionReceipt.parse(b"1/app/part/0/1/0/in/0/5") is None
    assert TransactionReceipt.parse(None) is None
