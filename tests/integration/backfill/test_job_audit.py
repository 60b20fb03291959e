"""The audit of an application whose history a job has processed: before and after the cutover."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Message, TopicPartition
from confluent_kafka.admin import AdminClient

from eosframework.config import KafkaSettings, load_settings
from eosframework.engine.task.receipts import HEADER_RECEIPT, Receipt
from eosframework.errors import ConfigurationError, StartRefused
from eosframework.operations.audit import Proof, Verdict, audit_application
from eosframework.spark.backfill.api import Backfill
from tests.conftest import KafkaService
from tests.support.applications.feeding import feeder
from tests.support.applications.handed_over import JOB, HandedOver
from tests.support.verifiers.messages import headers_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITH_RECEIPTS = {"EOS_WORKER__RECEIPTS": "true"}

COUNTED = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: string, value: json, timestamp: "NAME_OF_TIME"}
streams:
  totals:
    from: numbers
    steps: [count: {}]
    to: {topic: NAME.totals, value: json}
""".replace("NAME_OF_TIME", "tests.integration.backfill.test_job_audit:number_as_time")


def number_as_time(value: dict[str, int]) -> int:
    return value["n"]


@pytest.fixture
def make_history(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[Callable[..., HandedOver]]:
    made: list[HandedOver] = []

    def make(**options: Any) -> HandedOver:
        name = unique_name("history")
        made.append(HandedOver(kafka.bootstrap_servers, name, tmp_path / name, **options))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def run(spark: SparkSession, app: HandedOver, *, receipts: bool = True, **arguments: Any) -> None:
    chosen = [f"kafka.bootstrap_servers={app.bootstrap_servers}"]
    chosen.append(f"worker.receipts={str(receipts).lower()}")
    settings = load_settings(None, chosen)
    Backfill(str(app.topology_file), job=JOB, settings=settings, **arguments).run(spark)


def audit(app: HandedOver, proof: Proof = Proof.AUTO) -> Verdict:
    settings = KafkaSettings(bootstrap_servers=app.bootstrap_servers)
    return audit_application(app.graph, settings, proof=proof)


def faults(verdict: Verdict) -> dict[str, int]:
    names = ("lost", "duplicated", "reordered", "torn")
    return {name: n for name in names if (n := getattr(verdict, name))}


def receipt_of(message: Message) -> Receipt:
    receipt = Receipt.parse(headers_of(message)[HEADER_RECEIPT])
    assert receipt is not None
    return receipt


def write_again(app: HandedOver, message: Message) -> None:
    producer = feeder(app.bootstrap_servers)
    topic, partition = message.topic(), message.partition()
    assert topic is not None
    assert partition is not None
    headers = message.headers()
    producer.produce(topic, message.value(), message.key(), partition, headers=headers)
    assert producer.flush(60) == 0


def remove(app: HandedOver, topic: str, count: int) -> list[Message]:
    """Remove the first records of a topic's partition 0, as retention does, and return them."""
    removed = [one for one in app.read(topic) if one.partition() == 0][:count]
    admin = AdminClient({"bootstrap.servers": app.bootstrap_servers})
    offset = removed[-1].offset()
    assert offset is not None
    bound = TopicPartition(topic, 0, offset + 1)
    admin.delete_records([bound])[bound].result(60)
    return removed


def process_live(app: HandedOver) -> None:
    worker = app.work("live", environment=WITH_RECEIPTS, until_caught_up=True)
    assert worker.wait() == 0, worker.log[-4000:]


def others(verdict: Any) -> list[str]:
    """The notes, but for the one that idle sources of a repartition topic may give results."""
    said = "0 outputs without a receipt are not judged"
    return [note for note in verdict.notes if said not in note]


def test_one_audit_covers_a_job_and_the_live_workers_that_resume_at_its_end(
    spark: SparkSession, make_history: Callable[..., HandedOver]
) -> None:
    """Two stages: one over the log, one over rows of two repartition topics."""
    app = make_history(partitions=2)
    app.feed(1000)
    run(spark, app)
    before = audit(app)
    assert before.clean, before
    assert (before.input, before.share, others(before)) == (3 * 1000, 1.0, [])
    assert before.output == 3 * 1000 + len(app.windows())
    with pytest.raises(ConfigurationError, match=r"was started with worker\.receipts=true"):
        run(spark, app, receipts=False)

    assert app.cutover().exit_code == 0
    app.feed(300)
    process_live(app)
    assert {receipt_of(one).since for one in app.read(f"{app.name}-totals-repartition")} == {0}
    after = audit(app)
    assert after.clean, after
    assert (after.share, others(after)) == (1.0, [])
    assert after.input >= 3 * 1300, "watermarks of live workers count as well"
    assert after.output == 3 * 1300 + len(app.windows())

    totals = app.read(f"{app.name}.totals")
    copied = next(one for one in totals if receipt_of(one).topic.startswith("backfill."))
    write_again(app, copied)
    removed = remove(app, f"{app.name}-totals-repartition", 3)
    damaged = audit(app)
    assert faults(damaged) == {"lost": 3, "duplicated": 1, "torn": 3}
    named = {detail.input for detail in damaged.details}
    origin = receipt_of(copied)
    assert f"backfill.{JOB}:{app.name}-totals-repartition[{origin.partition}]@{origin.offset}" in (
        named
    )
    assert {f"{app.source}[{r.partition}]@{r.offset}" for r in map(receipt_of, removed)} <= named
    assert any("cannot be compared with the rows" in note for note in damaged.notes)


def test_rows_of_files_are_judged_as_spark_read_them_and_the_audit_says_so(
    spark: SparkSession, make_history: Callable[..., HandedOver], tmp_path: Path
) -> None:
    app = make_history(topology=COUNTED, partitions=2)
    lines = [json.dumps({"n": n, "key": f"k{n % 7}"}) for n in range(400)]
    archive = tmp_path / "archive.json"
    archive.write_text("\n".join(lines))
    run(spark, app, source=[f"{app.source}=json:{archive};key=key"])
    verdict = audit(app)
    assert verdict.clean, verdict
    assert (verdict.input, verdict.output, verdict.share) == (400, 400, 1.0)
    assert [note for note in verdict.notes if "files" in note] == [
        f"rows of job {JOB} from files in place of topic {app.source} are judged as Spark read "
        f"them (backfill.{JOB}:{app.source}[TASK]@ROW); the files are not read"
    ]
    removed = remove(app, f"{app.name}.totals", 4)
    damaged = audit(app)
    assert faults(damaged) == {"lost": 4}
    rows = sorted(receipt_of(one).offset for one in removed)
    [detail] = damaged.details
    assert detail.input == f"backfill.{JOB}:{app.source}[{receipt_of(removed[0]).partition}]@0"
    assert rows == [0, 1, 2, 3]


@pytest.mark.exhaustive
def test_what_a_job_without_receipts_processed_is_named_and_not_judged(
    spark: SparkSession, make_history: Callable[..., HandedOver]
) -> None:
    app = make_history(partitions=1)
    app.feed(200)
    run(spark, app, receipts=False)
    with pytest.raises(StartRefused, match=r"@0 to @199 have no receipts"):
        audit(app)
    assert app.cutover().exit_code == 0
    app.feed(100)
    process_live(app)
    verdict = audit(app)
    assert verdict.clean, verdict
    assert 0 < verdict.share < 1
    notes = "\n".join(verdict.notes)
    assert f"{app.source}[0]@0 to @199: not judged" in notes
    assert f"200 rows of backfill.{JOB}:{app.name}-totals-repartition[0]" in notes
    with pytest.raises(StartRefused, match="have no receipts"):
        audit(app, Proof.RECEIPTS)
