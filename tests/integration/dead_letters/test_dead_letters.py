"""Dead letters by the command line, on a real broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import orjson
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.applications.functions import noise
from tests.support.applications.pipeline import Pipeline, number_in
from tests.support.applications.second_chances import TOPOLOGY, Forgiving
from tests.support.servers.topics import configure
from tests.support.verifiers.messages import headers_of

COUNT = 40


@pytest.fixture
def forgiving(make_pipeline: Callable[..., Pipeline]) -> Callable[[str], Forgiving]:
    def make(policy: str) -> Forgiving:
        topology = TOPOLOGY.replace(", POLICY", policy)
        return Forgiving(make_pipeline(topology=topology, partitions=2), COUNT)

    return make


def write_as_kafka_streams(app: Forgiving) -> None:
    """Write a dead letter with the headers of KIP-1034, as another program."""
    said = {"exception": "E: no", "message": "no", "topic": "in", "partition": "0", "offset": "0"}
    producer = Producer({"bootstrap.servers": app.pipeline.bootstrap_servers})
    headers: list[tuple[str, str | bytes | None]] = [
        (f"__streams.errors.{name}", text.encode()) for name, text in said.items()
    ]
    producer.produce(app.letters, b"theirs", b"k", headers=headers)
    assert producer.flush(60) == 0


def test_dead_letters_of_kafka_streams_are_counted_and_left_alone(
    forgiving: Callable[[str], Forgiving],
) -> None:
    app = forgiving("")
    app.catch_up()
    write_as_kafka_streams(app)
    listed = app.here("dead-letters", "list", "--json").json
    assert listed["foreign"] == {app.letters: 1}
    assert sum(group["count"] for group in listed["groups"]) == len(app.refused)
    assert f"1 in {app.letters}" in app.here("dead-letters", "list").out
    dry = app.here("dead-letters", "replay", "--all", "--into-source", "--dry-run", "--json").json
    assert dry["chosen"] == len(app.refused)


def test_dead_letters_are_listed_shown_and_replayed_into_the_source_when_that_is_asked_for(
    forgiving: Callable[[str], Forgiving],
) -> None:
    app = forgiving("")
    name = app.pipeline.name
    app.catch_up()

    groups = app.here("dead-letters", "list", "--json").json["groups"]
    assert sum(group["count"] for group in groups) == len(app.refused)
    [kind] = {(g["topic"], g["input"], g["error_type"], g["replayed"]) for g in groups}
    assert kind == (app.letters, f"{name}.in", "ValueError", 0)
    assert all(g["first_failed_at"] <= g["last_failed_at"] for g in groups)
    place = groups[0]["example"]
    shown = app.run_at("show", place, "--json").json
    assert shown["letter"] == place
    assert shown["value"]["n"] % 10 == 3
    assert shown["input"].startswith(f"{name}.in[")
    assert shown["replayed"] is False

    shared = app.here("dead-letters", "replay", "--all", "--yes")
    assert (shared.exit_code, "--into-source" in shared.error) == (2, True)
    unasked = app.here("dead-letters", "replay", "--all", "--into-source")
    assert (unasked.exit_code, "no answer on stdin" in unasked.error) == (2, True)
    assert f"{len(app.refused):,} dead letters would be replayed" in unasked.err
    dry = app.here("dead-letters", "replay", "--all", "--into-source", "--dry-run", "--json").json
    assert (dry["chosen"], dry["replayed"]) == (len(app.refused), 0)
    assert len(app.read(f"{name}.in")) == COUNT

    one = app.run(
        *("dead-letters", "replay", "--offsets", place, "--into-source", "--yes", "--json")
    ).json
    assert one["into"] == {f"{name}.in": 1}
    rest = app.run(
        *("dead-letters", "replay", "--error", "not served", "--into-source", "--yes", "--json")
    ).json
    assert (rest["replayed"], rest["replayed_before"]) == (len(app.refused) - 1, 1)
    assert app.run_at("show", place, "--json").json["replayed"] is True

    app.fix()
    app.catch_up()
    assert app.written == Counter(app.numbers)
    audit = app.run("audit", "--by", "functions")
    assert audit.exit_code == 0, audit.out


def test_the_last_attempt_makes_a_dead_letter_that_tells_of_all_of_them(
    forgiving: Callable[[str], Forgiving],
) -> None:
    app = forgiving(", retry: [200ms, 300ms]")
    app.catch_up()
    letters = app.read(app.letters)
    said = [headers_of(letter) for letter in letters]
    assert {headers["__eos.errors.attempts"] for headers in said} == {b"3"}
    assert {headers["__streams.errors.topic"] for headers in said} == {app.pipeline.source.encode()}
    assert all(
        int(h["__eos.errors.first_failed"]) + 500 <= int(h["__eos.errors.failed"]) for h in said
    )
    assert len(letters) == len(app.refused)

    done = app.run("dead-letters", "replay", "--all", "--yes", "--json").json
    assert done["into"] == {f"{app.pipeline.name}-numbers-replay": len(app.refused)}
    app.fix()
    app.catch_up()
    assert app.written == Counter(app.numbers)
    doubled = app.read(f"{app.pipeline.name}.doubled")
    names = {name for message in doubled for name, _ in message.headers() or ()}
    assert names == {"__eos.receipt"}
    audit = app.run("audit", "--by", "receipts")
    assert audit.exit_code == 0, audit.out


def feed_large(app: Forgiving, number: int, padding: str) -> None:
    """Append a record of more than a MiB to the input."""
    value = orjson.dumps({"n": number, "padding": padding})
    properties = {"bootstrap.servers": app.pipeline.bootstrap_servers}
    producer = Producer({**properties, "message.max.bytes": 5_000_000})
    producer.produce(app.pipeline.source, value, b"k", 0, headers=[("h", b"1")])
    assert producer.flush(60) == 0


@pytest.mark.exhaustive
def test_a_record_that_its_dead_letter_does_not_hold_is_replayed_from_its_source_or_refused(
    forgiving: Callable[[str], Forgiving],
) -> None:
    app = forgiving("")
    source, out = app.pipeline.source, f"{app.pipeline.name}.doubled"
    admin = AdminClient({"bootstrap.servers": app.pipeline.bootstrap_servers})
    for topic in (source, out):
        configure(admin, topic, {"max.message.bytes": "5000000"})
    feed_large(app, 103, "x" * 3_000_000)
    feed_large(app, 113, noise(1, 2_000_400))
    feed_large(app, 123, noise(2, 2_000_000))
    app.catch_up()
    audit = app.run("audit", "--by", "functions")
    assert audit.exit_code == 0, audit.out

    places = {
        int(headers_of(m)["__eos.errors.size"]): f"{m.topic()}[{m.partition()}]@{m.offset()}"
        for m in app.read(app.letters)
        if "__eos.errors.size" in headers_of(m)
    }
    packed, read, gone = (places[size] for size in sorted(places, reverse=True))
    assert app.run_at("show", packed, "--json").json["value"]["n"] == 103
    shown = app.run_at("show", read).out
    assert "value: the record was too large (2,000,4" in shown
    replay = ("dead-letters", "replay", "--into-source", "--yes", "--json")
    configure(admin, source, {"max.message.bytes": "1048576"})
    small = app.run(*replay, "--all")
    assert small.exit_code == 1, small.out
    [told] = [line for line in small.err.splitlines() if line.startswith("error: ")]
    assert "the records of 3 dead letters are refused: " in told
    assert all(place in told for place in places.values())
    assert f"{len(app.refused)} others were replayed" in told
    configure(admin, source, {"max.message.bytes": "5000000"})
    one = app.run(*replay, "--offsets", read).json
    assert one["into"] == {source: 1}

    end = next(m.offset() or 0 for m in app.read(source) if number_in(m) == 123)
    admin.delete_records([TopicPartition(source, 0, end + 1)])[
        TopicPartition(source, 0, end + 1)
    ].result(60)
    rest = app.run(*replay, "--all").json
    assert rest["into"] == {source: 1}
    [refusal] = rest["gone"]
    assert refusal.startswith(f"dead letter {gone} cannot be replayed")
    assert f"{source}[0]@{end} is no longer that record" in refusal

    app.fix()
    app.catch_up()
    assert app.written == Counter([*app.numbers, 103, 113])
    kept = {number_in(m): len(m.value() or b"") for m in app.read(out)}
    assert (kept[103] > 3_000_000, kept[113] > 2_000_000) == (True, True)


COUNTED = TOPOLOGY.replace(
    'steps: [{map_values: "tests.support.applications.functions:refuse_threes"}]',
    'steps: [{group_by: {by: "tests.support.applications.functions:tens", key: string}}, '
    '{map_values: "tests.support.applications.functions:refuse_threes"}, {count: {}}]',
).replace(", POLICY}\n    to: [{topic: NAME.doubled, value: json}]", "}\n    to: [NAME.doubled]")


def test_what_failed_behind_a_group_by_is_replayed_into_the_topic_that_its_task_reads(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    app = Forgiving(make_pipeline(topology=COUNTED, partitions=2), COUNT)
    app.catch_up()
    done = app.run("dead-letters", "replay", "--all", "--yes", "--json").json
    assert "into" in done, done
    [into] = done["into"].items()
    assert into == (f"{app.pipeline.name}-doubled-repartition", len(app.refused))
    app.fix()
    app.catch_up()
    found = Counter(
        (message.key(), int.from_bytes(message.value() or b"", "big"))
        for message in app.read(f"{app.pipeline.name}.doubled")
    )
    counts = range(1, COUNT // 10 + 1)
    assert found == Counter((str(key).encode(), n) for key in range(10) for n in counts)
    audit = app.run("audit")
    assert audit.exit_code == 0, audit.out
