"""What a relay reads, in histories of transactions that overlap."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eosframework.postgres.database.outbox.outbox_table import Frontier, Look
from tests.unit.postgres.outbox.model import (
    ByFrontier,
    ByNumber,
    ByTransactionId,
    ByWindows,
    Database,
    Relay,
    State,
)

History = Callable[[Database, Relay], None]


def late_commit(database: Database, relay: Relay) -> None:
    """A takes number 1, B takes number 2 and commits first."""
    database.publish("a", "x")
    database.publish("b", "y")
    database.end("b")
    settle(relay, 4)
    database.end("a")


def early_transaction_id(database: Database, relay: Relay) -> None:
    """B has its id before A, and publishes the same key after A committed."""
    database.write("b")
    publish_locked(database, "a", "x")
    database.end("a")
    publish_locked(database, "b", "x")
    database.end("b")


def bystander(database: Database, relay: Relay) -> None:
    """The same, while a third transaction, whose id lies between, stays open."""
    database.write("b")
    database.write("c")
    early_transaction_id(database, relay)
    settle(relay, 4)
    database.end("c")


def bystander_publishes(database: Database, relay: Relay) -> None:
    """The same, and the third one publishes as well, at last."""
    database.write("b")
    database.write("c")
    early_transaction_id(database, relay)
    settle(relay, 4)
    database.publish("c", "z")
    settle(relay, 4)
    database.end("c")


def prepared(database: Database, relay: Relay) -> None:
    """A publisher is prepared for a two-phase commit and committed much later."""
    database.publish("a", "x")
    settle(relay, 4)
    database.prepare("a")
    database.publish("b", "y")
    database.end("b")
    settle(relay, 8)
    database.end("a")


HISTORIES = [late_commit, early_transaction_id, bystander, bystander_publishes, prepared]


@pytest.mark.parametrize("history", HISTORIES)
def test_every_message_is_sent_once_and_in_the_order_of_its_key(history: History) -> None:
    assert faults(ByFrontier, history) == []


@pytest.mark.parametrize(
    ("way", "history", "fault"),
    [
        (ByNumber, late_commit, "lost"),
        (ByNumber, prepared, "lost"),
        (ByTransactionId, early_transaction_id, "reordered"),
        (ByTransactionId, bystander, "reordered"),
        (ByWindows, bystander, "reordered"),
        (ByWindows, bystander_publishes, "reordered"),
    ],
)
def test_simpler_positions_lose_or_reorder(way: type[Relay], history: History, fault: str) -> None:
    assert faults(way, history) == [fault]


STEP = st.sampled_from(
    ["write", "touch", "publish", "publish", "commit", "roll back", "prepare", "relay", "relay"]
)
STEPS = st.lists(st.tuples(STEP, st.sampled_from("ab"), st.just("x")), min_size=10, max_size=40)
RELAY = ("relay", "", "")
WHOLE_LOOK = [RELAY, RELAY, RELAY]


@settings(max_examples=400, deadline=None)
@given(STEPS, st.booleans())
def test_no_interleaving_loses_doubles_or_reorders(
    steps: list[tuple[str, str, str]], looks_are_whole: bool
) -> None:
    if looks_are_whole:
        steps = [each for step in steps for each in (WHOLE_LOOK if step[0] == "relay" else [step])]
    database = Database()
    relay = ByFrontier(database)
    for number, (step, name, key) in enumerate(steps):
        if step == "relay":
            relay.step()
        else:
            one_step(database, step, current(database, name, number), key)
    for transaction in list(database.transactions.values()):
        if transaction.is_running:
            database.end(transaction.name)
    settle(relay, 12)
    assert found_faults(database, relay) == []


def test_what_is_open_for_long_is_waited_for_and_no_more_than_it() -> None:
    frontier = Frontier()
    assert frontier.take(Look(5, frozenset({"long"}))) == 0
    assert frontier.waits
    assert frontier.take(Look(9, frozenset({"long", "short"}))) == 0
    assert frontier.take(Look(9, frozenset({"short"}))) == 5
    assert frontier.take(Look(9)) == 9
    assert not frontier.waits


def test_who_never_publishes_is_not_waited_for() -> None:
    database = Database()
    database.write("report")
    database.publish("a", "x")
    database.end("a")
    relay = ByFrontier(database)
    settle(relay, 4)
    assert [row.number for row in relay.sent] == [1]


def current(database: Database, name: str, number: int) -> str:
    """The running transaction of a session, or a new one."""
    running = [
        t for t in database.transactions.values() if t.name.startswith(name) and t.is_running
    ]
    return running[0].name if running else f"{name}{number}"


def one_step(database: Database, step: str, name: str, key: str) -> None:
    transaction = database.transaction(name)
    match step:
        case "commit":
            database.end(name)
        case "roll back":
            database.end(name, State.ROLLED_BACK)
        case _ if transaction.state is State.PREPARED:
            return
        case "write":
            database.write(name)
        case "touch":
            database.touch_outbox(name)
        case "publish":
            publish_locked(database, name, key)
        case _:
            database.prepare(name)


def publish_locked(database: Database, name: str, key: str) -> None:
    """Publish a key as users are told to, unless the lock would have to be waited for."""
    if database.lock(name, key):
        database.publish(name, key)


def settle(relay: Relay, steps: int) -> None:
    for _ in range(steps):
        relay.step()


def faults(way: type[Relay], history: History) -> list[str]:
    database = Database()
    relay = way(database)
    history(database, relay)
    settle(relay, 12)
    return found_faults(database, relay)


def found_faults(database: Database, relay: Relay) -> list[str]:
    found: list[str] = []
    if set(database.visible) - set(relay.sent):
        found.append("lost")
    if len(relay.sent) != len(set(relay.sent)) or set(relay.sent) - set(database.visible):
        found.append("doubled")
    for key in {row.key for row in relay.sent}:
        numbers = [row.number for row in relay.sent if row.key == key]
        if numbers != sorted(numbers):
            found.append("reordered")
    return found
