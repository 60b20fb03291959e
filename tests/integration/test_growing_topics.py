"""Topics get more partitions under running workers, which say so and lose and double nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.support.applications.pipeline import KEEP, Pipeline, number_in
from tests.support.processes.commands import here
from tests.support.processes.programs import Finished
from tests.support.processes.waiting import wait_until
from tests.support.servers.kafka_admin import NewPartitions, NewTopic
from tests.support.servers.topics import create_topics

REPARTITIONED = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  doubled:
    from: numbers
    steps:
      - group_by: {by: "tests.support.applications.functions:by_number", partitions: 2}
      - map_values: "tests.support.applications.functions:double"
    to: [{topic: NAME.doubled, value: json}]
"""

COUNTED = """\
application: NAME
sources:
  numbers: {topic: NAME.orders, key: bytes, value: json}
streams:
  totals:
    from: numbers
    steps:
      - group_by: {by: "tests.support.applications.functions:by_number"}
      - count: {}
    to: [{topic: NAME.doubled, value: json}]
"""

BEFORE, LATER = 200, 600


def grow(pipeline: Pipeline, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(60)
    pipeline._producer = None  # The next one knows the new partitions at once.


def accept(pipeline: Pipeline, topic: str) -> None:
    """Do what the message and the page say."""
    server = f"kafka.bootstrap_servers={pipeline.bootstrap_servers}"
    told = here(
        "positions", "set", str(pipeline.topology_file), f"{topic}=committed", "--set", server
    )
    assert told.exit_code == 0, told.err


def doubled(pipeline: Pipeline) -> list[int]:
    return sorted(number_in(m) for m in pipeline.read(f"{pipeline.name}.doubled"))


@pytest.mark.parametrize("processes", [pytest.param("1", marks=pytest.mark.exhaustive), "2"])
def test_an_input_that_grows_under_workers_is_named_and_nothing_is_lost_or_doubled(
    make_pipeline: Callable[..., Pipeline], processes: str
) -> None:
    """They ended with `_UNKNOWN_PARTITION` and exit code 70, or took new partitions over."""
    pipeline = make_pipeline(partitions=2)
    pipeline.feed(BEFORE)
    workers = pipeline.start_worker("--processes", processes)
    wait_until(lambda: pipeline.committed() == BEFORE, "the first records")
    grow(pipeline, pipeline.source, 4)
    pipeline.partitions = 4
    pipeline.feed(LATER)
    assert workers.wait() == 1, workers.log[-3000:]
    assert f"error: topic '{pipeline.source}' has " in workers.log
    assert f"eosframework positions set APP {pipeline.source}=committed" in workers.log
    assert "explain page growing-partitions" in workers.log
    assert "Traceback" not in workers.log
    tasks = {str(event["task"]) for event in workers.events("task_assigned")}
    assert not {t for t in tasks if t[-2] in "23"}, "no new partition was taken over"

    again = pipeline.start_worker("--processes", processes)
    assert again.wait() == 2, "it stays refused until the user has decided"
    assert "explain page growing-partitions" in again.log
    accept(pipeline, pipeline.source)
    pipeline.finish()
    assert pipeline.committed() == pipeline.fed
    for topic, factor in pipeline.outputs.items():
        assert sorted(number_in(m) for m in pipeline.read(topic)) == [
            factor * n for n in range(pipeline.fed)
        ]


@pytest.mark.exhaustive
def test_outputs_and_repartition_topics_that_grow_are_named_and_nothing_is_lost_or_doubled(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = make_pipeline(topology=REPARTITIONED, partitions=2, outputs={"doubled": 2})
    pipeline.apply()
    pipeline.feed(BEFORE)
    worker = pipeline.start_worker()
    worker.wait_for_event("task_assigned", 4)
    wait_until(lambda: pipeline.committed() == BEFORE, "the first records")
    [output] = pipeline.outputs
    grow(pipeline, output, 4)
    worker.wait_for_event("topic_grown")
    [told] = worker.events("topic_grown")
    assert (told["topic"], told["partitions_before"], told["partitions"]) == (output, 2, 4)
    pipeline.feed(LATER)
    wait_until(lambda: pipeline.committed() == pipeline.fed, "the records after it")

    [on_the_way] = [t for t in topics(pipeline) if t.endswith("repartition")]
    grow(pipeline, on_the_way, 4)
    pipeline.feed(LATER)
    assert worker.wait() == 1, worker.log[-3000:]
    assert f"error: topic '{on_the_way}' has " in worker.log
    assert "Traceback" not in worker.log
    accept(pipeline, on_the_way)
    pipeline.finish()
    assert doubled(pipeline) == [2 * n for n in range(pipeline.fed)]


def topics(pipeline: Pipeline) -> list[str]:
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap_servers})
    return [t for t in admin.list_topics(timeout=60).topics if t.startswith(pipeline.name)]


def internal(pipeline: Pipeline) -> list[str]:
    return [t for t in topics(pipeline) if t.endswith(("repartition", "changelog"))]


def applied(pipeline: Pipeline) -> Finished:
    server = f"kafka.bootstrap_servers={pipeline.bootstrap_servers}"
    return here("apply", str(pipeline.topology_file), "--set", server)


def create(pipeline: Pipeline, partitions: Mapping[str, int]) -> None:
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap_servers})
    create_topics(admin, [NewTopic(topic, n, 1, config=KEEP) for topic, n in partitions.items()])


def test_what_takes_its_partitions_from_a_missing_source_is_not_created(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    """It was created with one partition, and only `reset` helped."""
    pipeline = make_pipeline(topology=COUNTED)
    first = applied(pipeline)
    assert first.exit_code == 2
    assert f"source topic {pipeline.name}.orders does not exist" in first.error
    assert f"{pipeline.name}-totals-repartition" in first.error
    assert "nothing was missing" not in first.out
    assert internal(pipeline) == []

    create(pipeline, {f"{pipeline.name}.orders": 3})
    second = applied(pipeline)
    assert second.exit_code == 0, second.err
    assert len(internal(pipeline)) == 2
    assert set(counts(pipeline, internal(pipeline)).values()) == {3}


def counts(pipeline: Pipeline, of: Sequence[str]) -> dict[str, int]:
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap_servers})
    found = admin.list_topics(timeout=60).topics
    return {topic: len(found[topic].partitions) for topic in of}


@pytest.mark.parametrize("is_empty", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_internal_topics_that_were_made_too_small_grow_while_nothing_was_processed(
    make_pipeline: Callable[..., Pipeline], is_empty: bool
) -> None:
    pipeline = make_pipeline(topology=COUNTED)
    name = pipeline.name
    small = [f"{name}-totals-repartition", f"{name}-totals.count-changelog"]
    create(pipeline, {f"{name}.orders": 3, **dict.fromkeys(small, 1)})
    if not is_empty:
        producer = Producer({"bootstrap.servers": pipeline.bootstrap_servers})
        producer.produce(small[0], b"{}", b"1")
        assert producer.flush(60) == 0
    done = applied(pipeline)
    assert done.exit_code == 0, done.err
    assert sorted(internal(pipeline)) == sorted(small), "they are the application's own"
    for topic in small:
        told = f"{topic} was empty and now has 3 partitions instead of 1"
        assert (told in done.out) == is_empty
    assert counts(pipeline, small) == dict.fromkeys(small, 3 if is_empty else 1)
    assert "nothing was missing" in applied(pipeline).out
