"""Foreign-key joins under any interleaving of tasks (FK1 to FK6), against plain dicts."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eosframework.engine.operators.entries import EntryFormat
from eosframework.engine.operators.foreign_keys import OF_KEY, OF_TASK, Answering, Subscriptions
from eosframework.engine.operators.foreign_rows import ForeignRows
from eosframework.engine.operators.store_transaction import StoreTransaction, open_transaction
from eosframework.errors import EntryDamaged
from eosframework.serialization.row_states import RowState, decode_state, encode_state
from eosframework.serialization.serdes import BYTES, JSON, STRING
from eosframework.topology.graph.graph import Function, OnError, Store, Subscribe, Table, View

Row = dict[str, Any]
LEFT_KEYS, FOREIGN_KEYS = "abc", "xyz"
TASKS = 2


class Nothing:
    """A store without committed content."""

    def get(self, key: bytes) -> bytes | None:
        return None

    def scan(
        self, first: bytes = b"", last: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        return iter(())


def store(name: str) -> StoreTransaction:
    return open_transaction(EntryFormat(name, BYTES), Nothing(), [])


def of(record: Any) -> Any:
    return record.value["of"]


def left_task(key: str) -> int:
    return ord(key) % TASKS


def joining_task(key: str) -> int:
    """Return the task of a left key in the repartition topics.

    With another partitioner than that of the left table it reads the rows of several tasks.
    """
    return ord(key) // 2 % TASKS


class Cluster:
    """All tasks of a join, with a log for each partition of its internal topics.

    Args:
        needs_right: the join is an inner one.
    """

    def __init__(self, needs_right: bool) -> None:
        table = Table("flights", "s", Store("flights", "f", STRING, JSON), JSON, None, OnError())
        node = Subscribe(
            "join", "s", View("flights", table, (), STRING), Function("m:of", of), "planes",
            Store("s", "c", BYTES, BYTES), STRING, STRING, JSON, OnError(),
        )  # fmt: skip
        tasks = range(TASKS)
        self.needs_right = needs_right
        self.asking = [Subscriptions(node, store("asking"), task) for task in tasks]
        self.subscribers = [store("subscribers") for _ in tasks]
        self.rights: dict[bytes, Row] = {}
        self.answering = [
            Answering(self.subscribers[task], self._right_row, lambda row: row, JSON)
            for task in tasks
        ]
        self.states = [store("joined") for _ in tasks]
        self.joining = [
            ForeignRows(one, lambda left, right: (left, right), needs_right, (JSON, JSON), True)
            for one in self.states
        ]
        self.logs: dict[tuple[str, int, int], list[Any]] = defaultdict(list)
        """By topic, reading task and writing task: what was not read."""
        self.results: dict[str, list[tuple[Any, Any]]] = defaultdict(list)

    def _right_row(self, key: bytes) -> Any:
        row = self.rights.get(key)
        return None if row is None else (row, 0)

    def left(self, key: str, row: Row | None) -> None:
        task = left_task(key)
        data = None if row is None else json.dumps(row).encode()
        foreign = None if row is None else row["of"]
        message, sent = self.asking[task].change(key.encode(), data, foreign, 0)
        if message is not None:
            self.logs["rows", joining_task(key), task].append((key.encode(), message))
        for to, asked in sent:
            self.logs["subscriptions", to[0] % TASKS, task].append((to, asked))

    def right(self, key: str, row: Row | None) -> None:
        task, name = ord(key) % TASKS, key.encode()
        before = self.rights.pop(name, None)
        if row is not None:
            self.rights[name] = row
        self._answer(task, self.answering[task].right(name, row, before, 0))

    def _answer(self, task: int, answers: Any) -> None:
        for key, message, _ in answers:
            self.logs["answers", joining_task(key.decode()), task].append((key, message))

    def step(self, number: int) -> bool:
        """Let one of the tasks that have something to read take it; return whether one has."""
        waiting = sorted(place for place, log in self.logs.items() if log)
        if not waiting:
            return False
        topic, task, writer = waiting[number % len(waiting)]
        key, message = self.logs[topic, task, writer].pop(0)
        if topic == "subscriptions":
            self._answer(task, self.answering[task].left(key, message, 0))
            return True
        take = self.joining[task].left if topic == "rows" else self.joining[task].right
        changed = take(key, message, 0)
        if changed is not None:
            self.results[key.decode()].append((changed[0], changed[1]))
        return True


ROWS = st.none() | st.sampled_from([None, *FOREIGN_KEYS]).map(lambda of: {"of": of})
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("left"), st.sampled_from(LEFT_KEYS), ROWS),
        st.tuples(st.just("right"), st.sampled_from(FOREIGN_KEYS), st.sampled_from([None, {}, {}])),
        st.tuples(st.just("step"), st.integers(0, 20), st.none()),
        st.tuples(st.just("step"), st.integers(0, 20), st.none()),
    ),
    max_size=60,
)


def numbered(actions: list[Any]) -> Iterator[Any]:
    """Give each row a number of its own, so that no two are equal."""
    for n, (what, which, row) in enumerate(actions):
        yield what, which, None if row is None else {**row, "n": n}


@pytest.mark.parametrize("needs_right", [True, False], ids=["inner", "left"])
@given(actions=ACTIONS, schedule=st.lists(st.integers(0, 20), min_size=1, max_size=20))
@settings(max_examples=150, deadline=None)
def test_no_interleaving_loses_a_result_or_gives_one_that_never_was_true(
    needs_right: bool, actions: list[Any], schedule: list[int]
) -> None:
    cluster = Cluster(needs_right)
    lefts: dict[str, list[Any]] = {key: [None] for key in LEFT_KEYS}
    rights: dict[str, list[Any]] = {key: [None] for key in FOREIGN_KEYS}
    for what, which, row in numbered(actions):
        if what == "left":
            cluster.left(which, row)
            lefts[which].append(row)
        elif what == "right":
            cluster.right(which, row)
            rights[which].append(row)
        else:
            cluster.step(which)
    turn = 0
    while cluster.step(schedule[turn % len(schedule)] + turn):
        turn += 1
    for key in LEFT_KEYS:
        check_results(cluster.results[key], lefts[key], rights, needs_right)
    check_state(cluster, lefts)


def check_results(
    results: list[tuple[Any, Any]],
    lefts: list[Any],
    rights: dict[str, list[Any]],
    needs_right: bool,
) -> None:
    shown, newest = None, -1
    for value, before in results:
        assert before == shown, "FK5: the previous result is the one that was sent"
        shown = value
        if value is None:
            continue
        left, right = value
        assert left in lefts
        assert left["n"] >= newest, "a result of a left row after that of a later one"
        newest = left["n"]
        if left["of"] is None:
            assert right is None
        else:
            assert right in rights[left["of"]], "FK4: a pair of rows that never met"
    last = lefts[-1]
    right = None if last is None or last["of"] is None else rights[last["of"]][-1]
    is_joined = last is not None and (right is not None or not needs_right)
    assert shown == ((last, right) if is_joined else None), "a lost result"


def check_state(cluster: Cluster, lefts: dict[str, list[Any]]) -> None:
    """Check that nothing of earlier rows is kept (FK3, FK6)."""
    asked = {
        (last["of"].encode(), key.encode())
        for key, rows in lefts.items()
        if (last := rows[-1]) is not None and last["of"] is not None
    }
    kept = [place for one in cluster.subscribers for place, _ in one.scan()]
    assert {(place[4:5], place[5:]) for place in kept} == asked
    rows = {key for one in cluster.states for key, _ in one.scan(OF_KEY)}
    assert rows == {OF_KEY + key.encode() for key, rows in lefts.items() if rows[-1] is not None}
    deletions = [key for one in cluster.states for key, _ in one.scan(OF_TASK, OF_KEY)]
    assert len(deletions) <= TASKS * TASKS


@given(
    st.builds(
        RowState,
        *(st.binary(max_size=12),) * 2,
        *(st.integers(0, 2**62),) * 2,
        st.booleans(),
        st.none() | st.binary(max_size=5),
        st.none() | st.binary(max_size=5),
        st.none()
        | st.tuples(st.binary(max_size=5), st.none() | st.binary(max_size=5), st.integers(0, 9)),
    )
)
def test_a_state_is_read_as_it_was_written(state: RowState) -> None:
    assert decode_state(encode_state(state)) == state


def test_a_cut_state_is_damaged() -> None:
    data = encode_state(RowState(left=b"row"))
    states = store("joined")
    states.put(OF_KEY + b"a", (data[:-1], 0))
    rows = ForeignRows(states, max, True, (JSON, JSON), False)
    with pytest.raises(EntryDamaged, match="store 'joined': an entry"):
        rows.row(b"a")
