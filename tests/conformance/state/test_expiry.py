"""What has expired is absent, removed or not, in stores of both kinds."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eosframework.config import StateBackendKind, StateSettings
from eosframework.engine.operators.entries import EntryFormat
from eosframework.engine.operators.expiry import (
    LOOKS,
    Expiring,
    Lifetime,
    StreamTime,
    open_expiring,
    unexpired,
)
from eosframework.engine.operators.folds import COUNT, folding
from eosframework.engine.operators.store_transaction import Journal, undo
from eosframework.engine.stores.state_ports import TaskStores
from eosframework.serialization.serdes import INTEGER, JSON, STRING, Serde
from eosframework.state import state_backend
from eosframework.topology.graph.graph import Store
from tests.support.applications.stores import COUNTS, SMALL_CACHE_BYTES, TASK, content

TTL_MS = 10
KEYS = st.sampled_from([b"", b"a", b"ab", b"b", b"c"])

Step = tuple[str, bytes, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "fold", "delete", "fail", "commit", "commit", "drop"]),
        KEYS,
        st.integers(-30, 15),
    ),
    max_size=60,
)


@contextmanager
def opened(kind: StateBackendKind) -> Generator[TaskStores]:
    with tempfile.TemporaryDirectory() as directory:
        chosen = StateSettings(
            backend=kind, directory=Path(directory), cache_bytes=SMALL_CACHE_BYTES
        )
        with closing(state_backend(chosen, "flights", "host.0")) as backend:
            yield backend.open(TASK, 1, [COUNTS])


class Model:
    """A dictionary for what is committed and one for what the transaction makes of it."""

    def __init__(self) -> None:
        self.time = self.committed_time = 0
        self.kept: dict[bytes, tuple[int, int]] = {}
        self.committed: dict[bytes, tuple[int, int]] = {}

    def alive(self) -> dict[bytes, tuple[int, int]]:
        return {key: e for key, e in self.kept.items() if not self.time > e[1] + TTL_MS}

    def fold(self, key: bytes, timestamp: int) -> tuple[int, int]:
        before = self.alive().get(key)
        now = (1, timestamp) if before is None else (before[0] + 1, max(before[1], timestamp))
        self.kept[key] = now
        return now


def transaction_of(kept: TaskStores, time: StreamTime, journal: Journal, serde: Serde) -> Expiring:
    form = EntryFormat("counts", serde)
    return open_expiring(form, kept.store("counts"), journal, Lifetime(TTL_MS, time))


def run(step: Step, session: Expiring, model: Model, journal: Journal, time: StreamTime) -> None:
    """Do one step of a record; times are relative to stream time, so some are long past."""
    what, key, distance = step
    timestamp = max(0, model.time + distance)
    model.time = time.now = max(model.time, timestamp)
    journal.clear()
    before = dict(model.kept)
    if what == "put":
        session.put(key, (7, timestamp))
        model.kept[key] = 7, timestamp
    elif what in ("fold", "fail"):
        given = folding(session, COUNT)(key, "value", timestamp)
        assert given == model.fold(key, timestamp)
    elif what == "delete":
        session.delete(key)
        model.kept.pop(key, None)
    if what == "fail":
        undo(journal, 0)
        model.kept = before


@pytest.mark.parametrize("serde", [INTEGER, JSON], ids=["values", "encoded"])
@pytest.mark.parametrize("kind", list(StateBackendKind))
@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_an_entry_is_there_exactly_until_stream_time_is_past_its_ttl(
    kind: StateBackendKind, serde: Serde, steps: list[Step]
) -> None:
    model, time, journal = Model(), StreamTime(), Journal()
    store = Store("counts", "counts-changelog", STRING, serde, ttl_ms=TTL_MS)
    with opened(kind) as kept:
        session = transaction_of(kept, time, journal, serde)
        for step in steps:
            if step[0] == "commit":
                commit(session, kept, model.time)
                model.committed, model.committed_time = dict(model.kept), model.time
            elif step[0] == "drop":
                session.drop()
                model.kept, model.time = dict(model.committed), model.committed_time
                time.now = model.time
            else:
                run(step, session, model, journal, time)
            alive = model.alive()
            assert dict(session.scan()) == alive
            assert all(session.get(key) == alive.get(key) for key in (b"", b"a", b"ab", b"c"))
            shown = unexpired(store, kept.store("counts"), model.committed_time)
            found = {key: session.form.decode(data) for key, data in shown.scan()}
            lasting = {k: e for k, e in model.committed.items() if e[1] + TTL_MS >= time_of(kept)}
            assert found == lasting


def time_of(kept: TaskStores) -> int:
    return kept.stream_time or 0


@pytest.mark.parametrize("serde", [INTEGER, JSON], ids=["values", "encoded"])
def test_the_last_moment_counts_for_reading_and_removing_alike(serde: Serde) -> None:
    time, journal = StreamTime(), Journal()
    with opened(StateBackendKind.MEMORY) as kept:
        session = transaction_of(kept, time, journal, serde)
        update = folding(session, COUNT)
        update(b"k", "value", 100)
        commit(session, kept, 100)
        time.now = 100 + TTL_MS
        assert session.get(b"k") == (1, 100)
        commit(transaction_of(kept, time, journal, serde), kept, time.now)
        assert b"k" in content(kept.store("counts"))
        assert update(b"k", "value", 100) == (2, 100)
        time.now += 1
        assert update(b"k", "value", 100) == (1, 100)
        assert session.get(b"k") is None
        commit(session, kept, time.now)
        assert content(kept.store("counts")) == {}


def test_what_a_lost_transaction_removed_is_removed_later() -> None:
    time, journal = StreamTime(), Journal()
    with opened(StateBackendKind.MEMORY) as kept:
        session = transaction_of(kept, time, journal, INTEGER)
        session.put(b"k", (1, 0))
        commit(session, kept, 0)
        time.now = 100
        session.remove_expired(100)
        session.drop()
        assert b"k" in content(kept.store("counts"))
        session.put(b"other", (1, 100))
        commit(session, kept, 100)
        assert list(content(kept.store("counts"))) == [b"other"]


def commit(session: Expiring, kept: TaskStores, now: int) -> None:
    session.remove_expired(now)
    kept.write({"counts": session.changes()}, {"counts": 1}, now)
    session.committed()


@pytest.mark.parametrize("kind", list(StateBackendKind))
def test_what_expires_leaves_the_store_while_others_come(kind: StateBackendKind) -> None:
    time, journal, ttl_ms = StreamTime(), Journal(), 1000
    with opened(kind) as kept:
        form = EntryFormat("counts", INTEGER)
        lifetime = Lifetime(ttl_ms, time)
        session = open_expiring(form, kept.store("counts"), journal, lifetime)
        largest = removed = 0
        for transaction in range(400):
            for number in range(10):
                time.now = transaction * 100 + number * 10
                session.put(b"%08d" % (time.now * 7919 % 10**8), (1, time.now))
            session.remove_expired(time.now)
            changes = session.changes()
            removed += sum(value is None for _, value in changes)
            kept.write({"counts": changes}, {"counts": transaction + 1})
            session.committed()
            journal.clear()
            largest = max(largest, len(content(kept.store("counts"))))
    assert removed > 3500
    assert largest < 2.5 * ttl_ms / 10


def test_a_commit_looks_at_few_entries_however_many_there_are() -> None:
    time, journal, looked = StreamTime(), Journal(), 0

    class Counting:
        def get(self, key: bytes) -> bytes | None:
            return None

        def scan(
            self, first: bytes = b"", last: bytes | None = None, *, reverse: bool = False
        ) -> Iterator[tuple[bytes, bytes]]:
            nonlocal looked
            entry = EntryFormat("counts", INTEGER).encode((1, 0))
            for number in range(int(first or b"0"), 100_000):
                looked += 1
                yield b"%d" % number, entry

    form = EntryFormat("counts", INTEGER)
    session = open_expiring(form, Counting(), journal, Lifetime(TTL_MS, time))
    session.put(b"k", (1, 100))
    time.now = 100
    session.remove_expired(100)
    assert looked <= LOOKS + 3
    assert sum(value is None for _, value in session.changes()) >= LOOKS


def test_while_nothing_can_have_expired_no_commit_looks() -> None:
    time, journal, scans = StreamTime(), Journal(), 0

    class Counting:
        def get(self, key: bytes) -> bytes | None:
            return None

        def scan(self, *args: Any, **options: Any) -> Iterator[tuple[bytes, bytes]]:
            nonlocal scans
            scans += 1
            return iter(())

    session = open_expiring(
        EntryFormat("counts", INTEGER), Counting(), journal, Lifetime(TTL_MS, time)
    )
    for now in range(100, 100 + TTL_MS):
        session.put(b"k", (1, now))
        session.remove_expired(now)
        session.committed()
    assert scans == 1
