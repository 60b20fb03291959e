"""The steps of recorded ownership, K0 to K6, over a topic in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework.errors import ClusterUnreachable, Retriable, RunError
from eosframework.records import TopicPartition
from eosframework.testing.memory_kafka import MemoryOwnership
from eosframework.transactions.ownership import (
    Claim,
    Ownership,
    add_entries,
    look_for_others,
    parse,
    remove_entries,
)
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
    add_entries(log, given_)
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


def test_k2_finds_the_entries_of_others_whatever_the_sub_topology_was_called(
    log: MemoryOwnership,
) -> None:
    former = replace(THEIRS, sub_topology="former", topics=("in", "other"))
    elsewhere = [replace(THEIRS, partition=1), replace(THEIRS, topics=("other",), token="b.2")]
    later = replace(THEIRS, token="b.3")
    add_entries(log, [former, *elsewhere, MINE, later])
    found = look_for_others(log, [MINE])
    assert not found.removed
    assert [entry.claim for entry in found.others] == [former, later]
    remove_entries(log, [MINE])
    assert look_for_others(log, [MINE]).removed == (MINE,)


def taken(process: Ownership, id_: str, fence: Callable[[list[str]], object] = len) -> None:
    """Take the task over, as an init of the id between the two would."""
    process.prepare([id_])
    process.claim(BY_TASK, lambda _: [id_])
    process.take([TASK], [id_], fence)


def test_a_takeover_inits_the_ids_of_other_entries_between_k2_and_k4(log: MemoryOwnership) -> None:
    add_entries(log, [THEIRS])
    inited = list[tuple[list[str], set[str]]]()
    taken(recorded(log), MINE.transactional_id, lambda ids: inited.append((ids, listed(log))))
    both = {MINE.transactional_id, THEIRS.transactional_id}
    assert inited == [([THEIRS.transactional_id], both)]
    assert listed(log) == {MINE.transactional_id}


def test_k4_removes_exactly_the_entries_that_k2_found(log: MemoryOwnership) -> None:
    """One that is added after K2 is of an id that may have been inited since."""
    add_entries(log, [THEIRS])
    later = replace(THEIRS, token="b.2")
    taken(recorded(log), MINE.transactional_id, lambda ids: add_entries(log, [later]))
    assert later.key in log.read()
    assert THEIRS.key not in log.read()


def test_entries_of_the_own_id_are_removed_if_they_were_read_before_its_init(
    log: MemoryOwnership,
) -> None:
    """Another process has the same name: one that crashed, or one that has inited the id since."""
    crashed = replace(THEIRS, transactional_id=MINE.transactional_id)
    namesake = replace(crashed, token="b.2")
    add_entries(log, [crashed])
    a = recorded(log)
    a.prepare([MINE.transactional_id])
    add_entries(log, [namesake])
    a.claim(BY_TASK, lambda _: [MINE.transactional_id])
    a.take([TASK], [MINE.transactional_id], lambda ids: pytest.fail(f"inited {ids}"))
    assert crashed.key not in log.read()
    assert namesake.key in log.read()


def test_an_entry_that_is_written_anew_replaces_the_one_before_in_one_write(
    log: MemoryOwnership,
) -> None:
    a = recorded(log)
    taken(a, MINE.transactional_id)
    [before] = parse(log.read(), log.topic)
    a.renew([TASK])
    [after] = parse(log.read(), log.topic)
    assert after.claim == replace(before.claim, token=after.claim.token)
    assert after.claim.token != before.claim.token
    a.release([TASK])
    assert not log.read()


def test_a_fence_is_explained_by_a_removed_entry_or_a_new_one_and_by_each_entry_once(
    log: MemoryOwnership,
) -> None:
    a = recorded(log)
    taken(a, MINE.transactional_id)
    assert not a.has_successor([TASK])
    add_entries(log, [replace(THEIRS, transactional_id=MINE.transactional_id)])
    assert not a.has_successor([TASK]), "another process under the same id is a rival"
    b = recorded(log, "b")
    b.prepare([THEIRS.transactional_id])
    b.claim(BY_TASK, lambda _: [THEIRS.transactional_id])
    assert a.has_successor([TASK])
    assert not a.has_successor([TASK])
    b.take([TASK], [THEIRS.transactional_id], len)
    assert a.has_successor([TASK])
    a.renew([TASK])
    assert not a.has_successor([TASK])


def test_a_removal_that_arrives_late_removes_no_later_entry(log: MemoryOwnership) -> None:
    a = recorded(log)
    taken(a, MINE.transactional_id)
    late = [entry.claim for entry in parse(log.read(), log.topic)]
    a.release([TASK])
    taken(a, MINE.transactional_id)
    remove_entries(log, late)
    assert listed(log) == {MINE.transactional_id}


def test_an_entry_without_an_answer_is_removed_by_the_next_takeover(log: MemoryOwnership) -> None:
    """It is there nevertheless, under a token that this process has given up."""

    class Unheard(MemoryOwnership):
        def write(self, values: Mapping[bytes, bytes | None]) -> None:
            log.write(values)
            raise ClusterUnreachable("no answer")

    deaf = recorded(Unheard(), "deaf")
    with pytest.raises(Retriable, match="no answer"):
        deaf.claim(BY_TASK, lambda _: [MINE.transactional_id])
    assert len(log.read()) == 1
    taken(recorded(log), MINE.transactional_id, lambda ids: pytest.fail(f"inited {ids}"))
    assert len(log.read()) == 1


def test_each_id_that_writes_for_a_task_has_an_entry_and_none_is_a_successor(
    log: MemoryOwnership,
) -> None:
    """A journal of effects is written under an id of its own."""
    own = [MINE.transactional_id, f"{MINE.transactional_id}:effects"]
    a, inited = recorded(log), list[list[str]]()
    a.prepare(own)
    a.claim(BY_TASK, lambda _: own)
    a.take([TASK], own, inited.append)
    assert (listed(log), inited) == (set(own), [])
    a.renew([TASK])
    assert len(log.read()) == len(own)
    assert not a.has_successor([TASK])
    taken(recorded(log, "b"), THEIRS.transactional_id, inited.append)
    assert inited == [own]
    assert listed(log) == {THEIRS.transactional_id}
    assert a.has_successor([TASK])
    a.release([TASK])
    assert listed(log) == {THEIRS.transactional_id}


def test_without_transactions_nothing_is_claimed() -> None:
    nothing = Ownership()
    taken(nothing, str(TASK), lambda ids: pytest.fail("fenced"))
    nothing.renew([TASK])
    assert not nothing.has_successor([TASK])
    nothing.release([TASK])
