"""What is said of a running job: how far, how fast, how long yet."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console

from eosframework import Record, Topology
from eosframework.spark.job.job_entry import Job, JobState, OffsetRange, TaskProgress
from eosframework.spark.job.job_status import ProgressDisplay, StatusTracker, drawn, headline
from eosframework.topology.graph.graph import Graph
from eosframework.topology.resolve.resolve import resolve

STARTED = 1_700_000_000
"""In seconds since the epoch."""


def carrier(record: Record) -> str:
    return record.value["carrier"]


def counting() -> Graph:
    app = Topology("flights")
    flights = app.stream("flights.raw", key=str, value="json", name="flights")
    flights.group_by(carrier, key=str, name="counts").count().to("flights.counts")
    return resolve(app.loaded())


GRAPH = counting()
OWN = GRAPH.repartitions[0].topic
FIRST, SECOND = (
    next(part.name for part in GRAPH.sub_topologies if part.sources[0].topic == topic)
    for topic in ("flights.raw", OWN)
)
JOB = Job(
    application="flights",
    name="january",
    fingerprint={},
    created_at=STARTED * 1000,
    ranges={"flights.raw": (OffsetRange(first=100, end=1100), OffsetRange(first=0, end=1000))},
    own_starts={OWN: (0, 0)},
)


def task(
    records: int, *, at: float, position: str = "", complete: bool = False, late: int = 0
) -> TaskProgress:
    topic, _, offset = position.partition("=")
    return TaskProgress(
        positions={topic: int(offset)} if offset else {},
        metadata="",
        records=records,
        late=late,
        complete=complete,
        attempt="a",
        written_at=round((STARTED + at) * 1000),
    )


def attempt_run(records: int, at: float) -> JobState:
    """The first task of the first stage after so many of its records; the second has not begun."""
    position = f"flights.raw/0={100 + records}"
    return JobState(JOB, tasks={(FIRST, 0): task(records, at=at, position=position)})


def test_offsets_of_a_kafka_range_tell_how_far_a_stage_is() -> None:
    status = StatusTracker(GRAPH).look(attempt_run(400, 10), STARTED + 10)
    first, second = status.stages
    assert (first.name, first.done, first.total, first.complete) == (FIRST, 400, 2000, False)
    assert (first.tasks[0].done, first.tasks[0].total) == (400, 1000)
    assert (first.tasks[1].done, first.tasks[1].total) == (0, 1000)
    assert (second.done, second.total) == (None, None)
    assert not status.complete


def test_the_first_look_takes_the_rate_since_the_start() -> None:
    first = StatusTracker(GRAPH).look(attempt_run(400, 10), STARTED + 12).stages[0]
    assert first.per_second == 40
    assert first.seconds_left == 40


def test_later_looks_take_the_rate_of_the_last_minute() -> None:
    watching = StatusTracker(GRAPH)
    watching.look(attempt_run(100, 10), STARTED + 10)
    for second in range(11, 100):
        status = watching.look(attempt_run(100 + (second - 10) * 5, second), STARTED + second)
    first = status.stages[0]
    assert first.per_second is not None
    assert round(first.per_second, 3) == 5
    assert first.seconds_left is not None
    assert round(first.seconds_left) == round((2000 - 545) / 5)


def test_of_a_job_that_stands_still_no_rate_is_claimed() -> None:
    first = StatusTracker(GRAPH).look(attempt_run(400, 10), STARTED + 3600).stages[0]
    assert (first.per_second, first.seconds_left) == (None, None)


def test_what_is_complete_is_said_to_be_whatever_markers_took_offsets() -> None:
    state = JobState(
        JOB,
        tasks={
            (name, number): task(990, at=50, complete=True)
            for name in (FIRST, SECOND)
            for number in range(2)
        },
    )
    status = StatusTracker(GRAPH).look(state, STARTED + 60)
    assert status.complete
    assert (status.stages[0].done, status.stages[0].total) == (2000, 2000)
    assert headline(status).endswith(": complete")


def test_a_job_of_another_topology_is_not_said_to_be_complete() -> None:
    other = JOB.model_copy(update={"ranges": {}, "own_starts": {}})
    assert not StatusTracker(GRAPH).look(JobState(other), STARTED).complete


def text_of(show: Callable[[Console], object]) -> str:
    console = Console(width=120, force_terminal=False, record=True, file=None, quiet=False)
    with console.capture() as captured:
        show(console)
    return captured.get()


def test_people_read_stages_tasks_and_what_went_wrong() -> None:
    tasks = {
        (FIRST, 0): task(1000, at=20, complete=True),
        (FIRST, 1): task(500, at=20, position="flights.raw/1=500", late=7),
    }
    status = StatusTracker(GRAPH).look(JobState(JOB, tasks=tasks), STARTED + 20)
    text = text_of(lambda console: console.print(drawn(status)))
    assert "job january of flights" in text
    assert "not complete" in text
    assert "1,500 records  75.0%  75/s  0:00:07 left  7 late" in text
    assert f"{FIRST}[1]" in text
    assert "0 of 2 tasks complete" in text


def test_snapshots_can_be_shown_where_there_is_no_terminal() -> None:
    text = text_of(lambda console: _through(console))
    assert text == ""


def _through(console: Console) -> None:
    with ProgressDisplay(GRAPH, console) as on_progress:
        assert not on_progress.update(attempt_run(100, 10)).complete
