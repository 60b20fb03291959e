"""What a changelog's transactions and holes say about the state that a transaction met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from eosframework.engine.task.transaction_receipts import TransactionReceipt
from eosframework.operations.why.state_history import (
    Changelog,
    HistoryMissing,
    Segment,
    StateHistory,
    StoreContent,
)
from eosframework.records import TopicPartition
from eosframework.state.memory import MemoryStore

PLACE = TopicPartition("shop-totals-changelog", 0)


def changelog(*numbers: int | None, holes: Sequence[tuple[int, int]] = ()) -> Changelog:
    """Return a changelog of transactions with three offsets each; None has no receipt."""
    segments = [
        Segment(
            3 * at,
            3 * at + 3,
            None if n is None else TransactionReceipt("shop", "part", 0, n, 0),
        )
        for at, n in enumerate(numbers)
    ]
    return Changelog("totals", PLACE, 0, 3 * len(segments), segments, holes)


@pytest.mark.parametrize(
    ("numbers", "asked", "boundary"),
    [
        ((1, 2, 3), 2, 3),
        ((1, 2, 5), 4, 6),
        ((1, 2, 5), 6, 9),
        ((4, 5), 3, 0),
        ((), 3, 0),
        ((None, None, 3), 3, 6),
        ((None, 3, 4), 4, 6),
        ((1, None, 3), 3, 6),
    ],
)
def test_the_state_is_that_before_the_first_record_of_the_transaction(
    numbers: tuple[int | None, ...], asked: int, boundary: int
) -> None:
    assert changelog(*numbers).boundary(asked) == boundary


@pytest.mark.parametrize(
    ("numbers", "asked"),
    [((None, 5), 4), ((1, None, 5), 3), ((1, None), 3), ((None,), 2), ((None, None, 9), 8)],
)
def test_transactions_of_unknown_numbers_in_between_are_not_guessed(
    numbers: tuple[int | None, ...], asked: int
) -> None:
    with pytest.raises(HistoryMissing, match=r"without a receipt.*worker\.receipts=true"):
        changelog(*numbers).boundary(asked)


def test_transactions_that_were_numbered_anew_are_ambiguous() -> None:
    with pytest.raises(HistoryMissing, match="numbered anew"):
        changelog(1, 2, 3, 1, 2).boundary(2)


def doubts(
    last: dict[bytes, int],
    later: set[bytes],
    holes: Sequence[tuple[int, int]],
    keys: Sequence[bytes] = (),
    scans: Sequence[tuple[bytes, bytes | None]] = (),
) -> bool:
    """Return whether the entries at offset 10 are in doubt."""
    history = StateHistory.__new__(StateHistory)
    history.changelogs = {"totals": replace(changelog(1), holes=holes)}
    content = StoreContent(MemoryStore(), 10, last, {}, later)
    return history.doubts("totals", content, keys, scans) is not None


def test_without_holes_every_entry_is_exact() -> None:
    assert not doubts({b"a": 3}, {b"a"}, [], [b"a", b"b"], [(b"", None)])


def test_an_entry_is_in_doubt_if_a_later_record_may_have_removed_its_last_one() -> None:
    assert doubts({b"a": 3}, {b"a"}, [(5, 6)], [b"a"])
    assert doubts({}, {b"a"}, [(5, 6)], [b"a"])
    assert not doubts({b"a": 7}, {b"a"}, [(5, 6)], [b"a"]), "the hole is older than its record"
    assert not doubts({b"a": 3}, {b"b"}, [(5, 6)], [b"a"]), "no later record has the key"
    assert doubts({b"a": 3}, {b"b"}, [(5, 6), (12, 13)], [b"a"]), "its later record may be gone"
    assert not doubts({b"a": 3}, set(), [(12, 13)], [b"a"]), "nothing before is gone"


def test_a_range_is_in_doubt_if_one_of_its_keys_may_have_been_removed() -> None:
    assert doubts({}, {b"c"}, [(5, 6)], scans=[(b"b", b"d")])
    assert not doubts({}, {b"x"}, [(5, 6)], scans=[(b"b", b"d")])
    assert doubts({}, set(), [(5, 6), (11, 12)], scans=[(b"b", b"d")])
