from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eosframework.txnid import PooledId, TransactionalId, allot

APPLICATIONS = st.sampled_from(["a", "b"])
TASKS = st.lists(
    st.builds(TransactionalId.make, APPLICATIONS, st.sampled_from(["x", "y"]), st.integers(0, 3)),
    unique=True,
)


@given(TASKS, TASKS, st.integers(0, 8))
def test_a_pool_gives_every_task_one_id_of_its_own(
    before: list[TransactionalId], tasks: list[TransactionalId], free: int
) -> None:
    had = [PooledId(f"OLD{n}", task.application, task) for n, task in enumerate(before)]
    pool = had + [PooledId(f"NEW{n}", "ab"[n % 2]) for n in range(free)]
    allotted = allot(tasks, pool)
    names = [(task.application, task.sub_topology, task.partition) for task in allotted.ids]
    assert len(set(names)) == len(names) == len(tasks) - len(allotted.missing)
    assert len(set(map(str, allotted.ids))) == len(allotted.ids)
    owners = {entry.id: entry.application for entry in pool}
    assert all(owners[str(task)] == task.application for task in allotted.ids)
    kept = {str(task) for task in allotted.ids} - {str(task) for task in allotted.new}
    assert kept == {entry.id for entry in had if entry.task in tasks}


@given(TASKS)
def test_who_is_missing_an_id_finds_none_free(tasks: list[TransactionalId]) -> None:
    allotted = allot(tasks, [PooledId("A", "a")])
    wanted = [task for task in tasks if task.application == "a"]
    assert list(allotted.new) == [
        TransactionalId("a", t.sub_topology, t.partition, "A") for t in wanted[:1]
    ]
    assert len(allotted.missing) == len(tasks) - len(allotted.new)
