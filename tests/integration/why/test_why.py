"""`eosframework why` on real topics: what it prints, what it lacks, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

import eosframework
from eosframework.kafka.inspect.written_record import RecordPlace
from tests.conftest import KafkaService
from tests.support.applications.receipted import Receipted
from tests.support.processes.programs import REPOSITORY, framework_command
from tests.support.processes.waiting import wait_until
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import configure, create_topics

MODULE = '''\
"""An application with a sum of each key, and a count in windows."""

from eosframework import Topology, dead_letter, sliding, tumbling


def amount_of(value: dict) -> int:
    return value["amount"]


def shown(total: int) -> dict:
    return {"total": total}


def city_of(record) -> str:
    return record.value["city"]


app = Topology("NAME")
orders = app.stream("NAME.in", key=str, value="json", on_error=dead_letter("NAME.dead"))
totals = orders.group_by_key().sum(amount_of, store="totals").map_values(shown)
totals.to("NAME.totals", value="json")
windows = orders.group_by(city_of, key=str).window(tumbling("100ms"))
windows.count(store="visits", emit="close").to("NAME.visits")
lasts = orders.group_by(city_of, key=str, name="lasts").window(sliding(records=5, step=2))
lasts.sum(amount_of, store="lasts").to("NAME.lasts")
orders.map_values(amount_of).to("NAME.amounts", value="json")
'''

BEGIN = 1_767_225_600_000

Make = Callable[..., Receipted]


def made(servers: str, name: str, directory: Path, *, receipts: bool = True) -> Receipted:
    """Return the application after a run over thirty records."""
    text = MODULE.replace("NAME", name)
    application = Receipted(servers, directory / name, text, [f"{name}.in"], receipts=receipts)
    application.feed(orders(name, 0, 30))
    application.run()
    return application


@pytest.fixture
def make(kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path) -> Make:
    """Return what makes the application."""

    def of(**options: bool) -> Receipted:
        return made(kafka.bootstrap_servers, unique_name("why"), tmp_path, **options)

    return of


def orders(name: str, first: int, end: int) -> list[tuple[str, bytes, bytes, int]]:
    """Return records, one for each 10 ms."""
    return [
        (
            f"{name}.in",
            b"ab"[n % 2 : n % 2 + 1],
            json.dumps({"amount": n, "city": "xyz"[n % 3]}).encode(),
            BEGIN + 10 * n,
        )
        for n in range(first, end)
    ]


def topic(application: Receipted, name: str) -> str:
    return f"{application.graph.application}.{name}"


def data(application: Receipted, place: object, *options: str) -> Any:
    done = application.why(place, "--json", *options)
    assert done.exit_code == 0, done.err + done.out
    return done.json


def test_an_output_names_input_transaction_steps_state_and_inputs(make: Make) -> None:
    application = make()
    place = application.places(topic(application, "totals"))[20]
    found = data(application, place)
    assert found["value"] == {"total": sum(range(0, 21, 2))}
    assert found["input"] == f"{topic(application, 'in')}[0]@20"
    assert found["transaction"]["marker_offset"] > place.offset
    assert found["transaction"]["number"] >= 1
    assert application.graph.application in found["transaction"]["transactional_id"]
    functions = [name for step in found["steps"] for name in step["functions"]]
    names = [name.partition(" (")[0].rpartition(":")[2] for name in functions]
    assert names == ["amount_of", "shown"]
    assert all("app.py:" in name for name in functions)
    assert found["rerun"]["is_same"]
    assert [(e["store"], e["key"], e["value"]) for e in found["rerun"]["state"]] == [
        ("totals", "a", sum(range(0, 20, 2)))
    ]
    text = application.why(place)
    assert text.exit_code == 0
    assert "gives this record, byte for byte" in text.out
    require_inputs_of_window(application)
    require_inputs_of_records(application)


def require_inputs_of_window(application: Receipted) -> None:
    """The input of a window's result is the watermark that closed it; its inputs are records."""
    found = data(application, application.places(topic(application, "visits"))[1])
    assert found["rerun"]["is_same"], found
    assert found["is_watermark"]
    value, city = found["value"], found["key"]
    numbers = [n for n in range(30) if "xyz"[n % 3] == city]
    inside = [n for n in numbers if value["start"] <= BEGIN + 10 * n < value["end"]]
    assert value["value"] == len(inside) == found["rerun"]["input_count"]
    source = topic(application, "in")
    assert found["rerun"]["inputs"] == [f"{source}[0]@{n}" for n in inside]


def require_inputs_of_records(application: Receipted) -> None:
    """The inputs of a window of records are the last five of its city, or at first fewer."""
    for place in application.places(topic(application, "lasts"))[4:12:3]:
        found = data(application, place)
        assert found["rerun"]["is_same"], found
        value, city = found["value"], found["key"]
        inside = [n for n in range(30) if "xyz"[n % 3] == city][value["start"] : value["end"]]
        source = topic(application, "in")
        assert sorted(found["rerun"]["inputs"]) == sorted(f"{source}[0]@{n}" for n in inside)
        met = [entry["window"] for entry in found["rerun"]["state"] if not entry["is_timed"]]
        assert [value["start"], value["end"] - 1] in met
        text = application.why(place)
        assert f"records {value['start']} to {value['end'] - 2}" in text.out, text.out


@pytest.mark.exhaustive
def test_without_receipts_the_answer_says_what_records_them(make: Make) -> None:
    application = make(receipts=False)
    found = data(application, application.places(topic(application, "totals"))[3])
    assert found["input"] is None
    assert "worker.receipts=true" in found["missing"][0]
    assert found["transaction"]["marker_offset"] > 3


@pytest.mark.exhaustive
def test_history_that_begins_later_is_not_guessed(make: Make) -> None:
    application = make(receipts=False)
    application.feed(orders(application.graph.application, 30, 60))
    application.run(**{"worker.receipts": True})
    places = application.places(topic(application, "totals"))
    assert not data(application, places[29])["rerun"]
    assert data(application, places[-1])["rerun"]["is_same"]


@pytest.mark.exhaustive
def test_a_printed_test_passes_and_fails_with_another_output(make: Make, tmp_path: Path) -> None:
    application = make()
    name = application.graph.application
    directory = application.file.parent
    for kind in ("totals", "visits", "amounts"):
        place = application.places(f"{name}.{kind}")[-1]
        done = application.why(place, "--as-test")
        assert done.exit_code == 0, done.err
        path = directory / f"test_{kind}.py"
        path.write_text(done.out)
        assert ran(path) == 0, done.out
        changed = done.out.replace("EXPECTED = (", "EXPECTED = (1, ")
        path.write_text(changed)
        assert ran(path) == 1, changed


def ran(path: Path) -> int:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", path.name]
    return subprocess.run(
        command, cwd=path.parent, capture_output=True, check=False, timeout=120
    ).returncode


@pytest.mark.exhaustive
def test_the_debugger_stops_at_each_function(make: Make) -> None:
    application = make()
    place = application.places(topic(application, "totals"))[4]
    command = framework_command(
        "why", str(place), str(application.file), "--debug", "--bootstrap-server",
        application.bootstrap_servers,
    )  # fmt: skip
    done = subprocess.run(
        command, input="p value\nc\np total\nc\n", text=True, capture_output=True, check=False,
        timeout=120, cwd=REPOSITORY,
    )  # fmt: skip
    assert "{'amount': 4, 'city': 'y'}" in done.stdout, done.stderr
    assert "(Pdb) 6" in done.stdout


@pytest.mark.exhaustive
def test_a_function_that_gives_something_else_now_is_reported(make: Make) -> None:
    application = make()
    place = application.places(topic(application, "totals"))[4]
    text = application.file.read_text()
    application.file.write_text(text.replace('{"total": total}', '{"sum": total}'))
    command = framework_command(
        "why", str(place), str(application.file), "--bootstrap-server",
        application.bootstrap_servers,
    )  # fmt: skip
    done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "does NOT give this record" in done.stdout
    assert '{"sum":6}' in done.stdout


@pytest.mark.exhaustive
def test_each_wrong_place_has_a_message_of_its_own(make: Make, unique_name: Any) -> None:
    application = make()
    totals = topic(application, "totals")
    places = application.places(totals)
    other = unique_name("other")
    admin = AdminClient({"bootstrap.servers": application.bootstrap_servers})
    create_topics(admin, [NewTopic(other, 1, 1)])
    producer = Producer(
        {"bootstrap.servers": application.bootstrap_servers, "transactional.id": other}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(totals, b"1", partition=0)
    producer.flush(60)
    end = places[-1].offset + 2
    aborted = RecordPlace(places[0].partition, end)
    assert "is still open" in application.why(aborted).err
    producer.abort_transaction(60)
    plain = Producer({"bootstrap.servers": application.bootstrap_servers})
    plain.produce(totals, b"1", partition=0)
    plain.flush(60)
    marker = next(
        places[0].offset + n
        for n in range(end)
        if RecordPlace(places[0].partition, places[0].offset + n) not in places
    )
    changelog = f"{application.graph.application}-totals-changelog"
    expected = {
        f"{totals}[0]": "is not the place of a record",
        f"{totals}[0]@{10**9}": "ends before offset",
        f"{totals}[7]@0": "has no partition 7",
        f"{totals}[0]@{marker}": "is the marker of a transaction",
        str(aborted): "was aborted",
        f"{totals}[0]@{end + 2}": "outside of any transaction",
        f"{other}[0]@0": "no step of",
        f"{changelog}[0]@0": "changelog of store 'totals'",
    }
    for place, message in expected.items():
        done = application.why(place)
        assert (done.exit_code, message in done.err) == (2, True), (place, done.err)
        assert "Traceback" not in done.err
    missing = application.why(f"{other}.none[0]@0", app=False)
    assert (missing.exit_code, "does not exist" in missing.err) == (2, True), missing.err


@pytest.mark.exhaustive
def test_an_output_of_another_topology_is_older_than_the_present_one(make: Make) -> None:
    application = make()
    place = application.places(topic(application, "totals"))[4]
    text = application.file.read_text()
    name = application.graph.application
    application.file.write_text(text.replace(f'app.stream("{name}.in"', f'app.stream("{name}.new"'))
    command = framework_command(
        "why", str(place), str(application.file), "--bootstrap-server",
        application.bootstrap_servers,
    )  # fmt: skip
    done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=120)
    assert done.returncode == 2
    assert "older than the present topology" in done.stderr


CLOCK = """\
from eosframework import Topology, tumbling

app = Topology("NAME")
windows = app.stream("NAME.in", key=str, value="json").group_by_key().window(
    tumbling("100ms"), close_when_idle="1s"
)
windows.count(store="visits", emit="close").to("NAME.visits")
"""


@pytest.mark.exhaustive
def test_a_window_that_the_clock_closed_lists_its_inputs(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    name = unique_name("why")
    text = CLOCK.replace("NAME", name)
    application = Receipted(kafka.bootstrap_servers, tmp_path, text, [f"{name}.in"])
    application.feed(orders(name, 0, 15))
    with eosframework.start(str(application.file), overrides=application.assignments) as worker:
        wait_until(lambda: len(application.places(f"{name}.visits")) == 4, "all windows closed")
        worker.stop()
    found = data(application, application.places(f"{name}.visits")[-1])
    assert found["input"] is None
    assert found["transaction"]["number"]
    assert found["rerun"]["is_same"] is None
    [entry] = [e for e in found["rerun"]["state"] if e["window"]]
    value = found["value"]
    assert (entry["value"], entry["window"]) == (value["value"], [value["start"], value["end"]])
    assert found["rerun"]["input_count"] == value["value"]


@pytest.mark.exhaustive
def test_a_dead_letter_names_the_step_that_failed(make: Make) -> None:
    application = make()
    name = application.graph.application
    application.feed([(f"{name}.in", b"a", b"no JSON", BEGIN + 1000)])
    application.run()
    found = data(application, application.places(f"{name}.dead")[0])
    assert found["input"] == f"{name}.in[0]@30"
    assert [step["name"] for step in found["steps"]] == [f"{name}.in"]


@pytest.mark.exhaustive
def test_a_compacted_changelog_is_used_where_it_is_exact(make: Make) -> None:
    application = make()
    name = application.graph.application
    admin = AdminClient({"bootstrap.servers": application.bootstrap_servers})
    changelog = f"{name}-totals-changelog"
    first_place = application.places(changelog)[0]
    quick = {"segment.ms": "100", "max.compaction.lag.ms": "1", "min.cleanable.dirty.ratio": "0.01"}
    configure(admin, changelog, quick)
    for first in (30, 40):
        application.feed(orders(name, first, first + 10))
        application.run()
    wait_until(lambda: application.places(changelog)[0] > first_place, "the changelog is compacted")
    configure(admin, changelog, {"segment.ms": "3600000", "max.compaction.lag.ms": "3600000"})
    application.feed(orders(name, 50, 60))
    application.run()
    places = application.places(f"{name}.totals")
    early, late = data(application, places[5]), data(application, places[-1])
    assert early["rerun"] is None
    assert "compaction" in early["missing"][0]
    assert late["rerun"]["is_same"]
    assert late["missing"] == []
