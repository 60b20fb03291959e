"""What speaks against a cutover, and where live workers go on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eosframework import Record, Topology
from eosframework.application.control_topic import ControlState
from eosframework.errors import ConfigurationError, StartRefused
from eosframework.kafka.admin.metadata import GroupDescription, TopicDescription
from eosframework.records import Position, TopicPartition
from eosframework.spark.backfill.cutover import (
    incomplete,
    live_positions,
    lost_ranges,
    refuse_another_topology,
    refuse_incomplete,
    refuse_live_ends,
    refuse_members,
    refuse_outside_log,
    refuse_positions,
    refuse_suffix,
)
from eosframework.spark.job.job_entry import Job, JobState, OffsetRange, TaskProgress
from eosframework.spark.job.stages import fingerprint
from eosframework.topology.graph.graph import Graph
from eosframework.topology.resolve.resolve import resolve


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
RAW, KEYED = TopicPartition("flights.raw", 0), TopicPartition(OWN, 0)

JOB = Job(
    application="flights",
    name="january",
    fingerprint=fingerprint(GRAPH),
    created_at=0,
    ranges={"flights.raw": (OffsetRange(first=10, end=100), OffsetRange(first=0, end=7))},
    own_starts={OWN: (3, 5)},
    topic_ids={"flights.raw": "raw-id", OWN: "own-id"},
)


def progress(metadata: str, *, complete: bool = True) -> TaskProgress:
    return TaskProgress(
        positions={}, metadata=metadata, records=5000, complete=complete, attempt="a", written_at=0
    )


COMPLETE = JobState(
    JOB,
    ends={OWN: (50, 60)},
    tasks={
        (FIRST, 0): progress("eos1;4;1000"),
        (FIRST, 1): progress("eos1;5;1001"),
        (SECOND, 0): progress("eos1;6;1002"),
        (SECOND, 1): progress("eos1;7;1003"),
    },
)
TOPICS = {
    "flights.raw": TopicDescription(exists=True, topic_id="raw-id", partitions=2),
    OWN: TopicDescription(exists=True, topic_id="own-id", partitions=2),
}


def test_live_goes_on_behind_the_range_and_at_the_fixed_ends_of_own_topics() -> None:
    assert sorted(live_positions(GRAPH, COMPLETE), key=lambda p: p.topic_partition) == [
        Position(OWN, 0, 50, "eos1;6;1002"),
        Position(OWN, 1, 60, "eos1;7;1003"),
        Position("flights.raw", 0, 100, "eos1;4;1000"),
        Position("flights.raw", 1, 7, "eos1;5;1001"),
    ]


def test_live_goes_on_with_the_numbering_of_receipts_but_not_with_that_of_rows() -> None:
    tasks = {
        (FIRST, 0): replaced(FIRST, 0, {"flights.raw/0": "r1;10;90;99"}),
        (SECOND, 0): replaced(SECOND, 0, {f"{OWN}/0": "r1;0;40;39"}),
    }
    found = live_positions(GRAPH, replace(COMPLETE, tasks=tasks))
    assert sorted(found, key=lambda p: p.topic_partition) == [
        Position(OWN, 0, 50, "eos1;6;1002"),
        Position("flights.raw", 0, 100, "eos1;4;1000;r1;10;90;99"),
    ]


def replaced(sub_topology: str, number: int, numberings: dict[str, str]) -> TaskProgress:
    return COMPLETE.tasks[sub_topology, number].model_copy(update={"numberings": numberings})


def test_of_what_a_later_topology_has_besides_nothing_is_claimed() -> None:
    one = replace(COMPLETE, tasks={(FIRST, 0): progress("eos1;4;1000")})
    assert live_positions(GRAPH, one) == [Position("flights.raw", 0, 100, "eos1;4;1000")]


def test_a_complete_job_over_the_topics_that_are_there_is_not_refused() -> None:
    refuse_incomplete(GRAPH, COMPLETE, TOPICS)
    refuse_another_topology(GRAPH, JOB)
    refuse_suffix(JOB)


@pytest.mark.parametrize(
    ("state", "named"),
    [
        (replace(COMPLETE, ends={}), f"the end of topic {OWN} is not fixed"),
        (
            replace(COMPLETE, tasks={**COMPLETE.tasks, (SECOND, 1): progress("", complete=False)}),
            rf"task {SECOND}\[1\] is after 5,000 records",
        ),
        (
            replace(COMPLETE, tasks={k: v for k, v in COMPLETE.tasks.items() if k[1] == 0}),
            rf"task {FIRST}\[1\] has not begun",
        ),
    ],
)
def test_what_is_not_complete_is_named(state: JobState, named: str) -> None:
    assert any(incomplete(GRAPH, state))
    with pytest.raises(StartRefused, match=named):
        refuse_incomplete(GRAPH, state, TOPICS)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (TopicDescription(exists=False), "was deleted since"),
        (TopicDescription(exists=True, topic_id="another", partitions=2), "created again"),
        (TopicDescription(exists=True, topic_id="raw-id", partitions=3), "has 3 partitions"),
    ],
)
def test_a_topic_that_is_not_the_one_read_is_refused(found: TopicDescription, said: str) -> None:
    with pytest.raises(StartRefused, match=said):
        refuse_incomplete(GRAPH, COMPLETE, {**TOPICS, "flights.raw": found})


def test_a_job_beside_the_live_topics_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="nothing to cut over"):
        refuse_suffix(JOB.model_copy(update={"suffix": "v2"}))


def test_another_topology_than_the_jobs_is_refused() -> None:
    with pytest.raises(StartRefused, match="the topology changed"):
        refuse_another_topology(
            GRAPH, JOB.model_copy(update={"fingerprint": {**JOB.fingerprint, "topology": "x"}})
        )


def test_members_other_than_a_cutover_that_was_killed_are_refused() -> None:
    refuse_members("flights", GroupDescription(), "cutover.january")
    refuse_members(
        "flights", GroupDescription(("x",), None, ("cutover.january",)), "cutover.january"
    )
    for instances in (("host.0", "cutover.january"), (None,), ("cutover.february",)):
        with pytest.raises(StartRefused, match="1 running worker"):
            refuse_members("flights", GroupDescription(("x",), None, instances), "cutover.january")


@pytest.mark.parametrize(
    ("committed", "known", "refused"),
    [
        (None, False, None),
        (100, True, None),
        (120, True, "live up to offset 120"),
        (20, False, "live up to offset 20"),
        (None, True, "live before"),
    ],
)
def test_an_application_that_ran_live_is_refused(
    committed: int | None, known: bool, refused: str | None
) -> None:
    registered = ControlState(committed={RAW: "raw-id"} if known else {})
    given: Any = (
        GRAPH,
        live_positions(GRAPH, COMPLETE),
        [Position(*RAW, committed), Position(*KEYED, None)],
        registered,
    )
    if refused is None:
        refuse_positions(*given)
    else:
        with pytest.raises(StartRefused, match=refused):
            refuse_positions(*given)


@pytest.mark.parametrize(
    ("raw", "keyed", "refused"),
    [
        (None, None, None),
        (100, None, "processed flights.raw.0. live up to offset 100, the end of the range"),
        (120, None, None),
        (None, 50, "live up to offset 50"),
        (None, 0, None),
    ],
)
def test_a_worker_that_stopped_at_the_end_of_the_range_is_found(
    raw: int | None, keyed: int | None, refused: str | None
) -> None:
    wanted = live_positions(GRAPH, COMPLETE)
    given: Any = (GRAPH, COMPLETE, wanted, [Position(*RAW, raw), Position(*KEYED, keyed)])
    if refused is None:
        refuse_live_ends(*given)
    else:
        with pytest.raises(StartRefused, match=refused):
            refuse_live_ends(*given)


def test_records_removed_behind_the_range_are_refused_unless_accepted() -> None:
    positions = [Position(*RAW, 100)]
    refuse_outside_log(positions, {RAW: (100, 100)}, accept_lost=False)
    with pytest.raises(StartRefused, match="begins at offset 130"):
        refuse_outside_log(positions, {RAW: (130, 200)}, accept_lost=False)
    refuse_outside_log(positions, {RAW: (130, 200)}, accept_lost=True)
    assert lost_ranges(positions, {RAW: (130, 200)}) == {RAW: (100, 130)}
    with pytest.raises(StartRefused, match="truncated"):
        refuse_outside_log(positions, {RAW: (0, 99)}, accept_lost=True)
