"""The map of the tasks: states of owners alone, the worst first, and a choice of them."""

from __future__ import annotations

from typing import Any

from eosframework.application.composition.application_status import (
    ApplicationStatus,
    PartitionStatus,
    TaskFailure,
    TaskStatus,
)
from eosframework.operations.console.task_map import TaskChoice, cells_of, groups_of, worst


def task(name: str, owner: str | None, lag: int = 0, held: int = 0) -> TaskStatus:
    partition = PartitionStatus(f"in[{name[-2]}]", 5, lag, held)
    return TaskStatus(name, "transforms", owner, (partition,))


STATUS = ApplicationStatus(
    "shop",
    {"transforms": ()},
    (
        task("orders[0]", "shop.one", 1),
        task("orders[1]", None, 3),
        task("parcels[0]", "shop.two", 20_000),
        task("parcels[1]", "shop.one", held=4),
        task("parcels[2]", "shop.one"),
    ),
    failures=(TaskFailure("parcels[2]", "transforms", "in[2]@5", "failed", "shop.one", 0),),
)


def answer(instance: str, **states: str) -> dict[str, Any]:
    tasks = [
        {"task": f"{name[:-1]}[{name[-1]}]", "state": state, "waits_for": []}
        for name, state in states.items()
    ]
    return {"process": "transforms", "instance": instance, "tasks": tasks}


ANSWERS = {
    "a:1": answer("shop.one", orders0="running", orders1="running", parcels1="fenced"),
    "a:2": answer("shop.gone", parcels0="running"),
}


def test_the_word_of_a_process_counts_for_the_tasks_that_it_owns() -> None:
    states = {cell.task: cell.state for cell in cells_of(STATUS, ANSWERS)}
    assert states == {
        "orders[0]": "running",
        "orders[1]": "no owner",
        "parcels[0]": "owned",
        "parcels[1]": "fenced",
        "parcels[2]": "stopped at a record",
    }


def test_the_worst_are_those_that_do_not_run_then_those_with_lag() -> None:
    order = [cell.task for cell in worst(cells_of(STATUS, ANSWERS))]
    assert order == ["parcels[2]", "orders[1]", "parcels[1]", "parcels[0]", "orders[0]"]


def test_tasks_are_chosen_by_part_state_and_text() -> None:
    cells = cells_of(STATUS, ANSWERS)

    def chosen(**fields: str) -> list[str]:
        return [cell.task for cell in TaskChoice.parse(fields).applied(cells)]

    assert chosen(part="orders") == ["orders[0]", "orders[1]"]
    assert chosen(state="no owner") == ["orders[1]"]
    assert chosen(state="running") == ["orders[0]", "parcels[0]"]
    assert chosen(state="held") == ["parcels[1]"]
    assert chosen(text="shop.two") == ["parcels[0]"]
    assert chosen(task="parcels[1]") == ["parcels[1]"]
    assert chosen(sort="lag")[0] == "parcels[0]"
    assert chosen(sort="nonsense")[0] == "orders[0]"


def test_a_group_names_what_is_bad_in_it() -> None:
    orders, parcels = groups_of(cells_of(STATUS, ANSWERS))
    assert orders.summary == "2 tasks, 1 no owner"
    assert parcels.summary == "3 tasks, 1 stopped at a record, 1 not running"
    assert str(orders.marks) == (
        '<i class="l1" data-n="0" data-l="1"></i><i class="n" data-n="1" data-l="3"></i>'
    )
