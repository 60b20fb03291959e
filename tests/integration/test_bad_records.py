"""A record that does not decode goes the way of on_error, and no other record is affected."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from eosframework.engine.failures.refused_outputs import BATCH_BYTES
from tests.support.applications.feeding import feeder
from tests.support.applications.pipeline import read_committed
from tests.support.processes.commands import Cluster, Folder
from tests.support.processes.programs import Finished
from tests.support.servers.topics import configure
from tests.support.verifiers.messages import headers_of

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, value: json}
streams:
  copied:
    from: numbers
    on_error: POLICY
    to: [{topic: NAME.out, value: json}]
"""
RECORDS = (b'{"n":1}', b'{"n":', b'{"n":3}')


class Copied:
    """One run over three records, of which the second is torn."""

    def __init__(self, folder: Folder, cluster: Cluster, name: str, policy: str) -> None:
        self.name, self.cluster = name, cluster
        cluster.create(f"{name}.in", f"{name}.out", f"{name}.dead")
        cluster.feed(f"{name}.in", *RECORDS)
        folder.write("app.yaml", TOPOLOGY.replace("POLICY", policy).replace("NAME", name))
        self.done: Finished = folder.run("run-worker", "app.yaml", "--until-caught-up")

    def values(self, topic: str) -> list[bytes | None]:
        records = read_committed(self.cluster.bootstrap_servers, f"{self.name}.{topic}")
        return [record.value() for record in records]

    @property
    def committed(self) -> int | None:
        return self.cluster.committed(self.name, f"{self.name}.in")


@pytest.fixture
def copied(
    kafka: Any, unique_name: Callable[[str], str], tmp_path: Path
) -> Callable[[str], Copied]:
    folder = Folder(tmp_path, kafka.bootstrap_servers)
    cluster = Cluster(kafka.bootstrap_servers)
    return lambda policy: Copied(folder, cluster, unique_name("torn"), policy)


def test_fail_commits_what_came_before_and_names_the_record(
    copied: Callable[[str], Copied],
) -> None:
    run = copied("fail")
    assert run.done.exit_code == 1
    assert f"{run.name}.in[0]@1" in run.done.error
    assert "decode value as json" in run.done.error
    assert "on_error" in run.done.error
    assert run.values("out") == [RECORDS[0]]
    assert run.committed == 1


def test_skip_leaves_out_the_record_and_nothing_else(copied: Callable[[str], Copied]) -> None:
    run = copied("skip")
    assert run.done.exit_code == 0, run.done.err
    assert run.values("out") == [RECORDS[0], RECORDS[2]]
    assert run.committed == 3


def test_a_dead_letter_keeps_the_bytes_that_did_not_decode(
    copied: Callable[[str], Copied],
) -> None:
    run = copied("{dead_letter: NAME.dead}")
    assert run.done.exit_code == 0, run.done.err
    assert run.values("out") == [RECORDS[0], RECORDS[2]]
    assert run.values("dead") == [RECORDS[1]]
    assert run.committed == 3


FUNCTIONS = """\
def when(value):
    return value["at"]


def is_wanted(value):
    return value["n"] != 1
"""
TIMED = """\
application: NAME
sources:
  events:
    topic: NAME.in
    key: string
    value: json
    timestamp: "times:when"
    on_error: {dead_letter: NAME.dead}
streams:
  counted:
    from: events
    steps:
      - filter: "times:is_wanted"
      - count: {window: {tumbling: 1s}}
    to: [{topic: NAME.out, value: json}]
"""


def test_one_event_time_of_a_far_future_makes_no_later_record_late(
    kafka: Any, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    """The filter would drop the record; it moved stream time all the same, for good."""
    folder, cluster = Folder(tmp_path, kafka.bootstrap_servers), Cluster(kafka.bootstrap_servers)
    name, now_ms, far_ms = unique_name("ahead"), round(time.time() * 1000), 253_402_300_799_999
    cluster.create(f"{name}.in", f"{name}.out", f"{name}.dead")
    times = [now_ms, far_ms, now_ms + 1000, now_ms + 2000]
    values = [json.dumps({"n": n, "at": at}).encode() for n, at in enumerate(times)]
    producer = feeder(kafka.bootstrap_servers)
    for value in values:
        producer.produce(f"{name}.in", value, b"key")
    assert producer.flush(60) == 0
    folder.write("times.py", FUNCTIONS)
    folder.write("app.yaml", TIMED.replace("NAME", name))
    for command in ("apply", "run-worker"):
        options = ["--until-caught-up"] if command == "run-worker" else []
        done = folder.run(command, "app.yaml", *options)
        assert done.exit_code == 0, done.err
    counted = read_committed(kafka.bootstrap_servers, f"{name}.out")
    starts = [json.loads(record.value() or b"")["start"] for record in counted]
    assert starts == [at // 1000 * 1000 for at in times if at != far_ms]
    [letter] = read_committed(kafka.bootstrap_servers, f"{name}.dead")
    assert letter.value() == values[1]
    assert b"worker.max_event_time_ahead" in (
        headers_of(letter)["__streams.errors.exception"] or b""
    )


GAUGES = """\
import pydantic


class Gauge(pydantic.BaseModel):
    n: int
    level: float


def spoil(gauge):
    return gauge.model_copy(update={"level": float("nan")}) if gauge.n == 1 else gauge


def amount(gauge):
    return 2**62 if gauge.n >= 3 else gauge.n


def latest(before, gauge):
    return gauge
"""
KEEPING = """\
application: NAME
sources:
  gauges: {topic: NAME.in, key: string, value: "gauges:Gauge", on_error: {dead_letter: NAME.dead}}
streams:
  last:
    from: gauges
    on_error: {dead_letter: NAME.dead}
    steps:
      - map_values: "gauges:spoil"
      - reduce: {add: "gauges:latest", value: "gauges:Gauge"}
    to: [{topic: NAME.last, value: "gauges:Gauge"}]
  total:
    from: gauges
    on_error: {dead_letter: NAME.dead}
    steps:
      - sum: {of: "gauges:amount", value: integer}
"""


def test_what_a_store_cannot_keep_is_a_dead_letter_and_spoils_no_key(
    kafka: Any, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    """NaN was kept as null, and every later record of its key failed; a sum of more than 64 bits
    ended the worker at the commit, at every start."""
    folder, cluster = Folder(tmp_path, kafka.bootstrap_servers), Cluster(kafka.bootstrap_servers)
    name = unique_name("kept")
    cluster.create(f"{name}.in", f"{name}.last", f"{name}.dead")
    values = [json.dumps({"n": n, "level": 0.5}).encode() for n in range(6)]
    values.append(b'{"n":6,"level":NaN}')
    producer = feeder(kafka.bootstrap_servers)
    for value in values:
        producer.produce(f"{name}.in", value, b"key")
    assert producer.flush(60) == 0
    folder.write("gauges.py", GAUGES)
    folder.write("app.yaml", KEEPING.replace("NAME", name))
    for command in (("apply", "app.yaml"), ("run-worker", "app.yaml", "--until-caught-up")):
        done = folder.run(*command)
        assert done.exit_code == 0, done.err
    letters = read_committed(kafka.bootstrap_servers, f"{name}.dead")
    errors = {
        letter.value(): headers_of(letter)["__streams.errors.exception"] or b""
        for letter in letters
    }
    assert b"member 'level' is nan" in errors.pop(values[1])
    assert b"NaN and Infinity are no JSON" in errors.pop(values[6])
    assert {value: b"does not fit the 8 bytes" in text for value, text in errors.items()} == {
        values[4]: True,
        values[5]: True,
    }
    last = read_committed(kafka.bootstrap_servers, f"{name}.last")
    assert [json.loads(record.value() or b"")["n"] for record in last] == [0, 2, 3]
    assert cluster.committed(name, f"{name}.in") == len(values)


SPOILING = """\
from typing import Annotated

from pydantic import BaseModel, Field

from eosframework import Topology, dead_letter


class Order(BaseModel):
    n: int
    cents: Annotated[int, Field(gt=0)]


class Marked(Order):
    mark: str = "m"


def spoil(order):
    if order.n == 1:
        order.cents = -5
    return Marked(n=2, cents=1) if order.n == 2 else order


def newer(_, order):
    return order


app = Topology("NAME")
orders = app.stream("NAME.in", key=str, value=Order)
spoilt = orders.map_values(spoil).on_error(dead_letter("NAME.dead"))
last = spoilt.group_by_key().reduce(newer, store="last", value=Order)
last.to("NAME.last", value=Order)
"""


def test_an_instance_that_would_not_be_read_again_is_a_dead_letter_and_spoils_no_key(
    kafka: Any, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    """It was kept, and the next record of its key ended the worker, at every start."""
    folder, cluster = Folder(tmp_path, kafka.bootstrap_servers), Cluster(kafka.bootstrap_servers)
    name = unique_name("spoilt")
    cluster.create(f"{name}.in", f"{name}.last", f"{name}.dead")
    folder.write("app.py", SPOILING.replace("NAME", name))
    producer = feeder(kafka.bootstrap_servers)
    for first in (0, 3):  # The second run reads the store that the first one left.
        for n in range(first, first + 3):
            producer.produce(f"{name}.in", b'{"n":%d,"cents":5}' % n, b"key")
        assert producer.flush(60) == 0
        for command in (("apply", "app.py"), ("run-worker", "app.py", "--until-caught-up")):
            done = folder.run(*command)
            assert done.exit_code == 0, done.err
    letters = read_committed(kafka.bootstrap_servers, f"{name}.dead")
    errors = {
        letter.value(): headers_of(letter)["__streams.errors.exception"] or b""
        for letter in letters
    }
    assert errors.keys() == {b'{"n":1,"cents":5}', b'{"n":2,"cents":5}'}
    assert b"greater than 0" in errors[b'{"n":1,"cents":5}']
    assert b"expected Order, got its subclass Marked, of which mark" in errors[b'{"n":2,"cents":5}']
    last = read_committed(kafka.bootstrap_servers, f"{name}.last")
    assert [json.loads(record.value() or b"")["n"] for record in last] == [0, 3, 4, 5]
    assert cluster.committed(name, f"{name}.in") == 6


OUTPUTS = """\
import time

NOW_MS = round(time.time() * 1000)


def when(value):
    return NOW_MS + (3 * 3_600_000 if value["n"] % 4 == 1 else 0)


def inflated(value):
    return value | {"padding": "x" * (20_000 if value["n"] % 4 == 3 else 0)}
"""
REFUSING = """\
application: NAME
sources:
  numbers:
    topic: NAME.in
    value: json
    timestamp: "outputs:when"
    on_error: {dead_letter: NAME.dead}
streams:
  inflated:
    from: numbers
    steps: [{map_values: "outputs:inflated"}]
    to: [{topic: NAME.out, value: json}]
"""
LIMIT_BYTES = 10_000
OVERHEAD_BYTES = 72
"""Of a batch with one record of 10,000 bytes, without a key."""


def refusal(producer: Producer, topic: str, value: bytes, time_ms: int) -> str | None:
    """Produce one record; return the name of the error with which the broker refuses it."""
    errors: list[str | None] = []
    producer.produce(
        topic,
        value,
        timestamp=time_ms,
        on_delivery=lambda error, _: errors.append(error.name() if error else None),
    )
    assert producer.flush(60) == 0
    return errors[0]


AGED = """\
application: NAME
sources:
  numbers:
    topic: NAME.in
    value: json
    on_error: {dead_letter: NAME.dead}
streams:
  copied:
    from: numbers
    to: [{topic: NAME.out, value: json}]
"""
OLD_MS = 240_000
SOON_SECONDS = 30.0
"""A transaction that is aborted for each of 200 records takes minutes."""


@pytest.mark.parametrize("limited", ["out", pytest.param("dead", marks=pytest.mark.exhaustive)])
def test_a_topic_that_takes_no_record_older_than_a_minute(
    kafka: Any, unique_name: Callable[[str], str], tmp_path: Path, limited: str
) -> None:
    """The limit is not shorter: brokers apply it to transaction markers, too."""
    folder, cluster = Folder(tmp_path, kafka.bootstrap_servers), Cluster(kafka.bootstrap_servers)
    name = unique_name("timed")
    cluster.create(f"{name}.in", f"{name}.out", f"{name}.dead")
    configure(cluster.admin, f"{name}.{limited}", {"message.timestamp.before.max.ms": "60000"})
    values = [json.dumps({"n": n}).encode() for n in range(200)]
    values += [b"{"] if limited == "dead" else []
    cluster.feed(f"{name}.in", *values, timestamp_ms=round(time.time() * 1000) - OLD_MS)
    folder.write("app.yaml", AGED.replace("NAME", name))
    began = time.monotonic()
    done = folder.run("run-worker", "app.yaml", "--until-caught-up")
    assert time.monotonic() - began < SOON_SECONDS, done.err[-2000:]
    letters = read_committed(kafka.bootstrap_servers, f"{name}.dead")
    written = read_committed(kafka.bootstrap_servers, f"{name}.out")
    if limited == "out":
        assert done.exit_code == 0, done.err
        assert "output_rejected" not in done.err, done.err[-3000:]
        assert (len(letters), len(written)) == (200, 0)
    else:
        assert done.exit_code == 1, done.err
        assert f"record {name}.in[0]@200: its dead letter was refused as well" in done.error
        assert "message.timestamp.before.max.ms" in done.error
        assert (len(letters), len(written)) == (0, 200)


def test_a_hundred_outputs_that_are_known_to_be_refused_abort_no_transaction(
    kafka: Any, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Each aborted its transaction, which was replayed in halves: a second for each record."""
    folder, cluster = Folder(tmp_path, kafka.bootstrap_servers), Cluster(kafka.bootstrap_servers)
    name, now_ms = unique_name("refused"), round(time.time() * 1000)
    cluster.create(f"{name}.in", f"{name}.out", f"{name}.dead")
    configure(cluster.admin, f"{name}.out", {"max.message.bytes": str(LIMIT_BYTES)})
    cluster.feed(f"{name}.in", *(json.dumps({"n": n}).encode() for n in range(200)))
    folder.write("outputs.py", OUTPUTS)
    folder.write("app.yaml", REFUSING.replace("NAME", name))
    done = folder.run("run-worker", "app.yaml", "--until-caught-up")
    assert done.exit_code == 0, done.err
    assert "output_rejected" not in done.err, done.err[-3000:]
    written = [
        json.loads(record.value() or b"")["n"]
        for record in read_committed(kafka.bootstrap_servers, f"{name}.out")
    ]
    assert written == list(range(0, 200, 2))
    letters = read_committed(kafka.bootstrap_servers, f"{name}.dead")
    errors = {json.loads(letter.value() or b"")["n"]: headers_of(letter) for letter in letters}
    assert sorted(errors) == list(range(1, 200, 2))
    for n, headers in errors.items():
        told = b"refuses the timestamp" if n % 4 == 1 else b"refuses a value of 20"
        assert told in (headers["__streams.errors.exception"] or b"")
        assert headers["__eos.errors.step"] == b"output"

    producer, taken = feeder(kafka.bootstrap_servers), LIMIT_BYTES - OVERHEAD_BYTES
    out = f"{name}.out"
    assert refusal(producer, out, b"x" * taken, now_ms) is None
    assert refusal(producer, out, b"x" * (taken + 1), now_ms) == "MSG_SIZE_TOO_LARGE"
    assert refusal(producer, out, b"x", now_ms + 3 * 3_600_000) == "INVALID_TIMESTAMP"
    assert OVERHEAD_BYTES >= BATCH_BYTES
