"""A reset leaves an application as if it had never run, whatever interrupts it."""

from __future__ import annotations

import json
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING

from eosframework.transactions import failpoints
from tests.conftest import KafkaService
from tests.support.applications.pipeline import number_in, read_committed, wait_until
from tests.support.applications.tables import BOTH_KINDS, TablesWorld
from tests.support.applications.totals import Totals
from tests.support.processes.commands import Cluster, here
from tests.support.processes.programs import FAULTY, Finished, fork_program
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics

FED = 200


@pytest.fixture
def totals(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[Totals]:
    name = unique_name("totals")
    made = Totals(kafka.bootstrap_servers, name, tmp_path / name)
    yield made
    made.stop()


def settings_of(totals: Totals) -> list[str]:
    chosen = [f"kafka.bootstrap_servers={totals.bootstrap_servers}", *totals.keeping]
    return [word for setting in chosen for word in ("--set", setting)]


def run(totals: Totals, command: str, *arguments: str, fault: str = "") -> Finished:
    """Run a command on the application, with a fault."""
    words = (command, str(totals.topology_file), *settings_of(totals), *arguments)
    if not fault and command != "run-worker":
        return here(*words)
    directory = totals.directory / f"faults-{command}-{fault.partition('=')[0]}"
    directory.mkdir(exist_ok=True)
    program = fork_program(
        FAULTY,
        words,
        environment={"EOS_TEST_FAULTS": fault, "EOS_TEST_FAULT_DIRECTORY": str(directory)},
        out=directory / "out",
        err=directory / "err",
    )
    done = program.finish()
    if fault:
        assert (directory / f"{fault.partition('=')[0]}.fired").exists(), done.err
    return done


def counts(totals: Totals) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    topic = f"{totals.name}.totals"
    for message in read_committed(totals.bootstrap_servers, topic, OFFSET_BEGINNING):
        value = json.loads(message.value() or b"")
        found[(message.key() or b"").decode()].append(value["count"])
    return found


def expected(totals: Totals, times: int) -> dict[str, list[int]]:
    """Each key counted from 1 to its end, several times over."""
    numbers: dict[str, int] = defaultdict(int)
    for message in totals.read(totals.source):
        numbers[str(number_in(message) % 10)] += 1
    return {key: [*range(1, number + 1)] * times for key, number in numbers.items()}


def caught_up(totals: Totals) -> None:
    done = run(totals, "run-worker", "--until-caught-up")
    assert done.exit_code == 0, done.err


def interrupted(totals: Totals, point: str) -> None:
    """Press Ctrl-C at a step of a reset."""
    reached: list[str] = []

    def press(name: str) -> None:
        reached.append(name)
        raise KeyboardInterrupt

    failpoints.arm(point, press)
    try:
        done = run(totals, "reset", "--to", "beginning", "--yes")
    finally:
        failpoints.disarm(point)
    assert reached == [point]
    assert done.exit_code == 130, done.err
    assert "then no worker starts; run the same command again" in done.error


@pytest.mark.slow
def test_a_reset_killed_at_any_step_is_finished_by_the_same_command_before_anything_starts(
    totals: Totals,
) -> None:
    totals.feed(FED)
    caught_up(totals)
    assert counts(totals) == expected(totals, 1)
    for point in ("reset.after_mark", "reset.after_groups", "reset.after_positions"):
        interrupted(totals, point)
    for point in ("reset.after_fence", "reset.after_topics"):
        killed = run(totals, "reset", "--to", "beginning", "--yes", fault=f"{point}=kill@1")
        assert killed.exit_code == -signal.SIGKILL, killed.err
    refused = run(totals, "run-worker", "--until-caught-up")
    assert refused.exit_code == 2
    assert "is not through" in refused.error
    done = run(totals, "reset", "--to", "beginning", "--yes", "--json")
    assert done.exit_code == 0, done.err
    assert done.json["done"] is True
    assert run(totals, "apply").exit_code == 0
    caught_up(totals)
    assert counts(totals) == expected(totals, 2)


@pytest.mark.slow
def test_a_reset_fences_who_sleeps_in_a_transaction_and_refuses_while_anybody_is_there(
    totals: Totals,
) -> None:
    totals.feed(FED)
    zombie = totals.start_worker(
        instance="zombie",
        settings=totals.keeping,
        faults=["transaction.before_commit=hold@2"],
    )
    zombie.wait_for_fault("transaction.before_commit")
    refused = run(totals, "reset", "--yes")
    assert refused.exit_code == 2
    assert f"group '{totals.name}' has 1 members" in refused.error

    zombie.signal(signal.SIGSTOP)

    def expired() -> bool:
        asked = run(totals, "reset", "--dry-run")
        return "has 1 members" not in asked.err

    wait_until(expired, "the end of the session")
    held = run(totals, "reset", "--yes")
    assert held.exit_code == 2
    assert "holds the stores" in held.error

    elsewhere = ("--set", f"state.directory={totals.directory / 'elsewhere'}")
    planned = run(totals, "reset", "--dry-run", "--json", *elsewhere)
    assert planned.json["done"] is False
    assert f"{totals.name}-totals.aggregate-changelog" in planned.json["topics"]
    assert f"{totals.name}-totals-repartition" in planned.json["topics"]
    assert totals.source not in planned.json["topics"]
    assert f"{totals.name}.totals" not in planned.json["topics"]
    before = counts(totals)
    assert run(totals, "reset", *elsewhere).exit_code == 2
    done = run(totals, "reset", "--yes", *elsewhere)
    assert done.exit_code == 0, done.err
    assert run(totals, "apply").exit_code == 0
    zombie.release()
    zombie.signal(signal.SIGCONT)
    assert zombie.wait() == 1, zombie.log[-4000:]
    # It finds the mark of the reset, or first that its entry's topic is another one (K6).
    told = ("was reset after this worker had started", "start this worker again")
    assert any(text in zombie.log for text in told), zombie.log[-4000:]
    assert counts(totals) == before
    caught_up(totals)
    again = expected(totals, 1)
    assert {
        key: found[len(before.get(key, [])) :] for key, found in counts(totals).items()
    } == again


@pytest.mark.exhaustive
def test_where_sources_go_on_is_chosen_as_the_beginning_the_end_or_a_time(totals: Totals) -> None:
    totals.feed(FED)
    caught_up(totals)
    at = {"end": [50] * 4, "2023-11-14T22:13:20.100Z": [25] * 4, "beginning": [0] * 4}
    for where, offsets in at.items():
        planned = run(totals, "reset", "--to", where, "--dry-run", "--json")
        assert [p["offset"] for p in planned.json["positions"]] == offsets, where
    wrong = run(totals, "reset", "--to", "yesterday", "--yes")
    assert wrong.exit_code == 2
    assert "2026-01-31T06:00:00Z" in wrong.error
    assert run(totals, "reset", "--to", "end", "--yes").exit_code == 0
    assert run(totals, "apply").exit_code == 0
    totals.feed(10)
    caught_up(totals)
    assert all(found[-1] == 1 for found in counts(totals).values())


@pytest.mark.exhaustive
def test_rows_on_their_way_to_a_table_are_made_again_and_written_again(
    make_tables: Callable[..., TablesWorld], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_tables(topology=BOTH_KINDS, partitions=1)
    monkeypatch.setenv("EOS_KAFKA__BOOTSTRAP_SERVERS", world.bootstrap_servers)
    monkeypatch.setenv("EOS_DATABASE__DSN", world.dsn)
    file = str(world.topology_file)
    assert here("apply", file).exit_code == 0
    world.feed(20)
    world.finish()
    done = here("reset", file, "--to", "beginning", "--yes", "--json")
    assert done.exit_code == 0, done.err
    assert f"{world.name}-doubled-rows" in done.json["topics"]
    assert done.json["table_positions"] == [f"{world.name}-doubled-rows"]
    assert here("apply", file).exit_code == 0
    world.finish()
    rows = [n for (n,) in world.see("SELECT n FROM doubled ORDER BY n")]
    assert rows == sorted([n * 2 for n in range(20)] * 2)


@pytest.mark.exhaustive
def test_outputs_are_emptied_on_request_and_have_each_result_once_afterwards(
    totals: Totals,
) -> None:
    totals.feed(FED)
    caught_up(totals)
    output = f"{totals.name}.totals"
    kept = run(totals, "reset", "--to", "beginning", "--dry-run", "--json")
    assert (kept.json["emptied_topics"], kept.json["emptied_tables"]) == ([], [])
    planned = run(totals, "reset", "--outputs", "--dry-run")
    assert f"delete all records of topic {output}" in planned.out
    assert totals.source not in planned.out
    assert counts(totals) == expected(totals, 1), "a dry run deletes nothing"
    killed = run(
        totals,
        "reset",
        "--outputs",
        "--yes",
        "--to",
        "beginning",
        fault="reset.after_topics=kill@1",
    )
    assert killed.exit_code == -signal.SIGKILL, killed.err
    assert counts(totals) == {}
    done = run(totals, "reset", "--outputs", "--yes", "--to", "beginning")
    assert done.exit_code == 0, done.err
    assert run(totals, "apply").exit_code == 0
    caught_up(totals)
    assert counts(totals) == expected(totals, 1)
    again = read_committed(totals.bootstrap_servers, output, OFFSET_BEGINNING)
    first = min(message.offset() or 0 for message in again)
    assert first > 0, "the topic is the same one, so its readers resume at their offsets"


def test_a_compacted_output_is_deleted_and_an_output_that_is_also_read_stays(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    name = unique_name("loop")
    cluster = Cluster(kafka.bootstrap_servers)
    for topic in (f"{name}.in", f"{name}.again"):
        cluster.create(topic)
    compacted = NewTopic(f"{name}.rows", 1, 1, config={"cleanup.policy": "compact"})
    create_topics(cluster.admin, [compacted])
    file = tmp_path / "topology.yaml"
    file.write_text(
        f"application: {name}\n"
        f"sources:\n"
        f"  numbers: {{topic: {name}.in, key: bytes, value: json}}\n"
        f"  again: {{topic: {name}.again, key: bytes, value: json}}\n"
        f"streams:\n"
        f"  first: {{from: numbers, to: [{{topic: {name}.again, value: json}}]}}\n"
        f"  second: {{from: again, to: [{{topic: {name}.rows, value: json}}]}}\n"
    )
    servers = ("--bootstrap-server", kafka.bootstrap_servers)
    planned = here("reset", str(file), "--outputs", "--dry-run", "--json", *servers)
    assert planned.exit_code == 0, planned.err
    assert f"{name}.rows" in planned.json["topics"]
    assert f"{name}.again" not in planned.json["topics"]
    assert planned.json["emptied_topics"] == []


def test_rows_of_tables_are_deleted_on_request_and_written_once(
    make_tables: Callable[..., TablesWorld], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_tables(topology=BOTH_KINDS, partitions=1)
    monkeypatch.setenv("EOS_KAFKA__BOOTSTRAP_SERVERS", world.bootstrap_servers)
    monkeypatch.setenv("EOS_DATABASE__DSN", world.dsn)
    file = str(world.topology_file)
    assert here("apply", file).exit_code == 0
    world.feed(20)
    world.finish()
    done = here("reset", file, "--to", "beginning", "--outputs", "--yes", "--json")
    assert done.exit_code == 0, done.err
    assert done.json["emptied_tables"] == ["doubled"]
    assert world.see("SELECT count(*) FROM doubled") == [(0,)]
    assert here("apply", file).exit_code == 0
    world.finish()
    rows = [n for (n,) in world.see("SELECT n FROM doubled ORDER BY n")]
    assert rows == sorted(n * 2 for n in range(20))
