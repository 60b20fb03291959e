"""A store transaction shows its changes over the committed content, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from eosframework.engine.operators.entries import EntryFormat
from eosframework.engine.operators.store_transaction import (
    Journal,
    StoreTransaction,
    open_transaction,
    undo,
)
from eosframework.engine.stores.state_ports import StoreIdentity, TaskStores
from eosframework.errors import RunError
from eosframework.serialization.serdes import INTEGER, JSON, STRING, Serde
from eosframework.state import MemoryState

KEYS = st.sampled_from([b"", b"a", b"ab", b"b", b"\xff"])


def stores() -> TaskStores:
    return MemoryState().open("part-0", 1, [StoreIdentity("s", "s", 1)])


def commit(store: StoreTransaction, kept: TaskStores, position: int = 1) -> None:
    kept.write({"s": store.changes()}, {"s": position})
    store.committed()


class TransactionAgainstADictionary(RuleBasedStateMachine):
    """Two dictionaries are the model: what is committed, and what the transaction makes of it."""

    serde = INTEGER

    def __init__(self) -> None:
        super().__init__()
        self.journal: Journal = []
        self.kept = stores()
        form = EntryFormat("s", self.serde)
        self.store = open_transaction(form, self.kept.store("s"), self.journal)
        self.committed: dict[bytes, Any] = {}
        self.now: dict[bytes, Any] = {}
        self.before_record: dict[bytes, Any] = {}

    def value(self, number: int) -> Any:
        return number

    @rule()
    def begin_a_record(self) -> None:
        self.journal.clear()
        self.before_record = dict(self.now)

    @rule(key=KEYS, number=st.integers(0, 99))
    def put(self, key: bytes, number: int) -> None:
        self.store.put(key, (self.value(number), number))
        self.now[key] = (self.value(number), number)

    @rule(key=KEYS)
    def delete(self, key: bytes) -> None:
        self.store.delete(key)
        self.now.pop(key, None)

    @rule()
    def fail_the_record(self) -> None:
        undo(self.journal, 0)
        self.now = dict(self.before_record)

    @rule()
    def commit(self) -> None:
        commit(self.store, self.kept)
        self.journal.clear()
        self.committed = dict(self.now)
        self.before_record = dict(self.now)

    @rule()
    def drop(self) -> None:
        self.store.drop()
        self.journal.clear()
        self.now = dict(self.committed)
        self.before_record = dict(self.now)

    @rule(key=KEYS)
    def get(self, key: bytes) -> None:
        assert self.store.get(key) == self.now.get(key)

    @rule(first=KEYS, last=KEYS | st.none(), reverse=st.booleans())
    def scan(self, first: bytes, last: bytes | None, reverse: bool) -> None:
        inside = {k: v for k, v in self.now.items() if k >= first and (last is None or k < last)}
        expected = sorted(inside.items(), reverse=reverse)
        assert list(self.store.scan(first, last, reverse=reverse)) == expected

    @invariant()
    def the_store_has_what_is_committed_and_no_more(self) -> None:
        form = self.store.form
        held = {key: form.decode(data) for key, data in self.kept.store("s").scan()}
        assert held == self.committed


class TransactionOfMaps(TransactionAgainstADictionary):
    """Maps are handed out as copies."""

    serde = JSON

    def value(self, number: int) -> Any:
        return {"n": number}

    @rule(key=KEYS)
    def change_what_was_handed_out(self, key: bytes) -> None:
        if (entry := self.store.get(key)) is not None:
            entry[0]["n"] = "changed by somebody"


TestValues = TransactionAgainstADictionary.TestCase
TestMaps = TransactionOfMaps.TestCase


def old(data: bytes, version: int) -> Any:
    assert version == 1
    return {"count": INTEGER.decode and INTEGER.decode(data)}


def test_an_older_value_is_read_as_declared_and_written_as_the_current_one() -> None:
    kept = stores()
    first = open_transaction(EntryFormat("s", INTEGER), kept.store("s"), [])
    first.put(b"k", (7, 1))
    commit(first, kept)
    second = open_transaction(EntryFormat("s", JSON, 2, old), kept.store("s"), [])
    assert second.get(b"k") == ({"count": 7}, 1)
    second.put(b"k", ({"count": 8}, 2))
    commit(second, kept, 2)
    assert (kept.store("s").get(b"k") or b"")[0] == 2


def test_a_version_without_a_way_to_read_it_is_named() -> None:
    newer = EntryFormat("s", JSON, 2).encode(({}, 1))
    with pytest.raises(RunError, match=r"'s' holds a value of version 2.*declares version 1"):
        EntryFormat("s", JSON).decode(newer)
    older = EntryFormat("s", INTEGER).encode((1, 1))
    with pytest.raises(RunError, match=r"version 1.*without a way to read.*upgrade"):
        EntryFormat("s", JSON, 2).decode(older)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**62))
def test_an_entry_round_trips(value: int, timestamp: int) -> None:
    form = EntryFormat("s", INTEGER)
    assert form.decode(form.encode((value, timestamp))) == (value, timestamp)


@pytest.mark.parametrize("serde", [JSON, STRING])
def test_what_is_kept_at_hand_is_bounded_in_bytes(
    monkeypatch: pytest.MonkeyPatch, serde: Serde
) -> None:
    monkeypatch.setattr("eosframework.engine.operators.store_transaction.RECENT_BYTES", 10_000)
    kept = stores()
    store = open_transaction(EntryFormat("s", serde), kept.store("s"), [])
    for number in range(100):
        store.put(b"%d" % number, ("x" * 1000, number))
        commit(store, kept, number)
        assert at_hand(store) <= 12_000
    for number in range(100):
        assert store.get(b"%d" % number) == ("x" * 1000, number)
        assert at_hand(store) <= 12_000


def test_an_entry_that_changes_often_stays_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eosframework.engine.operators.store_transaction.RECENT_BYTES", 10_000)
    kept = stores()
    store = open_transaction(EntryFormat("s", JSON), kept.store("s"), [])
    for number in range(100):
        store.put(b"k", ("x" * 1000, number))
        commit(store, kept, number)
        assert at_hand(store) > 1000


def at_hand(store: StoreTransaction) -> int:
    """Return the encoded bytes that a store transaction caches."""
    recent: dict[bytes, Any] = vars(store)["_recent"]
    kept = [entry if isinstance(entry, bytes) else entry[0].encode() for entry in recent.values()]
    return sum(map(len, kept))
