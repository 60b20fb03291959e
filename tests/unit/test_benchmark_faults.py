"""The judge of `python -m benchmarks faults`, its page, and what it reads in frames."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from confluent_kafka import Message

from benchmarks.faults import page
from benchmarks.faults.judge import Verdict, judge
from benchmarks.faults.kinds import TITLES
from benchmarks.faults.peers import PEERS
from benchmarks.faults.spy import Spy, aborts, commits, transactional_id
from tests.support.faults.proxy import END_TXN, PRODUCE

DOCS = Path(__file__).resolve().parents[2] / "docs"
INPUTS = {0: b"a", 1: b"b", 2: b"a", 3: b"b"}


class Read:
    """A message that was read from a partition for its key."""

    def __init__(self, n: int, **more: object) -> None:
        self._record = {"n": n, **more}

    def value(self) -> bytes:
        return orjson.dumps(self._record)

    def partition(self) -> int:
        return ord(INPUTS[self._record["n"] % len(INPUTS)])  # type: ignore[operator]


def verdict(left: Sequence[Read], right: Sequence[Read] | None = None, **more: Any) -> Verdict:
    outputs = {"left": left, "right": left if right is None else right}
    given = {"aborted": set[bytes](), "is_stuck": False, **more}
    return judge(cast("dict[str, Sequence[Message]]", outputs), INPUTS, **given)


ALL = [Read(n) for n in range(4)]


def test_each_input_once_in_both_outputs_is_clean() -> None:
    assert verdict(ALL) == Verdict()
    assert str(verdict(ALL)) == "clean"


def test_what_is_missing_in_both_is_lost_and_in_one_is_torn_as_well() -> None:
    assert verdict(ALL[1:]) == Verdict(lost=1)
    assert verdict(ALL, ALL[1:]) == Verdict(lost=1, torn=1)


def test_what_is_missing_when_nothing_moves_is_stuck() -> None:
    assert verdict(ALL[:2], is_stuck=True) == Verdict(stuck=2)


def test_each_further_copy_is_doubled_and_reorders_nothing() -> None:
    assert verdict([*ALL, ALL[0]]) == Verdict(doubled=2)


def test_a_record_after_a_later_one_of_its_key_is_reordered() -> None:
    assert verdict([ALL[2], ALL[1], ALL[0], ALL[3]], ALL) == Verdict(reordered=1)
    assert verdict([ALL[1], ALL[0], ALL[2], ALL[3]], ALL) == Verdict()


def test_a_count_is_the_place_among_the_records_of_a_key() -> None:
    right = [Read(0, count=1), Read(1, count=1), Read(2, count=2), Read(3, count=2)]
    assert verdict(right) == Verdict()
    assert verdict([*right[:3], Read(3, count=3)], right) == Verdict(miscounted=1)


def test_a_record_that_its_producer_aborted_is_named() -> None:
    stamped = [Read(0, by="7-1"), *ALL[1:]]
    assert verdict(stamped, ALL, aborted={b"7-1"}) == Verdict(aborted=1)


def test_a_record_of_no_input_is_unexpected() -> None:
    assert verdict([*ALL, Read(9)], ALL) == Verdict(unexpected=1)


def frame(api_key: int, version: int, body: bytes, *, flexible: bool) -> bytes:
    head = struct.pack(">hhih", api_key, version, 1, 2) + b"me" + (b"\0" if flexible else b"")
    return struct.pack(">i", len(head + body)) + head + body


def end(*, commit: bool, version: int = 1) -> bytes:
    ids, committed = struct.pack(">qh", 1, 0), bytes([commit])
    if version < 3:
        body = struct.pack(">h", 4) + b"shop" + ids + committed
    else:
        body = b"\x05shop" + ids + committed + b"\0"
    return frame(END_TXN, version, body, flexible=version >= 3)


@pytest.mark.parametrize("version", [1, 5])
def test_an_end_of_a_transaction_is_read_in_both_forms(version: int) -> None:
    assert commits(end(commit=True, version=version))
    assert aborts(end(commit=False, version=version))
    assert transactional_id(END_TXN, end(commit=True, version=version)) == "shop"


def test_the_stamps_of_a_transaction_that_ends_by_an_abort_are_kept() -> None:
    spy = Spy()
    for stamp, commit in ((b"7-1", True), (b"7-2", False), (b"7-3", True)):
        records = struct.pack(">h", 4) + b'shop{"by": "' + stamp + b'"}'
        spy.see(PRODUCE, frame(PRODUCE, 8, records, flexible=False), False)
        spy.see(END_TXN, end(commit=commit), False)
    assert spy.aborted == {b"7-2"}


def test_a_held_abort_is_none_until_it_is_repeated() -> None:
    spy = Spy()
    expected = spy.expect(lambda sent: sent.api_key == END_TXN)
    spy.see(END_TXN, end(commit=False), True)
    assert not expected.came
    spy.see(END_TXN, end(commit=False), False)
    assert expected.came


def test_the_tables_of_the_page_are_those_of_its_data() -> None:
    text = (DOCS / "compared.md").read_text(encoding="utf-8")
    written = text.partition(page.BEGIN)[2].partition(page.END)[0]
    data = page.load(DOCS / "benchmarks" / "faults.json")
    assert written.strip() == page.tables(data)


def test_the_page_has_every_fault_and_every_contestant() -> None:
    text = (DOCS / "compared.md").read_text(encoding="utf-8")
    for title in TITLES.values():
        assert f"| {title} |" in text
    for peer in PEERS:
        assert f"| {peer.name} |" in text


def data_of(version: str, *rounds: tuple[int, int]) -> dict[str, Any]:
    trials = [{"seed": seed, "round": number} for seed, number in rounds]
    cell = {"version": version, "rounds": trials}
    return {"contestants": {"peer": {}}, "trials": {"peer": {"kill": cell}}}


def places(data: dict[str, Any]) -> list[tuple[int, int]]:
    rounds = data["trials"]["peer"]["kill"]["rounds"]
    return [(trial["seed"], trial["round"]) for trial in rounds]


def test_rounds_of_other_seeds_are_added_and_those_of_other_versions_dropped() -> None:
    kept = page.merged(data_of("1.0", (1, 1), (1, 2)), data_of("1.0", (2, 1), (1, 2)))
    assert places(kept) == [(1, 1), (1, 2), (2, 1)]
    assert places(page.merged(kept, data_of("1.1", (1, 1)))) == [(1, 1)]
