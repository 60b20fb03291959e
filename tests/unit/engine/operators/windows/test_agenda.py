"""The agenda gives keys in the order of their times, however few of them it has in memory."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eosframework.engine.operators.store_transaction import Journal, open_transaction
from eosframework.engine.operators.windows import Agenda, SpansFormat
from eosframework.engine.stores.state_ports import StoreIdentity
from eosframework.serialization.serdes import JSON
from eosframework.state import MemoryState

notes = st.tuples(st.integers(0, 30), st.sampled_from([b"a", b"b", b"\xff"]))


@given(st.lists(notes | st.sampled_from(["take", "take", "commit", "load"]), max_size=60))
def test_notes_come_in_order_whatever_is_in_memory(steps: list[Any]) -> None:
    kept = MemoryState().open("part-0", 1, [StoreIdentity("s", "c", 1)])
    journal: Journal = []
    session = open_transaction(SpansFormat("s", JSON), kept.store("s"), journal)
    agenda = Agenda(session, in_memory=2)
    agenda.load()
    noted: set[tuple[int, bytes]] = set()
    for number, step in enumerate(steps):
        match step:
            case "take":
                assert agenda.first() == min(noted, default=None)
                if noted:
                    agenda.remove_first()
                    noted.discard(min(noted))
            case "commit":
                kept.write({"s": session.changes()}, {"s": number + 1})
                session.committed()
            case "load":
                agenda.load()
            case _:
                if step not in noted:
                    agenda.add(*step)
                    noted.add(step)
    found: list[Any] = []
    while (first := agenda.first()) is not None:
        agenda.remove_first()
        found.append(first)
    assert found == sorted(noted)
