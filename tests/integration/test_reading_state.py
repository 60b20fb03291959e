"""What stores hold can be asked for: of a running worker over HTTP, of the files, of changelogs."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from eosframework.application.composition.stored_state import ChangelogStores
from eosframework.application.composition.worker import load
from eosframework.cli import main
from eosframework.config import KafkaSettings, Settings
from eosframework.errors import ConfigurationError
from eosframework.state.query import queried_store
from tests.support.applications.pipeline import WorkerProcess, number_in, wait_until
from tests.support.applications.totals import Totals
from tests.support.processes.programs import Finished

STORE = "totals.aggregate"
HTTP = "worker.http_address=127.0.0.1:0"


@pytest.fixture
def totals(kafka: Any, unique_name: Any, tmp_path: Path) -> Iterator[Totals]:
    name = unique_name("reading")
    totals = Totals(kafka.bootstrap_servers, name, tmp_path / name, partitions=2)
    yield totals
    totals.stop()


def addresses(worker: WorkerProcess, count: int = 1) -> list[str]:
    worker.wait_for_event("http_serving", count)
    return [str(event["address"]) for event in worker.events("http_serving")]


def ask(address: str, path: str) -> tuple[int, Any]:
    connection = HTTPConnection(address, timeout=60)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def expected(totals: Totals) -> dict[str, dict[str, int]]:
    """The totals as they must be when all of the input is processed."""
    found: dict[str, dict[str, int]] = {}
    for message in totals.read(totals.source):
        number = number_in(message)
        total = found.setdefault(str(number % 10), {"count": 0, "sum": 0})
        total["count"] += 1
        total["sum"] += number
    return found


def over_http(address: str) -> dict[str, Any]:
    status, answer = ask(address, f"/state/{STORE}?limit=1000")
    return {row["key"]: row["value"] for row in answer["found"]} if status == 200 else {}


State = Callable[..., Finished]


@pytest.fixture
def state(
    totals: Totals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> State:
    """Runs `eosframework state` in this process: a new one takes longer than its answer."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    own = [f"state.directory={totals.state}", f"kafka.bootstrap_servers={totals.bootstrap_servers}"]

    def run(command: str, *arguments: str) -> Finished:
        settings = [word for setting in own for word in ("--set", setting)]
        with pytest.raises(SystemExit) as stopped:
            main(["state", command, str(totals.topology_file), *arguments, *settings])
        output = capsys.readouterr()
        return Finished(int(stopped.value.code or 0), output.out, output.err)

    return run


def scanned(done: Finished) -> dict[str, Any]:
    assert done.exit_code == 0, done.err
    return {row["key"]: row["value"] for row in done.json["found"]}


def test_the_state_of_a_running_worker_is_the_same_over_http_in_files_and_in_the_changelog(
    totals: Totals, state: State
) -> None:
    totals.feed(500)
    worker = totals.start_worker(instance="one", settings=[*totals.keeping, HTTP])
    [address] = addresses(worker)
    wait_until(lambda: ask(address, "/readyz")[0] == 200, "a worker that is ready")
    whole = expected(totals)
    wait_until(lambda: over_http(address) == whole, "all totals in the stores")

    assert ask(address, f"/state/{STORE}/3")[1]["found"][0]["value"] == whole["3"]
    assert ask(address, f"/state/{STORE}/none")[0] == 404
    assert ask(address, "/state/none")[0] == 404
    assert ask(address, "/none")[0] == 404
    listed = ask(address, "/state")[1]["stores"]
    assert [len(store["here"]) for store in listed] == [2, 2]

    assert state("get", STORE, "3", "--json").json["found"][0]["value"] == whole["3"]
    assert scanned(state("scan", STORE, "--json")) == whole
    sizes = state("stats", STORE, "--json").json["stores"]
    assert sum(size["keys"] for size in sizes) >= len(whole), "an estimate: versions count, too"
    assert all(size["held"] for size in sizes)

    totals.feed(500)
    whole = expected(totals)
    wait_until(lambda: over_http(address) == whole, "the totals of what came later")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert scanned(state("scan", STORE, "--json")) == whole
    assert scanned(state("scan", STORE, "--json", "--from-changelog")) == whole
    found = state("get", STORE, "3", "--from-changelog")
    assert json.dumps(whole["3"], separators=(",", ":")) in found.out


def test_while_stores_are_brought_up_to_date_readyz_and_state_say_so(totals: Totals) -> None:
    totals.feed(200)
    first = totals.start_worker(until_caught_up=True, instance="one", settings=totals.keeping)
    assert first.wait() == 0
    shutil.rmtree(totals.state)
    worker = totals.start_worker(
        instance="one", faults=["state.during_restore=hold@1"], settings=[*totals.keeping, HTTP]
    )
    worker.wait_for_fault("state.during_restore")
    [address] = addresses(worker)
    status, health = ask(address, "/readyz")
    assert (status, health["ok"]) == (503, False)
    # The view that is shown may be as old as the assignment.
    codes = {reason["code"] for reason in health["reasons"]}
    assert codes <= {"restoring", "starting", "unassigned"}
    status, answer = ask(address, f"/state/{STORE}/3")
    assert status == 503
    assert answer["restoring"]
    worker.release()
    wait_until(lambda: ask(address, "/readyz")[0] == 200, "a worker that is ready")
    assert over_http(address) == expected(totals)
    assert worker.events("state_restored")


def test_what_cannot_be_found_is_one_message_that_says_where_to_look(state: State) -> None:
    nowhere = state("get", STORE, "3")
    assert nowhere.exit_code == 2
    assert "this machine has no partition of store" in nowhere.error
    assert "--from-changelog" in nowhere.error
    absent = state("get", STORE, "none", "--from-changelog", "--json")
    assert absent.exit_code == 2
    assert "has no key 'none' in partitions 0, 1 of 2" in absent.json["error"]
    unknown = state("get", "totals.agregate", "3")
    assert unknown.exit_code == 2
    assert "did you mean 'totals.aggregate'?" in unknown.error


def test_a_changelog_that_is_too_large_to_be_held_is_refused_by_name(totals: Totals) -> None:
    totals.apply()
    store = queried_store(load(str(totals.topology_file)), STORE)
    producer = Producer({"bootstrap.servers": totals.bootstrap_servers})
    for key, size in ((b"a", 100), (b"a", 100), (b"b", 200)):
        producer.produce(store.store.changelog, b"x" * size, key, 0)
    assert producer.flush(60) == 0
    settings = Settings(kafka=KafkaSettings(bootstrap_servers=totals.bootstrap_servers))

    def read(most_bytes: int) -> list[int]:
        contents = ChangelogStores(settings, most_bytes).contents(store, [0])
        return [content.partition for content in contents]

    for most_bytes in (300, 301):
        assert read(most_bytes) == [0]
    with pytest.raises(ConfigurationError, match=f"eosframework state scan APP {STORE}"):
        read(299)


def test_each_process_answers_for_its_partitions_and_names_the_partition_of_other_keys(
    totals: Totals,
) -> None:
    totals.feed(200)
    worker = totals.start_worker(
        "--processes", "2", instance="one", settings=[*totals.keeping, HTTP]
    )
    whole, here = expected(totals), addresses(worker, 2)
    wait_until(
        lambda: (
            {key: value for each in here for key, value in over_http(each).items()} == whole
            and all(ask(each, f"/state/{STORE}")[1].get("partitions") != [0, 1] for each in here)
        ),
        "a partition for each process",
    )
    for key in whole:
        answers = [ask(each, f"/state/{STORE}/{key}?at=here") for each in here]
        assert sorted(status for status, _ in answers) == [200, 421]
        [(_, found), (_, absent)] = sorted(answers, key=lambda answer: answer[0])
        assert absent["partition"] == found["partition"]
        assert absent["here"] == [1 - found["partition"]]
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


def test_an_address_that_is_taken_is_refused_before_anything_is_started(totals: Totals) -> None:
    first = totals.start_worker(instance="one", settings=[*totals.keeping, HTTP])
    [address] = addresses(first)
    second = totals.start_worker(
        instance="two", settings=[*totals.keeping, f"worker.http_address={address}"]
    )
    assert second.wait() == 2
    assert f"worker.http_address='{address}' cannot be listened on" in second.log
    assert "Traceback" not in second.log
