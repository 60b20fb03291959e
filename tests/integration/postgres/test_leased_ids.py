"""What the table of ids promises beyond what every source of ids does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import psycopg
import pytest

from eosframework.config import DatabaseSettings
from eosframework.errors import ConfigurationError, DatabaseUnusable, StartRefused
from eosframework.postgres.database import Database
from eosframework.postgres.database.leased_ids import LeasedIds
from eosframework.txnid import tasks

TASKS = tasks("flights", "late", {"raw": 2})


@pytest.fixture
def ids(database: str) -> LeasedIds:
    return LeasedIds(Database(DatabaseSettings.model_validate({"dsn": database})))


def test_a_pool_that_is_too_small_is_refused_and_nothing_of_it_taken(ids: LeasedIds) -> None:
    with pytest.raises(StartRefused, match="no id left for 2 of 2 tasks"):
        ids.ids(TASKS)
    ids.add("flights", ["A"])
    ids.add("other", ["B"])
    for ask in (ids.ids, ids.preview):
        with pytest.raises(StartRefused, match=r"1 of 2 tasks .*late\[1\].*ids add APP ID"):
            ask(TASKS)
    assert ids.leases() == {}
    ids.add("flights", ["C"])
    assert list(map(str, ids.ids(TASKS))) == ["A", "C"]


def test_a_pool_may_be_filled_by_sql(ids: LeasedIds, database: str) -> None:
    ids.add("flights", ["B"])
    with psycopg.connect(database) as connection:
        connection.execute(
            "INSERT INTO eosframework.transactional_ids (id, application) VALUES ('A', 'flights')"
        )
    assert list(map(str, ids.ids(TASKS))) == ["A", "B"]


def test_a_preview_takes_nothing(ids: LeasedIds) -> None:
    ids.add("flights", ["A", "B"])
    assert list(map(str, ids.preview(TASKS))) == ["A", "B"]
    assert ids.leases() == {}


def test_an_id_is_for_one_application_only(ids: LeasedIds) -> None:
    assert ids.add("flights", ["A", "A", "B"]) == ["A", "B"]
    assert ids.add("flights", ["B", "C"]) == ["C"]
    with pytest.raises(ConfigurationError, match="'C' is in the pool of application 'flights'"):
        ids.add("other", ["D", "C"])
    assert ids.pool("other") == []


@pytest.mark.parametrize("bad", ["", " A", "A\n", "\0", "x" * 250, "flights:late:7"])
def test_what_cannot_be_an_id_of_its_own_is_not_added(ids: LeasedIds, bad: str) -> None:
    with pytest.raises(ConfigurationError, match="transactional id"):
        ids.add("flights", ["A", bad])
    assert ids.pool("flights") == []


def test_what_is_released_is_free_again(ids: LeasedIds) -> None:
    ids.add("flights", ["A", "B", "C"])
    given = ids.ids(TASKS)
    with ids.releasing("flights", ["A"]) as released:
        assert released == given[:1]
    assert set(ids.leases()) == {"B"}
    assert list(map(str, ids.ids([TASKS[1], *tasks("flights", "new", {"raw": 1})]))) == ["B", "A"]


@pytest.mark.parametrize(("id_", "state"), [("B", "is free already"), ("Z", "is not in it")])
def test_only_what_is_leased_can_be_released(ids: LeasedIds, id_: str, state: str) -> None:
    ids.add("flights", ["A", "B"])
    ids.ids(TASKS[:1])
    with (
        pytest.raises(ConfigurationError, match=f"{id_!r} cannot be released.*{state}"),
        ids.releasing("flights", ["A", id_]),
    ):
        pass
    assert set(ids.leases()) == {"A"}


def test_a_release_that_fails_releases_nothing(ids: LeasedIds) -> None:
    ids.add("flights", ["A", "B"])
    given = ids.ids(TASKS)
    with pytest.raises(StartRefused), ids.releasing("flights", ["A", "B"]):
        raise StartRefused("a worker runs")
    assert ids.ids(TASKS) == given


def test_a_worker_that_starts_during_a_release_waits_for_its_end(ids: LeasedIds) -> None:
    ids.add("flights", ["A", "B"])
    ids.ids(TASKS)
    asked = Event()

    def start() -> list[str]:
        asked.set()
        return list(map(str, ids.ids([*tasks("flights", "early", {"raw": 1}), TASKS[1]])))

    with ThreadPoolExecutor(1) as crew:
        with ids.releasing("flights", ["A"]):
            starting = crew.submit(start)
            assert asked.wait(60)
        assert starting.result(60) == ["A", "B"]


def test_a_database_that_cannot_be_asked_is_named(database: str) -> None:
    gone = database.replace(database.rpartition("/")[2], "gone")
    ids = LeasedIds(Database(DatabaseSettings.model_validate({"dsn": gone})))
    with pytest.raises(DatabaseUnusable, match="gone"):
        ids.ids(TASKS)
