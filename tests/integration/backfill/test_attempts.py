"""Attempts of backfill tasks on a real broker: what they read, write and leave behind."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eosframework.engine.task.receipts import HEADER_RECEIPT, Receipt
from eosframework.errors import RunError
from eosframework.spark.job.job_entry import task_key
from tests.conftest import KafkaService
from tests.support.applications.backfilled import JOB, QUICK, Backfill
from tests.support.applications.feeding import feeder
from tests.support.applications.joined import PARTITIONS, Shop
from tests.support.applications.pipeline import COMPRESSED, Pipeline, number_in
from tests.support.applications.totals import Totals
from tests.support.verifiers.messages import headers_of, position_of

ONE_STREAM = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  doubled:
    from: numbers
    steps: [{map_values: "tests.support.applications.functions:inflate"}]
    on_error: {dead_letter: NAME.dead}
    to: [{topic: NAME.doubled, value: json}]
"""

LOOKED_UP = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
  factors: {topic: NAME.tripled, key: string, value: json, global: true}
streams:
  doubled:
    from: numbers
    steps:
      - join:
          with: factors
          key: "tests.support.applications.functions:tens"
          by: "tests.support.applications.functions:times"
    to: [{topic: NAME.doubled, value: json}]
"""


@pytest.fixture
def make_backfill() -> Iterator[Callable[..., Backfill]]:
    """Make the tasks of a job over a pipeline's topics; their attempts are ended."""
    made: list[Backfill] = []

    def make(pipeline: Pipeline, settings: list[str] = QUICK) -> Backfill:
        made.append(Backfill(pipeline, settings))
        return made[-1]

    yield make
    for backfill in made:
        backfill.stop()


def append_in_transactions(pipeline: Pipeline) -> None:
    """Append records of which none counts, and at the end one that does, with its marker."""
    producer = Producer(
        {"bootstrap.servers": pipeline.bootstrap_servers, "transactional.id": pipeline.name}
    )
    producer.init_transactions(60)
    for number, counts in ((-1, False), (pipeline.fed, True)):
        producer.begin_transaction()
        value = json.dumps({"n": number}).encode()
        producer.produce(pipeline.source, value, str(number).encode(), 0, timestamp=1_700_000_001)
        producer.flush(60)
        producer.commit_transaction(60) if counts else producer.abort_transaction(60)


def test_aborted_records_and_markers_are_neither_processed_nor_waited_for(
    make_pipeline: Callable[..., Pipeline], make_backfill: Callable[..., Backfill]
) -> None:
    pipeline = make_pipeline(partitions=1)
    pipeline.feed(500)
    append_in_transactions(pipeline)
    backfill = make_backfill(pipeline)
    done = backfill.run("doubled", 0, of_log=True)
    assert done.records == 501
    assert done.positions == {f"{pipeline.source}/0": 504}, "behind the last marker"
    assert pipeline.verify().clean
    assert backfill.run("doubled", 0, 1, of_log=True) == done


def test_rows_that_end_before_the_range_are_refused_and_the_next_attempt_goes_on(
    make_pipeline: Callable[..., Pipeline], make_backfill: Callable[..., Backfill]
) -> None:
    pipeline = make_pipeline(partitions=1)
    pipeline.feed(500)
    backfill = make_backfill(pipeline)
    with pytest.raises(RunError, match=r"there are records left in .*\[0\] 300 to 500"):
        backfill.run("doubled", 0, batches=3)
    assert backfill.run("doubled", 0, 1).records == 500
    assert pipeline.verify().clean


def test_keyed_tasks_keep_their_state_in_changelogs_and_own_records_tell_their_writer(
    kafka: KafkaService,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    make_backfill: Callable[..., Backfill],
) -> None:
    totals = Totals(kafka.bootstrap_servers, unique_name("app"), tmp_path, partitions=2)
    totals.feed(1000)
    backfill = make_backfill(totals)
    for sub_topology in ("totals", "totals.keyed", "latest.keyed"):
        for partition in range(2):
            assert backfill.run(sub_topology, partition).complete
    assert totals.findings() == []
    sent = totals.read(f"{totals.name}-totals-repartition")
    writers = {header for message in sent for header in message.headers() or ()}
    assert writers == {("__eos.backfill.writer", b"totals/%d" % n) for n in range(2)}
    assert all(message.headers() is None for message in totals.read(f"{totals.name}.totals"))
    changelogs = totals.read(f"{totals.name}-totals.aggregate-changelog")
    assert len({message.key() for message in changelogs}) == 10


@pytest.mark.exhaustive
def test_a_task_that_joins_two_partitions_of_the_log_reads_them_as_a_live_one(
    kafka: KafkaService,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    make_backfill: Callable[..., Backfill],
) -> None:
    shop = Shop(kafka.bootstrap_servers, unique_name("shop"), tmp_path, seed=11)
    shop.fill(600)
    backfill = make_backfill(shop, [*QUICK, "backfill.chunk_records=100"])
    fault = "transaction.after_commit=kill@3"
    killed = backfill.start("priced", 0, 0, of_log=True, fault=fault)
    killed.ends_with(-signal.SIGKILL)
    for partition in range(PARTITIONS):
        assert backfill.run("priced", partition, of_log=True).complete
    assert shop.findings_in_paid() == []


def test_an_output_that_the_broker_refuses_goes_to_the_dead_letters(
    make_pipeline: Callable[..., Pipeline], make_backfill: Callable[..., Backfill]
) -> None:
    pipeline = make_pipeline(topology=ONE_STREAM, partitions=1, small_outputs=True)
    pipeline.feed(300)
    done = make_backfill(pipeline, [*QUICK, COMPRESSED]).run("doubled", 0)
    assert (done.records, done.dead_letters) == (300, 1)
    [dead] = pipeline.read(f"{pipeline.name}.dead")
    assert number_in(dead) == 13
    numbers = [number_in(message) for message in pipeline.read(f"{pipeline.name}.doubled")]
    assert numbers == [n for n in range(300) if n != 13]


def test_rows_are_looked_up_in_global_tables_that_are_read_whole(
    make_pipeline: Callable[..., Pipeline], make_backfill: Callable[..., Backfill]
) -> None:
    pipeline = make_pipeline(topology=LOOKED_UP, partitions=1, outputs={"doubled": 2, "tripled": 3})
    pipeline.feed(100)
    producer = feeder(pipeline.bootstrap_servers)
    for ten in range(10):
        producer.produce(f"{pipeline.name}.tripled", json.dumps({"n": 2}).encode(), str(ten))
    assert producer.flush(60) == 0
    assert make_backfill(pipeline).run("doubled", 0).records == 100
    numbers = [number_in(message) for message in pipeline.read(f"{pipeline.name}.doubled")]
    assert numbers == [2 * n for n in range(100)]


def test_a_job_is_audited_by_its_receipts_while_it_runs_and_afterwards(
    make_pipeline: Callable[..., Pipeline], make_backfill: Callable[..., Backfill]
) -> None:
    """1. a task is complete, the other one is killed  2. it completes  3. its progress goes back,
    so that half of its outputs are there without it  4. outputs are removed, and one is doubled"""
    pipeline = make_pipeline(partitions=2)
    pipeline.feed(600)
    settings = [*QUICK, "backfill.chunk_records=50", "worker.receipts=true"]
    backfill = make_backfill(pipeline, settings)
    backfill.run("doubled", 0, of_log=True)
    fault = "transaction.after_commit=kill@3"
    backfill.start("doubled", 1, 0, of_log=True, fault=fault).ends_with(-signal.SIGKILL)
    backfill.register()
    half = backfill.audit()
    early = backfill.progress("doubled", 1)
    assert early is not None
    [position] = early.positions.values()
    assert half.clean, half
    assert (half.input, half.share) == (300 + position, (300 + position) / 600)
    place = f"{pipeline.source}[1]@{position}"
    assert half.notes == (f"job history is not complete: it is judged up to {place}",)

    backfill.run("doubled", 1, 1, of_log=True)
    done = backfill.progress("doubled", 1)
    assert done is not None
    whole = backfill.audit()
    assert whole.clean, whole
    assert (whole.input, whole.output, whole.share, whole.notes) == (600, 1200, 1.0, ())

    key = task_key(JOB, "doubled", 1)
    backfill.journal.write({key: early.to_entry()})
    torn = backfill.audit()
    assert (torn.torn, torn.lost, torn.duplicated) == (300 - position, 0, 0)
    assert any(f"after its input {place} is not committed" in one.text for one in torn.details)
    backfill.journal.write({key: done.to_entry()})

    outputs = [m for m in pipeline.read(f"{pipeline.name}.doubled") if m.partition() == 1]
    write_again(pipeline, outputs[-1])
    remove_before(pipeline, outputs[10])
    damaged = backfill.audit()
    assert (damaged.lost, damaged.torn, damaged.duplicated) == (10, 10, 1)
    named = {(detail.kind, detail.input) for detail in damaged.details}
    assert {("lost", input_of(one)) for one in outputs[:10]} < named
    assert ("duplicated", input_of(outputs[-1])) in named


def input_of(message: Message) -> str:
    receipt = Receipt.parse(headers_of(message)[HEADER_RECEIPT])
    assert receipt is not None
    return f"{receipt.topic}[{receipt.partition}]@{receipt.offset}"


def write_again(pipeline: Pipeline, message: Message) -> None:
    producer = feeder(pipeline.bootstrap_servers)
    topic, partition, _ = position_of(message)
    headers = message.headers()
    producer.produce(topic, message.value(), message.key(), partition, headers=headers)
    assert producer.flush(60) == 0


def remove_before(pipeline: Pipeline, message: Message) -> None:
    """Remove the records before one, as retention does."""
    bound = TopicPartition(*position_of(message))
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap_servers})
    admin.delete_records([bound])[bound].result(60)
