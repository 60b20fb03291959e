"""Topics get more partitions under running workers, which say so and lose and double nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.commands import here
from tests.support.kafka_admin import NewPartitions
from tests.support.pipeline import Pipeline, number_in
from tests.support.waiting import wait_until

REPARTITIONED = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  doubled:
    from: numbers
    steps:
      - group_by: {by: "tests.support.functions:by_number", partitions: 2}
      - map_values: "tests.support.functions:double"
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
    assert workers.wait() == 2, workers.log[-3000:]
    assert f"error: topic '{pipeline.source}' has " in workers.log
    assert f"eosframework positions set APP {pipeline.source}=committed" in workers.log
    assert "docs/howto/growing-partitions.md" in workers.log
    assert "Traceback" not in workers.log
    ids = {str(event["transactional_id"]) for event in workers.events("task_assigned")}
    assert not {i for i in ids if i[-1] in "23"}, "no new partition was taken over"

    again = pipeline.start_worker("--processes", processes)
    assert again.wait() == 1, "it stays refused until the user has decided"
    assert "docs/howto/growing-partitions.md" in again.log
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
    assert worker.wait() == 2, worker.log[-3000:]
    assert f"error: topic '{on_the_way}' has " in worker.log
    assert "Traceback" not in worker.log
    accept(pipeline, on_the_way)
    pipeline.finish()
    assert doubled(pipeline) == [2 * n for n in range(pipeline.fed)]


def topics(pipeline: Pipeline) -> list[str]:
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap_servers})
    return [t for t in admin.list_topics(timeout=60).topics if t.startswith(pipeline.name)]
