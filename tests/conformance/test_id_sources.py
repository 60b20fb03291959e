"""What a task expects of the source of its id, asked of the derived ids and of those leased."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from eosframework.config import DatabaseSettings
from eosframework.postgres.database import Database
from eosframework.postgres.database.leased_ids import LeasedIds
from eosframework.txnid import DerivedIds, IdSource, TransactionalId, tasks

APPLICATIONS = ("flights", "flights.x", "other")

NewSource = Callable[[], IdSource]
"""A source as another worker would have it."""


def leased(dsn: str) -> LeasedIds:
    return LeasedIds(Database(DatabaseSettings.model_validate({"dsn": dsn})))


@pytest.fixture(params=["derived", "leased"])
def new_source(request: pytest.FixtureRequest) -> NewSource:
    if request.param == "derived":
        return DerivedIds
    dsn: Any = request.getfixturevalue("database")
    for application in APPLICATIONS:
        names = [f"{application.upper()}/TX {n}" for n in range(12)]
        assert leased(dsn).add(application, names) == names
    return lambda: leased(dsn)


def some_tasks(application: str = "flights") -> list[TransactionalId]:
    return [*tasks(application, "late", {"raw": 4}), *tasks(application, "x", {"raw": 2})]


def all_tasks() -> list[TransactionalId]:
    return [task for application in APPLICATIONS for task in some_tasks(application)]


def test_a_task_always_has_the_same_id(new_source: NewSource) -> None:
    first = new_source().ids(some_tasks())
    assert new_source().ids(some_tasks()) == first
    assert new_source().ids(list(reversed(some_tasks()))) == list(reversed(first))
    assert new_source().ids([*tasks("flights", "new", {"raw": 1}), *some_tasks()])[1:] == first


def test_the_id_goes_with_the_task_and_keeps_its_name(new_source: NewSource) -> None:
    given = new_source().ids(some_tasks())
    named = [(task.application, task.sub_topology, task.partition) for task in given]
    assert named == [(task.application, task.sub_topology, task.partition) for task in some_tasks()]


def test_a_task_that_has_its_id_keeps_it(new_source: NewSource) -> None:
    given = new_source().ids(some_tasks())
    assert new_source().ids(given) == given


def test_two_tasks_never_share_an_id(new_source: NewSource) -> None:
    given = [str(task) for name in APPLICATIONS for task in new_source().ids(some_tasks(name))]
    assert len(set(given)) == len(all_tasks())
    assert len(set(map(str, new_source().ids(all_tasks())))) == len(all_tasks())


def test_a_preview_is_what_is_given_next(new_source: NewSource) -> None:
    preview = new_source().preview(some_tasks())
    assert new_source().ids(some_tasks()) == preview
    assert new_source().preview(some_tasks()) == preview


def test_workers_that_start_at_once_get_the_same_ids(new_source: NewSource) -> None:
    orders = [some_tasks(), list(reversed(some_tasks()))] * 4
    with ThreadPoolExecutor(len(orders)) as crew:
        answers = list(crew.map(lambda wanted: new_source().ids(wanted), orders))
    assert len({frozenset(answer) for answer in answers}) == 1
    assert len(set(map(str, answers[0]))) == len(some_tasks())


def test_nothing_is_asked_for_no_task(new_source: NewSource) -> None:
    assert new_source().ids([]) == new_source().preview([]) == []
