"""The steps of recorded ownership, K1 to K6, over a topic in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework.errors import ClusterUnreachable, Retriable, RunError
from eosframework.records import TopicPartition
from eosframework.testing.memory_kafka import MemoryOwnership
from eosframework.transactions.ownership import steps
from eosframework.transactions.ownership.entries import Claim, parse
from eosframework.transactions.ownership.ownership import Ownership
from eosframework.txnid import TransactionalId

names = st.text(alphabet="abc0_.", min_size=1, max_size=8)
claims = st.builds(
    Claim,
    names,
    st.integers(0, 99),
    st.lists(names, min_size=1, max_size=3, unique=True).map(lambda n: tuple(sorted(n))),
    st.text(min_size=1, max_size=20),
    st.from_regex(r"\A[0-9a-f]{4}\.[0-9]{1,3}\Z"),
)
MINE = Claim("sub", 0, ("in",), "app:worker.a:0", "a.1")
THEIRS = replace(MINE, transactional_id="app:worker.b:0", token="b.1")
TASK = TransactionalId.make("app", "sub", 0)
BY_TASK = {TASK: [TopicPartition("in", 0)]}


@pytest.fixture
def log() -> MemoryOwnership:
    return MemoryOwnership()


def recorded(log: MemoryOwnership, process: str = "a") -> Ownership:
    return Ownership(log, process)


def listed(log: MemoryOwnership) -> set[str]:
    return {entry.claim.transactional_id for entry in parse(log.read(), log.topic)}


@given(st.lists(claims, unique_by=lambda claim: claim.key, max_size=5))
def test_an_entry_is_read_as_it_was_written(given_: list[Claim]) -> None:
    log = MemoryOwnership()
    steps.add(log, given_)
    assert [entry.claim for entry in parse(log.read(), log.topic)] == given_


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b'{"id": 1, "topics": []}',
        b'{"id": "x", "topics": [1]}',
        b'{"id": "", "topics": []}',
        b'{"id": "%b", "topics": []}' % (b"x" * 40_000),
    ],
)
def test_an_entry_that_cannot_be_read_ends_the_worker_with_its_place(
    log: MemoryOwnership, value: bytes
) -> None:
    log.write({b"sub/0/a.1": value})
    with pytest.raises(RunError, match=r"entry 'sub/0/a\.1' .*memory-ownership\[0\]@0"):
        parse(log.read(), log.topic)


@pytest.mark.parametrize("key", [b"", b"sub", b"sub/x/a", b"sub/0", b"\xff/0/a"])
def test_a_record_under_another_key_is_none_of_the_application(
    log: MemoryOwnership, key: bytes
) -> None:
    log.write({key: b"{}"})
    assert parse(log.read(), log.topic) == []


def test_k2_finds_the_entries_before_ones_own_whatever_the_sub_topology_was_called(
    log: MemoryOwnership,
) -> None:
    former = replace(THEIRS, sub_topology="former", topics=("in", "other"))
    elsewhere = [replace(THEIRS, partition=1), replace(THEIRS, topics=("other",), token="b.2")]
    steps.add(log, [former, *elsewhere, MINE])
    found = steps.look(log, [MINE])
    assert not found.superseded
    assert [entry.claim for entry in found.earlier] == [former]
    assert found.ids([]) == [THEIRS.transactional_id]
    assert found.ids([THEIRS.transactional_id]) == []


def test_k2_gives_up_where_a_later_entry_is_there_or_ones_own_is_gone(log: MemoryOwnership) -> None:
    steps.add(log, [MINE])
    steps.add(log, [THEIRS])
    assert steps.look(log, [MINE]).superseded == (MINE,)
    assert steps.look(log, [THEIRS]).superseded == ()
    steps.remove(log, [MINE, THEIRS])
    assert steps.look(log, [THEIRS]).superseded == (THEIRS,)


def test_k4_removes_exactly_the_entries_that_k2_found(log: MemoryOwnership) -> None:
    """One that is added after K2 is later, and its owner fences this worker."""
    steps.add(log, [THEIRS])
    a = recorded(log)
    a.claim(BY_TASK, lambda _: MINE.transactional_id)
    later = replace(THEIRS, transactional_id="app:worker.c:0", token="c.1")
    a.take([TASK], [MINE.transactional_id], lambda ids: steps.add(log, [later]))
    assert listed(log) == {MINE.transactional_id, "app:worker.c:0"}


def test_a_takeover_inits_the_ids_of_earlier_entries_between_k2_and_k4(
    log: MemoryOwnership,
) -> None:
    steps.add(log, [THEIRS])
    a, inited = recorded(log), list[tuple[list[str], set[str]]]()
    a.claim(BY_TASK, lambda _: MINE.transactional_id)
    a.take([TASK], [MINE.transactional_id], lambda ids: inited.append((ids, listed(log))))
    both = {MINE.transactional_id, THEIRS.transactional_id}
    assert inited == [([THEIRS.transactional_id], both)]
    assert listed(log) == {MINE.transactional_id}


def test_a_taker_that_is_overtaken_gives_up_and_claims_again_with_another_token(
    log: MemoryOwnership,
) -> None:
    a, b = recorded(log), recorded(log, "b")
    a.claim(BY_TASK, lambda _: MINE.transactional_id)
    b.claim(BY_TASK, lambda _: THEIRS.transactional_id)
    with pytest.raises(Retriable, match=r"sub\[0\]: another process has claimed"):
        a.take([TASK], [MINE.transactional_id], lambda ids: pytest.fail("fenced its successor"))
    assert listed(log) == {THEIRS.transactional_id}
    a.claim(BY_TASK, lambda _: MINE.transactional_id)
    a.take([TASK], [MINE.transactional_id], lambda ids: None)
    assert b.superseded([TASK]) == [TASK]
    assert a.superseded([TASK]) == []


def test_k6_names_the_tasks_whose_entry_was_removed(log: MemoryOwnership) -> None:
    a = recorded(log)
    a.claim(BY_TASK, lambda _: MINE.transactional_id)
    assert a.superseded([TASK]) == []
    steps.remove(log, [entry.claim for entry in parse(log.read(), log.topic)])
    assert a.superseded([TASK]) == [TASK]


def test_a_removal_that_arrives_late_removes_no_later_entry(log: MemoryOwnership) -> None:
    a = recorded(log)
    a.claim(BY_TASK, lambda _: MINE.transactional_id)
    late = [entry.claim for entry in parse(log.read(), log.topic)]
    a.release([TASK])
    a.claim(BY_TASK, lambda _: MINE.transactional_id)
    steps.remove(log, late)
    assert a.superseded([TASK]) == []


def test_an_entry_without_an_answer_is_replaced_and_then_removed(log: MemoryOwnership) -> None:
    """It is there nevertheless, under a token that this process has given up."""

    class Unheard(MemoryOwnership):
        def write(self, values: Mapping[bytes, bytes | None]) -> None:
            log.write(values)
            raise ClusterUnreachable("no answer")

    a = recorded(log)
    deaf = recorded(Unheard(), "deaf")
    with pytest.raises(Retriable, match="no answer"):
        deaf.claim(BY_TASK, lambda _: MINE.transactional_id)
    assert len(log.read()) == 1
    a.claim(BY_TASK, lambda _: MINE.transactional_id)
    a.take([TASK], [MINE.transactional_id], lambda ids: pytest.fail(f"inited {ids}"))
    assert len(log.read()) == 1


def test_without_transactions_nothing_is_claimed() -> None:
    nothing = Ownership()
    nothing.claim(BY_TASK, str)
    nothing.take([TASK], [str(TASK)], lambda ids: pytest.fail("fenced"))
    assert nothing.superseded([TASK]) == []
    nothing.release([TASK])
