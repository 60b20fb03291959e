"""The transfer demo as a user runs it, shorter; and with somebody who steals."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from eosframework.embedded import find_postgres
from tests.support.applications.pipeline import wait_until
from tests.support.processes.demos import Demo
from tests.support.processes.waiting import PATIENCE_SECONDS

NOTHING_WRONG = {
    "lost": 0,
    "duplicated": 0,
    "invented": 0,
    "reordered": 0,
    "misbooked": 0,
    "wrong_samples": 0,
}


def dsn_of(demo: Demo, bank: str) -> str:
    """Where a bank's database is."""
    (directory,) = demo.directory.glob(f"eos-demo-*/{bank}")
    server = find_postgres(directory)
    assert server is not None
    return server.dsn


def execute(dsn: str, statement: str) -> Any:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else cursor.rowcount


RELAYED = ["worker", "relay", "the database"]
DECIDED = ["worker", "the database"]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("options", "victims"),
    [((), RELAYED), (("--together",), DECIDED)],
    ids=["outbox", "together"],
)
def test_all_money_is_there_at_every_moment_while_everything_is_killed(
    start: Callable[..., Demo], options: tuple[str, ...], victims: list[str]
) -> None:
    arguments = ["--seconds", "10", "--rate", "100", "--kills", "4", "--seed", "7", *options]
    demo = start("demo", "transfer", *arguments)
    assert demo.process.wait(600) == 0, demo.told()
    verdict = demo.verdict()
    assert verdict | NOTHING_WRONG == verdict, demo.told()
    assert verdict["transfers"] + verdict["refused"] == 1000
    assert verdict["transfers"] > 500
    assert verdict["money_at_end"] == verdict["money_at_start"] == 2 * 20 * 100_00
    assert verdict["samples"] > 50
    assert verdict["kills"] == 4
    told = re.findall(r"SIGKILL to pid \d+, (worker|relay|the database)", demo.told())
    assert {*told} == {*victims}
    assert demo.left_running() == []
    assert list(demo.directory.iterdir()) == [demo.story]


STEAL = "UPDATE accounts SET balance = balance - 1 WHERE id = 'bank_b.07'"
CREDIT_TWICE = """
INSERT INTO credits (id, debited, credited, amount)
SELECT id, debited, credited, amount FROM credits WHERE credited <> 'bank_b.07' LIMIT 1
"""


@pytest.mark.exhaustive
def test_money_that_goes_or_comes_another_way_is_found_at_once(start: Callable[..., Demo]) -> None:
    demo = start("demo", "transfer", "--seconds", "100", "--rate", "50", "--kills", "0")
    demo.wait_until_told("transfers are asked for")
    dsn = dsn_of(demo, "bank_b")
    wait_until(lambda: execute(dsn, "SELECT count(*) FROM credits")[0][0] > 20, "credits")
    assert execute(dsn, STEAL) == 1
    demo.wait_until_told("the examiner found something")
    assert execute(dsn, CREDIT_TWICE) == 1
    assert demo.process.wait(PATIENCE_SECONDS) == 1, demo.told()
    verdict = demo.verdict()
    assert verdict["wrong_samples"] > 0
    assert verdict["transfers"] < 5000
    found = {kind: verdict[kind] for kind in ("lost", "duplicated", "invented", "misbooked")}
    assert found == {"lost": 0, "duplicated": 1, "invented": 0, "misbooked": 1}, demo.told()
    assert "1 missing: " in demo.told()
    assert "It does NOT add up" in demo.told()


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl_c", "sigkill"])
def test_stopping_the_transfers_leaves_nothing_running(
    start: Callable[..., Demo], number: signal.Signals
) -> None:
    demo = start("demo", "transfer", "--seconds", "100", "--rate", "50", "--kills", "0")
    demo.wait_until_told("transfers are asked for")
    demo.process.send_signal(number)
    assert demo.process.wait(PATIENCE_SECONDS) == (
        130 if number == signal.SIGINT else -signal.SIGKILL
    )
    assert "Traceback" not in demo.told()
    wait_until(lambda: not demo.left_running(), "the end of all its processes")
