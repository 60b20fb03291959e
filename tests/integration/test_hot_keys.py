"""One hot key on a real broker: what is linear is done, and what is not is bounded by record."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.applications.feeding import feeder
from tests.support.applications.pipeline import KEEP, Pipeline
from tests.support.processes.programs import megabytes
from tests.support.processes.waiting import wait_until
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics

FUNCTIONS = "tests.unit.engine.operators.hot_keys"
AT = 1_700_000_000_000
FAR = AT + 10**9

Row = tuple[str, str, int, int]
"""Topic, key, number and time of a record."""


class HotKeys(Pipeline):
    """An application over one partition of one or two topics."""

    def __init__(self, servers: str, name: str, directory: Path, topology: str) -> None:
        super().__init__(
            servers, name, directory, topology=topology, partitions=1, outputs={"out": 1}
        )
        admin = AdminClient({"bootstrap.servers": servers})
        create_topics(admin, [NewTopic(f"{name}.other", 1, 1, config=KEEP)])

    def write(self, rows: Iterator[Row]) -> None:
        """Write records to their topics, in their order."""
        producer = feeder(self.bootstrap_servers, partitioner="murmur2_random")
        for number, (topic, key, value, at) in enumerate(rows):
            producer.produce(f"{self.name}.{topic}", json.dumps(value), key, timestamp=at)
            if number % 1000 == 0:
                producer.poll(0)
        assert producer.flush(60) == 0

    def run_all(self, seconds: float, *settings: str) -> int:
        """Run a worker over all that there is; return the most memory it had, in megabytes."""
        self.apply()
        state = f"state.directory={self.directory / 'state'}"
        worker = self.start_worker(settings=[state, *settings], until_caught_up=True)
        most = 0

        def ended() -> bool:
            nonlocal most
            with suppress(OSError, ValueError):
                most = max(most, megabytes(worker.process.pid, "VmHWM"))
            return worker.process.poll() is not None

        wait_until(ended, "the end of the input", seconds)
        code = worker.wait(seconds)
        assert code == 0, f"exit code {code}:\n{worker.log[-4000:]}"
        return most

    def given(self) -> list[Any]:
        """The values of the output."""
        return [json.loads(m.value() or b"null") for m in self.read(f"{self.name}.out")]


@pytest.fixture
def make_hot_keys(
    kafka: Any, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[Callable[[str], HotKeys]]:
    made: list[HotKeys] = []

    def make(topology: str) -> HotKeys:
        name = unique_name("hot")
        made.append(HotKeys(kafka.bootstrap_servers, name, tmp_path / name, topology))
        return made[-1]

    yield make
    for one in made:
        one.stop()


OUTER = f"""\
application: NAME
sources:
  in: {{topic: NAME.in, key: string, value: json}}
  other: {{topic: NAME.other, key: string, value: json}}
streams:
  both:
    from: in
    on_error: {{dead_letter: NAME.dead}}
    steps:
      - join: {{with: other, by: "{FUNCTIONS}:either", kind: outer, within: 1s}}
    to: {{topic: NAME.out, value: json}}
"""


def test_records_that_would_meet_too_many_are_dead_letters_and_the_others_meet(
    make_hot_keys: Callable[[str], HotKeys],
) -> None:
    """An outer join of one millisecond: n records of a key meet m others, up to the limit."""
    pipeline = make_hot_keys(OUTER)
    limit, right = 100, 40

    def rows() -> Iterator[Row]:
        for number in range(limit):
            yield "in", "warm", number, AT
        for number in range(limit + 1):
            yield "in", "hot", number, AT
        for number in range(right):
            yield "other", "warm", 1000 + number, AT + 1
            yield "other", "hot", 1000 + number, AT + 1
        for topic in ("in", "other"):
            yield topic, "end", 0, FAR

    pipeline.write(rows())
    pipeline.run_all(60, f"worker.hot_key_limit={limit}")
    given = Counter(tuple(value) for value in pipeline.given())
    pairs = Counter((n, 1000 + m) for n in range(limit) for m in range(right))
    alone = Counter((n, None) for n in range(limit + 1))
    assert given - Counter({(0, 0): 1}) == pairs + alone
    dead = pipeline.read(f"{pipeline.name}.dead")
    assert [m.key() for m in dead] == [b"hot"] * right
    errors = [str(dict(m.headers() or [])["__streams.errors.exception"]) for m in dead]
    assert all("KeyTooHot" in error for error in errors)
    assert pipeline.nothing_is_open()


@dataclass(frozen=True)
class Work:
    """A keyed step, and the records of one key that it is given.

    Args:
        steps: YAML of the stream's steps.
        rows: gives the records, without those that close what is open.
        results: how many outputs there are; None: it is not said.
        other: what is said of the other source.
    """

    steps: str
    rows: Callable[[int], Iterator[Row]]
    results: int | None
    other: str = ""


RECORDS = 50_000

ALLOWED_MEGABYTES = 500
"""Of a worker; one that does nothing has about 90. All results of 50,000 windows that one record
closes are in its transaction: about 5 kB for each, with changelogs and producer."""


def one_time(count: int) -> Iterator[Row]:
    for number in range(count):
        yield "in", "hot", number, AT


def apart(step_ms: int, *topics: str) -> Callable[[int], Iterator[Row]]:
    def rows(count: int) -> Iterator[Row]:
        for number in range(count):
            yield (
                (topics or ("in",))[number % max(1, len(topics))],
                "hot",
                number,
                AT + (number * step_ms),
            )

    return rows


def two_times(count: int) -> Iterator[Row]:
    for number in range(count // 2):
        yield "in", "hot", number, AT
    for number in range(count // 2):
        yield "other", "hot", number, AT + 60_001


def join(kind: str, before: str, after: str) -> str:
    return (
        f'- join: {{with: other, by: "{FUNCTIONS}:either", kind: {kind}, before: {before}, '
        f"after: {after}, grace: 1m}}"
    )


WORKS = {
    "count": Work("- count: {}", one_time, RECORDS + 1),
    "aggregate": Work(
        f'- aggregate: {{initial: "{FUNCTIONS}:nothing", add: "{FUNCTIONS}:with_one"}}',
        one_time,
        RECORDS + 1,
    ),
    "tumbling": Work("- count: {window: {tumbling: 1s, grace: 1h}}", one_time, RECORDS + 1),
    "tumbling, close": Work(
        "- count: {window: {tumbling: 10ms, grace: 1h}, emit: close}", apart(10), RECORDS
    ),
    "hopping, commit": Work(
        "- count: {window: {hopping: 10ms, every: 5ms, grace: 1h}, emit: commit}", apart(10), None
    ),
    "session": Work("- count: {window: {session: 1s}}", one_time, RECORDS + 1),
    "session, close": Work(
        "- count: {window: {session: 5ms, grace: 10s}, emit: close}", apart(10), RECORDS
    ),
    "sliding, close": Work(
        "- count: {window: {sliding: 5ms, grace: 1s}, emit: close}", apart(20), RECORDS
    ),
    "deduplicate": Work("- deduplicate: 1s", one_time, 2),
    "inner join, none meets": Work(join("inner", "0s", "1m"), two_times, 0),
    "outer join, one side": Work(join("outer", "1s", "1s"), one_time, RECORDS),
    "outer join, none meets": Work(join("outer", "0s", "1m"), two_times, RECORDS),
    "outer join, pairs": Work(join("outer", "1ms", "1ms"), apart(1, "in", "other"), RECORDS - 1),
    "lookup": Work(
        f'- join: {{with: other, by: "{FUNCTIONS}:either"}}',
        apart(1, "other", "in"),
        RECORDS // 2,
        other=", table: true",
    ),
    "lookup as of a time": Work(
        f'- join: {{with: other, by: "{FUNCTIONS}:either"}}',
        apart(1, "other", "in"),
        RECORDS // 2,
        other=", history: 1h",
    ),
    "process with timers": Work(
        f'- process: {{call: "{FUNCTIONS}:remember", on_timer: "{FUNCTIONS}:remind", '
        "stores: {seen: {key: integer, value: json}}}",
        apart(10),
        2 * RECORDS + 1,
    ),
}

TOPOLOGY = """\
application: NAME
sources:
  in: {topic: NAME.in, key: string, value: json}
  other: {topic: NAME.other, key: string, value: json OTHER}
streams:
  worked:
    from: in
    steps:
      STEPS
    to: {topic: NAME.out, value: json}
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", WORKS)
def test_fifty_thousand_records_of_one_key_go_through_in_seconds_and_little_memory(
    name: str, make_hot_keys: Callable[[str], HotKeys]
) -> None:
    work = WORKS[name]
    text = TOPOLOGY.replace(" OTHER", work.other).replace("STEPS", work.steps)
    if "other" not in work.steps:
        text = "".join(line for line in text.splitlines(keepends=True) if "  other:" not in line)
    pipeline = make_hot_keys(text)

    def rows() -> Iterator[Row]:
        yield from work.rows(RECORDS)
        yield "in", "end", 0, FAR
        if "other" in work.steps and not work.other:
            yield "other", "end", 0, FAR + 10**8

    pipeline.write(rows())
    began = time.monotonic()
    most = pipeline.run_all(240)
    took_seconds = time.monotonic() - began
    given = len(pipeline.given())
    print(f"{name}: {took_seconds:.1f} s, at most {most} MB, {given} results")
    assert most < ALLOWED_MEGABYTES
    # What the last records leave open or give themselves is a handful.
    if work.results is not None:
        assert work.results <= given <= work.results + 3
