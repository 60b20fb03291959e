"""Topics are deleted and created again under workers, and another consumer commits their offsets.

No worker may end well as if nothing had happened: records of the new topic may be passed over, a
state or an output may lack what was written before.
"""

from __future__ import annotations

import json
import random
import re
import shlex
import signal
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from eosframework.application.topic_settings import TopicRole, settings_at_creation
from tests.support.applications.feeding import write_record
from tests.support.applications.identity import make_anew
from tests.support.applications.outbox import OutboxWorld
from tests.support.applications.pipeline import KEEP, Pipeline, WorkerProcess, number_in
from tests.support.processes.commands import here
from tests.support.processes.programs import Finished
from tests.support.processes.waiting import wait_until
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics

COUNTED = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  counted:
    from: numbers
    on_error: {dead_letter: NAME.dead}
    steps:
      - group_by: {by: "tests.support.applications.functions:tens", key: string}
      - count: {store: counts}
    to: [{topic: NAME.counted, value: json}]
"""
LOOKED_UP = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
  rates: {topic: NAME.rates, key: bytes, value: json, global: true}
streams:
  joined:
    from: numbers
    steps:
      - join: {with: rates, by: "tests.support.applications.functions:times"}
    to: [{topic: NAME.joined, value: json}]
"""
COMPACT = {"cleanup.policy": "compact"}
TOPICS = {
    ".in": KEEP,
    "-counted-repartition": settings_at_creation(TopicRole.REPARTITION),
    "-counts-changelog": settings_at_creation(TopicRole.CHANGELOG),
    "-ownership": settings_at_creation(TopicRole.OWNERSHIP),
    ".counted": KEEP,
    ".dead": KEEP,
}
"""What ends the names of an application's topics, and how each is created."""
MADE_ANEW = [ending for ending in TOPICS if ending != "-ownership"]

FED = 20

MakePipeline = Callable[..., Pipeline]


def counting(make_pipeline: MakePipeline, partitions: int = 1) -> Pipeline:
    pipeline = make_pipeline(topology=COUNTED, outputs={"counted": 1}, partitions=partitions)
    pipeline.apply()
    return pipeline


def stateful(
    pipeline: Pipeline, instance: str | None = None, *, once: bool = False
) -> WorkerProcess:
    place = f"state.directory={pipeline.directory}/state"
    quick = "worker.session_timeout_seconds=6"
    return pipeline.start_worker(settings=[place, quick], instance=instance, until_caught_up=once)


def again(pipeline: Pipeline, ending: str) -> tuple[str, str]:
    servers, topic = pipeline.bootstrap_servers, f"{pipeline.name}{ending}"
    pipeline._producer = None
    return make_anew(servers, topic, TOPICS[ending])


def run(pipeline: Pipeline, *command: str) -> Finished:
    server = f"kafka.bootstrap_servers={pipeline.bootstrap_servers}"
    place = [str(pipeline.topology_file) if part == "APP" else part for part in command]
    return here(*place, "--set", server)


def ended(worker: WorkerProcess) -> int:
    """Ask a worker to stop if it runs, and return its exit code."""
    if worker.process.poll() is None:
        worker.signal(signal.SIGTERM)
    return worker.wait()


def counted(pipeline: Pipeline) -> list[int]:
    records = pipeline.read(f"{pipeline.name}.counted")
    return [json.loads(record.value() or b"") for record in records]


def follow(pipeline: Pipeline, told: str) -> None:
    """Run the first command that a message says to run."""
    command = re.search(r"eosframework ((?:positions set|apply) .*?)(?:[.;] |$)", told, re.M)
    assert command is not None, told[-3000:]
    wanted = shlex.split(command[1])
    done = run(pipeline, *wanted)
    while "stop them before" in done.err:  # A killed worker is a member until its session ends.
        time.sleep(0.5)
        done = run(pipeline, *wanted)
    assert done.exit_code == 0, done.err


@pytest.mark.parametrize(
    ("ending", "command"),
    [
        (".in", "positions set APP"),
        pytest.param("-counted-repartition", "positions set APP", marks=pytest.mark.exhaustive),
        pytest.param("-counts-changelog", "apply APP --accept", marks=pytest.mark.exhaustive),
        pytest.param(".counted", "apply APP --accept", marks=pytest.mark.exhaustive),
        pytest.param(".dead", "apply APP --accept", marks=pytest.mark.exhaustive),
    ],
)
def test_a_topic_made_anew_ends_the_worker_and_refuses_starts_until_the_command_was_run(
    make_pipeline: MakePipeline, ending: str, command: str
) -> None:
    """1,000 of 4,000 records passed by with exit code 0, and counts began at 1."""
    pipeline = counting(make_pipeline)
    worker = stateful(pipeline)
    pipeline.feed(FED)
    wait_until(lambda: len(counted(pipeline)) == FED, "the first counts")
    ids = again(pipeline, ending)
    if ending == ".in":  # Its first offsets were committed in the former one.
        pipeline.feed(FED + 10)
        wait_until(
            lambda: worker.process.poll() is not None or pipeline.committed() == FED + 10,
            "the new records after the former position",
        )
    assert ended(worker) == 1, worker.log[-3000:]
    assert all(id_ in worker.log for id_ in ids), worker.log[-3000:]
    assert f"eosframework {command}" in worker.log
    assert "Traceback" not in worker.log
    refused = stateful(pipeline, once=True)
    assert refused.wait() == 2, refused.log[-3000:]
    assert all(id_ in refused.log for id_ in ids), refused.log[-3000:]
    if ending == ".in":
        # With the topic brokers delete its offsets; if nothing was committed in the new one:
        reached = pipeline.committed()
        proposed = f"'{pipeline.source}[0]={reached}'" if reached else f"{pipeline.source}=earliest"
        assert proposed in refused.log
    follow(pipeline, refused.log)
    healthy = stateful(pipeline, once=True)
    assert healthy.wait() == 0, healthy.log[-3000:]


def test_a_deleted_changelog_is_not_created_again_in_silence(make_pipeline: MakePipeline) -> None:
    """`apply` printed "created", and the counts began at 1 although the local store was intact."""
    pipeline = counting(make_pipeline)
    pipeline.feed(FED)
    assert stateful(pipeline, once=True).wait() == 0
    topic = f"{pipeline.name}-counts-changelog"
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(60)
    wait_until(lambda: topic not in admin.list_topics(timeout=60).topics, "the end of the topic")
    for refused in (run(pipeline, "apply", "APP"), run(pipeline, "plan", "APP")):
        assert refused.exit_code > 0
        told = refused.err + refused.out
        assert f"changelog topic '{topic}' was deleted" in told
        assert f"eosframework apply APP --accept {topic}" in told
    assert topic not in admin.list_topics(timeout=60).topics
    assert run(pipeline, "apply", "APP", "--accept", topic).exit_code == 0
    pipeline.feed(10)
    assert stateful(pipeline, once=True).wait() == 0
    assert counted(pipeline)[FED:] == [1] * 10, "the store starts empty, as it was accepted"


@pytest.mark.exhaustive
def test_a_successor_restores_nothing_from_a_changelog_made_anew(
    make_pipeline: MakePipeline,
) -> None:
    """It counted 99, 100, 1, 2 …"""
    pipeline = counting(make_pipeline, partitions=2)
    workers = [stateful(pipeline, name) for name in ("one", "two")]
    pipeline.feed(FED)
    wait_until(lambda: len(counted(pipeline)) == FED, "the first counts")
    for worker in workers:
        worker.wait_for_event("task_assigned")
    ids = again(pipeline, "-counts-changelog")
    workers[0].process.kill()
    pipeline.feed(FED)
    assert workers[1].wait() == 1, workers[1].log[-3000:]
    assert all(id_ in workers[1].log for id_ in ids)
    assert max(counted(pipeline)) <= 4
    assert counted(pipeline).count(1) == 10, "no key was counted from 1 again"


def test_a_global_table_made_anew_is_read_again_while_the_worker_runs(
    make_pipeline: MakePipeline,
) -> None:
    """Rows below the former offset stayed as they were until a restart."""
    pipeline = make_pipeline(topology=LOOKED_UP, outputs={"joined": 1}, partitions=1)
    rates, servers = f"{pipeline.name}.rates", pipeline.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    create_topics(admin, [NewTopic(rates, 1, 1, config=COMPACT)])

    def write_rates(factor: int) -> None:
        for key in range(10):
            write_record(servers, rates, str(key).encode(), json.dumps({"n": factor}).encode())

    write_rates(2)
    pipeline.apply()
    worker = pipeline.start_worker()
    pipeline.feed(5)
    joined = f"{pipeline.name}.joined"
    wait_until(lambda: len(pipeline.read(joined)) == 5, "the first rows")
    make_anew(servers, rates, COMPACT)
    write_rates(3)
    # The first of these may come while the rows are written.
    worker.wait_for(
        lambda: {rates: 10} in [e["rows"] for e in worker.events("global_tables_read")[1:]],
        "all rows of the new topic",
    )
    pipeline.feed(5)
    wait_until(lambda: len(pipeline.read(joined)) == 10, "the second rows")
    expected = [2 * n for n in range(5)] + [3 * n for n in range(5, 10)]
    assert [number_in(record) for record in pipeline.read(joined)] == expected
    assert ended(worker) == 0, worker.log[-3000:]


def test_offsets_of_another_consumer_are_refused_and_its_client_is_named(
    make_pipeline: MakePipeline,
) -> None:
    """200 to 400 records were lost, and an old version of the framework was blamed."""
    pipeline = make_pipeline(partitions=2)
    pipeline.feed(FED)
    worker = pipeline.start_worker()
    wait_until(lambda: pipeline.committed() == FED, "the first records")
    foreign = Consumer(
        {
            "bootstrap.servers": pipeline.bootstrap_servers,
            "group.id": pipeline.name,
            "client.id": "etl",
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
        }
    )
    foreign.subscribe([pipeline.source])
    try:
        while worker.process.poll() is None:
            assert foreign.poll(0.1) is None, "the worker has processed all of it"
        assert worker.wait() == 1, worker.log[-3000:]
        assert "client.id etl at 127.0.0.1" in worker.log
        pipeline.feed(FED)
        wait_until(lambda: foreign.poll(0.1) is not None, "a record for the other consumer")
        foreign.commit(asynchronous=False)
    finally:
        foreign.close()
    refused = pipeline.start_worker()
    assert refused.wait() == 2, refused.log[-3000:]
    assert f"the committed offsets {pipeline.source}[" in refused.log
    assert "are not those of this application" in refused.log
    half = [f"{pipeline.source}[{number}]={FED // 2}" for number in range(2)]
    done = run(pipeline, "positions", "set", "APP", *half)
    assert done.exit_code == 0, done.err
    pipeline.finish()
    assert pipeline.verify().clean


def test_positions_and_resets_compare_the_ownership_topic(make_pipeline: MakePipeline) -> None:
    """They read the ids to fence from whatever topic had the name."""
    pipeline = make_pipeline(partitions=1)
    pipeline.feed(FED)
    worker = pipeline.start_worker(until_caught_up=True, settings=["worker.ids=worker"])
    assert worker.wait() == 0, worker.log[-3000:]
    again(pipeline, "-ownership")
    wishes = ("positions", "set", "APP", f"{pipeline.source}=earliest")
    for refused in (run(pipeline, *wishes), run(pipeline, "reset", "APP", "--yes")):
        assert refused.exit_code == 2, refused.out
        assert "the ids that may still write are unknown" in refused.err
    assert run(pipeline, "apply", "APP").exit_code == 0
    done = run(pipeline, *wishes)
    assert done.exit_code == 0, done.err


@pytest.mark.exhaustive
def test_a_destination_of_a_relay_that_is_made_anew_ends_the_relay(
    make_outbox: Callable[..., OutboxWorld],
) -> None:
    outbox = make_outbox()
    relay = outbox.start_relay()
    outbox.publish(5)
    outbox.wait_for(5)
    ids = make_anew(outbox.bootstrap_servers, outbox.topic, KEEP)
    assert ended(relay) == 1, relay.log[-3000:]
    assert all(id_ in relay.log for id_ in ids)


@pytest.mark.parametrize(
    ("seed", "rounds"), [(1, 1), pytest.param(2, 25, marks=pytest.mark.exhaustive)]
)
def test_whatever_is_made_anew_at_any_moment_no_run_ends_well_before_it_was_named(
    make_pipeline: MakePipeline, seed: int, rounds: int
) -> None:
    """The search: each topic that was made anew is named before a run ends with 0 after it."""
    chance = random.Random(seed)
    pipeline = counting(make_pipeline)
    pipeline.feed(FED)
    assert stateful(pipeline, once=True).wait() == 0
    for _ in range(rounds):
        ending = chance.choice([*MADE_ANEW])
        worker = stateful(pipeline, once=chance.random() < 0.5)
        time.sleep(chance.uniform(0, 3))
        pipeline.feed(chance.randrange(1, FED))
        before, after = again(pipeline, ending)
        pipeline.feed(chance.randrange(1, 3 * FED))
        time.sleep(chance.uniform(0, 1))
        if chance.random() < 0.3 and worker.process.poll() is None:
            worker.process.kill()
        named = ended(worker) == 1 and after in worker.log
        told = worker.log
        while (refused := stateful(pipeline, once=True)).wait() != 0:
            told = refused.log
            assert before in told, told[-3000:]
            named = True
            follow(pipeline, told)
        assert named, f"{ending} was made anew, and no run named it:\n{told[-3000:]}"
