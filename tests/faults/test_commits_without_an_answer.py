"""A commit whose answer never comes, of each user of the transaction session but the worker.

`test_unknown_outcomes.py` does the same with every call of a worker. Here relay, replay, cutover
and backfill attempt run side by side, so that one wait for the timeouts serves them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import SMALL_BROKER
from tests.support.applications.backfilled import Backfill
from tests.support.applications.handed_over import JOB, HandedOver
from tests.support.applications.outbox import OutboxWorld
from tests.support.applications.pipeline import Pipeline, wait_until
from tests.support.applications.second_chances import TOPOLOGY, Forgiving
from tests.support.faults.proxied import ProxiedCluster, proxied_kafka
from tests.support.faults.proxy import END_TXN, HeldRequest
from tests.support.processes.waiting import PATIENCE_SECONDS

SHORT = {
    "EOS_KAFKA__REQUEST_TIMEOUT_SECONDS": "5",
    "EOS_WORKER__TRANSACTION_TIMEOUT_SECONDS": "12",
}

ROWS = 100


@dataclass(frozen=True)
class User:
    """A process that is about to commit.

    Args:
        held: the request that ends its transaction.
        log: returns what the process has logged so far.
        ends_well: waits for its end, and checks what it leaves for readers.
    """

    held: HeldRequest
    log: Callable[[], str]
    ends_well: Callable[[], None]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedCluster]:
    directory = tmp_path_factory.mktemp("proxied")
    with proxied_kafka(directory, nodes=1, properties=SMALL_BROKER) as proxied:
        yield proxied


@pytest.fixture
def users(
    cluster: ProxiedCluster,
    make_outbox: Callable[..., OutboxWorld],
    unique_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Mapping[str, User]]:
    """Every user, each with the end of its next transaction held."""
    with ExitStack() as stack:
        prepared = [
            relay(cluster, make_outbox),
            replay(cluster, unique_name("replay"), tmp_path, stack),
            cutover(cluster, unique_name("handed"), tmp_path, stack),
            attempt(cluster, unique_name("attempt"), tmp_path, stack),
        ]
        for name, value in SHORT.items():
            monkeypatch.setenv(name, value)
        yield dict(start() for start in prepared)
        cluster.holds.clear()


Start = Callable[[], tuple[str, User]]


def relay(cluster: ProxiedCluster, make_outbox: Callable[..., OutboxWorld]) -> Start:
    outbox = make_outbox(bootstrap_servers=cluster.bootstrap_servers)
    outbox.finish()  # so that the transaction held is one with messages
    outbox.publish(20)

    def start() -> tuple[str, User]:
        held = cluster.hold(END_TXN, outbox.name.encode(), repeated=True)
        process = outbox.start_relay("--until-caught-up")

        def ends_well() -> None:
            assert process.wait() == 0, process.log[-4000:]
            assert (verdict := outbox.verify()).clean, verdict

        return "relay", User(held, lambda: process.log, ends_well)

    return start


def replay(cluster: ProxiedCluster, name: str, directory: Path, stack: ExitStack) -> Start:
    topology = TOPOLOGY.replace("POLICY", "replay: true")
    pipeline = Pipeline(
        cluster.bootstrap_servers, name, directory / name, topology=topology, partitions=2
    )
    stack.callback(pipeline.stop)
    app = Forgiving(pipeline, 60)
    app.catch_up()
    assert len(app.read(app.letters)) == len(app.refused)

    def start() -> tuple[str, User]:
        held = cluster.hold(END_TXN, name.encode(), repeated=True)
        process = app.start("dead-letters", "replay", "--all", "--yes")

        def ends_well() -> None:
            assert process.wait() == 0, process.log[-4000:]
            app.fix()
            app.catch_up()
            assert app.written == dict.fromkeys(app.numbers, 1)

        return "replay", User(held, lambda: process.log, ends_well)

    return start


def cutover(cluster: ProxiedCluster, name: str, directory: Path, stack: ExitStack) -> Start:
    history = HandedOver(cluster.bootstrap_servers, name, directory / name)
    stack.callback(history.stop)
    history.make_history(ROWS)

    def start() -> tuple[str, User]:
        held = cluster.hold(END_TXN, name.encode(), repeated=True)
        process = history.start_command("backfill cutover", "--job", JOB, "--json")
        errors = history.fault_directory / "err"

        def ends_well() -> None:
            done = process.finish(PATIENCE_SECONDS)
            assert done.exit_code == 0, done.err
            for position in done.json["positions"]:
                assert history.committed_at(position["topic"]) == [position["offset"]]
            [job] = history.command("backfill status", "--json").json["jobs"]
            assert job["cut_over_at"] == done.json["at"]

        return "cutover", User(held, errors.read_text, ends_well)

    return start


def attempt(cluster: ProxiedCluster, name: str, directory: Path, stack: ExitStack) -> Start:
    pipeline = Pipeline(cluster.bootstrap_servers, name, directory / name, partitions=1)
    stack.callback(pipeline.stop)
    pipeline.feed(ROWS)
    backfill = Backfill(pipeline)
    stack.callback(backfill.stop)

    def start() -> tuple[str, User]:
        held = cluster.hold(END_TXN, name.encode(), repeated=True)
        process = backfill.start("doubled", 0, 0, environment=SHORT)

        def ends_well() -> None:
            assert process.progress().records == ROWS
            assert (verdict := pipeline.verify()).clean, verdict

        return "attempt", User(held, lambda: process.said, ends_well)

    return start


@pytest.mark.exhaustive
def test_a_commit_that_took_effect_without_an_answer_is_not_repeated(
    cluster: ProxiedCluster, users: Mapping[str, User]
) -> None:
    """The request arrives, its response is lost."""
    for name, user in users.items():
        user.held.wait()
        assert user.held.deliver() == frozenset(), name
    resolved(cluster, users, "committed")


@pytest.mark.slow
def test_a_commit_that_arrives_after_its_outcome_was_read_changes_nothing(
    cluster: ProxiedCluster, users: Mapping[str, User]
) -> None:
    """The request is held until its sender has recovered, and is refused then."""
    for user in users.values():
        user.held.wait()
    resolved(cluster, users, "not_committed")
    for name, user in users.items():
        assert user.held.deliver(), f"{name}: the late commit was not refused"


def resolved(cluster: ProxiedCluster, users: Mapping[str, User], outcome: str) -> None:
    """Let every user read its outcome, and check that it is this one and that all ends well."""
    for name, user in users.items():
        wait_until(lambda log=user.log: "outcome_unknown" in log(), f"the {name}'s doubt")
    cluster.holds.clear()
    for user in users.values():
        user.ends_well()
    for name, user in users.items():
        events = [line for line in user.log().splitlines() if "outcome_resolved" in line]
        assert events, (name, user.log()[-2000:])
        assert f'"outcome": "{outcome}"' in events[0], (name, events)
