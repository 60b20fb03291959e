"""A record that cannot be processed or written goes the way of on_error; no other suffers."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.support.applications.functions import noise
from tests.support.applications.pipeline import COMPRESSED, Pipeline, number_in
from tests.support.faults.raising import RAISED
from tests.support.servers.topics import configure
from tests.support.verifiers.messages import headers_of

ONE_STREAM = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  doubled:
    from: numbers
    steps: [{map_values: "tests.support.applications.functions:FUNCTION"}]
    on_error: ON_ERROR
    to: [{topic: NAME.doubled, value: json}]
"""


def numbers(pipeline: Pipeline) -> list[int]:
    return sorted(number_in(message) for message in pipeline.read(f"{pipeline.name}.doubled"))


@pytest.fixture
def one_stream(make_pipeline: Callable[..., Pipeline]) -> Callable[..., Pipeline]:
    def make(function: str, on_error: str, records: int = 100, **options: object) -> Pipeline:
        topology = ONE_STREAM.replace("FUNCTION", function).replace("ON_ERROR", on_error)
        pipeline = make_pipeline(topology=topology, **options)
        pipeline.feed(records)
        return pipeline

    return make


@pytest.mark.exhaustive
def test_fail_stops_before_the_record_and_names_it(one_stream: Callable[..., Pipeline]) -> None:
    pipeline = one_stream("refuse_thirteen", "fail", partitions=1)
    worker = pipeline.start_worker(until_caught_up=True)
    assert worker.wait() == 1, worker.log[-3000:]
    assert "@13 failed in step" in worker.log
    assert "Traceback" not in worker.log
    assert numbers(pipeline) == list(range(13))
    assert pipeline.committed() == 13


def test_skip_goes_on_without_the_record(one_stream: Callable[..., Pipeline]) -> None:
    pipeline = one_stream("refuse_thirteen", "skip")
    pipeline.finish()
    expected = [n for n in range(100) if n != 13]
    assert numbers(pipeline) == expected


@pytest.mark.parametrize(
    "function", ["refuse_thirteen", pytest.param("inflate", marks=pytest.mark.exhaustive)]
)
def test_a_dead_letter_tells_where_the_record_came_from(
    one_stream: Callable[..., Pipeline], function: str
) -> None:
    pipeline = one_stream(function, "{dead_letter: NAME.dead}", small_outputs=True)
    pipeline.finish()
    expected = [n for n in range(100) if n != 13]
    assert numbers(pipeline) == expected
    [letter] = pipeline.read(f"{pipeline.name}.dead")
    headers = headers_of(letter)
    assert json.loads(letter.value() or b"") == {"n": 13}
    assert headers["__streams.errors.topic"] == pipeline.source.encode()
    assert headers["__streams.errors.partition"] == b"1"
    assert headers["__streams.errors.offset"] == b"3"
    assert headers["__streams.errors.exception"]
    assert headers["__eos.errors.step"]


def test_a_refused_record_is_found_among_those_of_partitions_that_share_a_producer(
    one_stream: Callable[..., Pipeline],
) -> None:
    pipeline = one_stream("inflate", "{dead_letter: NAME.dead}", small_outputs=True)
    worker = pipeline.start_worker(settings=["worker.ids=worker"], until_caught_up=True)
    assert worker.wait() == 0, worker.log[-3000:]
    assert worker.events("output_rejected")
    assert numbers(pipeline) == [n for n in range(100) if n != 13]
    [letter] = pipeline.read(f"{pipeline.name}.dead")
    assert json.loads(letter.value() or b"") == {"n": 13}


def test_a_batch_that_is_too_large_is_split_where_no_record_is(
    one_stream: Callable[..., Pipeline],
) -> None:
    pipeline = one_stream("pad", "fail", small_outputs=True)
    pipeline.finish()
    assert numbers(pipeline) == list(range(100))


def test_a_function_that_never_returns_ends_the_worker_and_its_record_is_named(
    one_stream: Callable[..., Pipeline],
) -> None:
    pipeline = one_stream("never_return_at_thirteen", "fail", partitions=1)
    settings = ["worker.transaction_timeout_seconds=5"]
    worker = pipeline.start_worker(
        settings=settings, environment={"EOS_TEST_TURN_SECONDS": "8", "EOS_TEST_HANGS": "yes"}
    )
    assert worker.wait() == 1, worker.log[-3000:]
    [message] = [line for line in worker.log.splitlines() if line.startswith("error: ")]
    assert "has been stuck for 8 s" in message
    assert f"record {pipeline.source}[0]@13 in step" in message
    assert "in never_return_at_thirteen\n" in worker.log, "the stack"
    assert "Traceback" not in worker.log
    assert numbers(pipeline) == list(range(pipeline.committed()))
    worker = pipeline.start_worker(settings=settings, until_caught_up=True)
    assert worker.wait() == 0, worker.log[-3000:]
    assert numbers(pipeline) == list(range(pipeline.fed))


RAISING = """\
application: NAME
sources:
  numbers:
    topic: NAME.in
    key: bytes
    value: json
    timestamp: "tests.support.faults.raising:time_of"
    on_error: {dead_letter: NAME.dead}
streams:
  doubled:
    from: numbers
    steps:
      - map_batch: {call: "tests.support.faults.raising:stop_batch", schema: {n: int64}}
      - map_values: "tests.support.faults.raising:stop"
    on_error: {dead_letter: NAME.dead}
    to: [{topic: NAME.doubled, value: json}]
"""


def test_what_is_no_exception_fails_its_record_and_ends_no_worker(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    """A KeyboardInterrupt ended the worker with 0, as if it had been asked to stop."""
    pipeline = make_pipeline(topology=RAISING)
    pipeline.feed(30)
    pipeline.finish()
    refused = {*RAISED, 11, 13, 17}
    assert numbers(pipeline) == [n for n in range(30) if n not in refused]
    letters = pipeline.read(f"{pipeline.name}.dead")
    kinds = {
        number_in(m): headers_of(m)["__streams.errors.exception"].split(b":")[0].decode()
        for m in letters
    }
    expected = {n: kind.__name__ for n, kind in RAISED.items()}
    assert kinds == expected | {11: "KeyboardInterrupt", 13: "SystemExit", 17: "KeyboardInterrupt"}


LARGE_BYTES = 3_000_000


def feed_large(pipeline: Pipeline, number: int, padding: str = "x" * LARGE_BYTES) -> bytes:
    """Append a record to the input, which takes it; return its value."""
    producer = Producer(
        {"bootstrap.servers": pipeline.bootstrap_servers, "message.max.bytes": 5_000_000}
    )
    value = json.dumps({"n": number, "padding": padding}).encode()
    producer.produce(pipeline.source, value, str(number).encode(), 0)
    assert producer.flush(60) == 0
    return value


def let_through(pipeline: Pipeline, *topics: str) -> None:
    """Let topics take records of up to 5 MB."""
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap_servers})
    for topic in topics:
        configure(admin, topic, {"max.message.bytes": "5000000"})


def test_a_record_of_three_megabytes_goes_where_topics_take_it(
    one_stream: Callable[..., Pipeline],
) -> None:
    pipeline = one_stream("refuse_thirteen", "{dead_letter: NAME.dead}", records=3, partitions=1)
    dead, out = f"{pipeline.name}.dead", f"{pipeline.name}.doubled"
    let_through(pipeline, pipeline.source, dead, out)
    feed_large(pipeline, 3)
    feed_large(pipeline, 13)
    pipeline.finish()
    written = pipeline.read(out)
    assert list(map(number_in, written)) == [0, 1, 2, 3]
    assert len(written[3].value() or b"") > LARGE_BYTES
    [letter] = pipeline.read(dead)
    assert number_in(letter) == 13
    assert len(letter.value() or b"") > LARGE_BYTES


def digest_by_hand(key: bytes, value: bytes) -> bytes:
    """Return the SHA-256 of a record without headers: length, colon and content of each part."""
    content = b"%d:%b%d:%b" % (len(key), key, len(value), value)
    return hashlib.sha256(content).hexdigest().encode()


def test_a_dead_letter_that_is_too_large_goes_in_less_space(
    one_stream: Callable[..., Pipeline],
) -> None:
    """It ended the worker at each start."""
    pipeline = one_stream("refuse_thirteen", "{dead_letter: NAME.dead}", records=3, partitions=1)
    dead, out = f"{pipeline.name}.dead", f"{pipeline.name}.doubled"
    let_through(pipeline, pipeline.source, out)
    packed, plain = feed_large(pipeline, 13), feed_large(pipeline, 13, noise(1, LARGE_BYTES))
    worker = pipeline.start_worker(until_caught_up=True)
    assert worker.wait() == 0, worker.log[-3000:]
    assert not worker.events("output_rejected"), "the limit is known"
    # Of batches that are compressed, only the broker knows whether they fit.
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap_servers})
    configure(admin, dead, {"max.message.bytes": "10000"})
    bare = feed_large(pipeline, 13, noise(2, 100_000))
    worker = pipeline.start_worker(settings=[COMPRESSED], until_caught_up=True)
    assert worker.wait() == 0, worker.log[-3000:]
    assert worker.events("output_rejected")

    assert numbers(pipeline) == [0, 1, 2]
    letters = pipeline.read(dead)
    said = [headers_of(letter) for letter in letters]
    assert [h["__eos.errors.form"] for h in said] == [b"gzip", b"place", b"bare"]
    assert [h["__streams.errors.offset"] for h in said] == [b"3", b"4", b"5"]
    for headers, fed in zip(said, (packed, plain, bare), strict=True):
        assert headers["__eos.errors.size"] == b"%d" % len(fed)
        assert headers["__eos.errors.sha256"] == digest_by_hand(b"13", fed)
    assert gzip.decompress(letters[0].value() or b"") == packed
    assert [letter.value() for letter in letters[1:]] == [None, None]
    assert [letter.key() for letter in letters] == [b"13", b"13", None]
