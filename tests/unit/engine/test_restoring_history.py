"""A store that is no prefix of what is committed of its task is read from its changelog again."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from eosframework.engine.restoration.restoration import Restoration, start_of
from eosframework.engine.stores.state_ports import Reached, StoreIdentity
from eosframework.engine.task.task_states import TaskState
from eosframework.records import TopicPartition
from eosframework.state import MemoryState
from eosframework.txnid import TransactionalId

POSITION, END = 80, 90
HAS = Reached(7, {"in[0]": 100, "more[0]": 5})


@pytest.mark.parametrize(
    ("transaction", "positions", "reason"),
    [
        (7, {"in[0]": 100, "more[0]": 5}, None),
        (9, {"in[0]": 130, "more[0]": 5}, None),
        (7, {"in[0]": 100, "added[0]": 1}, None),
        (6, {"in[0]": 90, "more[0]": 5}, "has transaction 7 of its task, and only 6 is committed"),
        (0, {"in[0]": 0, "more[0]": 0}, "only 0 is committed"),
        (7, {"in[0]": 95, "more[0]": 5}, "another transaction 7 of its task: in[0] at 100 instead"),
    ],
    ids=["the same", "behind", "another set of sources", "ahead", "reset", "another history"],
)
def test_a_store_is_used_only_if_its_transaction_is_a_committed_one(
    transaction: int, positions: Mapping[str, int], reason: str | None
) -> None:
    stores = MemoryState().open("counts-0", 1, [StoreIdentity("counts", "id", 1)])
    stores.write({"counts": [(b"k", b"v")]}, {"counts": POSITION}, reached=HAS)
    committed = Reached(transaction, positions)
    with capture_logs() as logs:
        start = start_of(stores, "counts", (3, END), 1000.0, 0.0, committed)
    if reason is None:
        assert (start, stores.store("counts").get(b"k"), logs) == (POSITION, b"v", [])
        return
    assert (start, stores.store("counts").get(b"k")) == (3, None)
    [event] = logs
    assert event["event"] == "state_rebuilt"
    assert reason in event["reason"]


CHANGELOG = TopicPartition("counts.changelog", 0)


class Committed:
    """The committed records of a changelog by offset; what was taken back is not there."""

    def __init__(self, records: Mapping[int, tuple[bytes, bytes | None]]) -> None:
        self._records = records

    def bounds(self, partitions: object) -> Any:
        return {CHANGELOG: (0, END)}

    def written_ends(self, partitions: object) -> Any:
        return {CHANGELOG: END}

    def open(self, ranges: Any) -> Any:
        first, end = ranges[CHANGELOG]
        found = [
            SimpleNamespace(
                key=lambda key=key: key,
                value=lambda value=value: value,
                offset=lambda offset=offset: offset,
                timestamp=lambda: (1, 0),
            )
            for offset, (key, value) in sorted(self._records.items())
            if first <= offset < end
        ]
        return SimpleNamespace(
            read=lambda _: {CHANGELOG: found} if found else {},
            read_to=lambda _: end,
            close=lambda: None,
        )


@pytest.mark.parametrize(
    ("transaction", "last", "is_kept"),
    [
        (6, {POSITION - 1: (b"k", b"v")}, True),
        (6, {POSITION - 1: (b"expired", b"v")}, True),
        (6, {}, False),
        (6, {POSITION: (b"more", b"x")}, False),
        (6, {POSITION - 1: (b"k", b"of another history")}, False),
        (6, {POSITION - 1: (b"k", None)}, False),
        # The last transaction, with its positions, is the committed one: nothing is to be shown.
        (9, {}, True),
    ],
)
def test_a_store_that_is_behind_is_read_on_only_if_its_last_record_is_committed(
    transaction: int, last: Mapping[int, tuple[bytes, bytes | None]], is_kept: bool
) -> None:
    committed = Reached(9, {"in[0]": 100})
    stores = MemoryState().open("counts-0", 1, [StoreIdentity("counts", "id", 1)])
    mine = [(b"k", b"v"), (b"taken back", b"y")]
    has = Reached(transaction, {"in[0]": 100 if transaction == 9 else 70})
    stores.write({"counts": mine}, {"counts": POSITION}, reached=has)
    task: Any = SimpleNamespace(
        state=TaskState.ASSIGNED,
        reached=committed,
        identity=TransactionalId("shop", "counts", 0),
        stores=SimpleNamespace(changelogs={"counts": CHANGELOG}, stores=stores),
    )
    records = {3: (b"first", b"1"), **last, END - 2: (b"new", b"2")}
    restoring = Restoration(Committed(records), 1e9)
    with capture_logs() as logs:
        for _ in range(3):
            restoring.turn([task])
    assert restoring.is_done(task)
    assert stores.store("counts").get(b"new") == b"2"
    assert (stores.store("counts").get(b"taken back") is not None) is is_kept
    assert (stores.store("counts").get(b"first") is not None) is not is_kept
    rebuilt = [log["reason"] for log in logs if log["event"] == "state_rebuilt"]
    assert len(rebuilt) == (not is_kept)
    assert all("offset 79 of counts.changelog[0], is not a committed" in each for each in rebuilt)
    assert (stores.position("counts"), stores.reached) == (END - 1, committed)
