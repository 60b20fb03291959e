"""The audit on live topics: workers run and are killed, and damage is done beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Message, TopicPartition
from confluent_kafka.admin import AdminClient

from eosframework.config import KafkaSettings
from eosframework.engine.task.receipts import HEADER_RECEIPT, Receipt
from eosframework.errors import StartRefused
from eosframework.operations.audit import Proof, Scope, Verdict, audit_application
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve
from tests.support.applications.feeding import feeder
from tests.support.applications.pipeline import TOPOLOGY, Pipeline, wait_until
from tests.support.applications.totals import Totals
from tests.support.processes.commands import Folder
from tests.support.verifiers.messages import headers_of, position_of

RECEIPTS = ("worker.receipts=true",)

BY_CHANCE = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  chosen:
    from: numbers
    steps:
      - {filter: "tests.support.applications.functions:by_chance"}
      - {map_values: "tests.support.applications.functions:at_this_moment"}
    to: [{topic: NAME.doubled, value: json}, {topic: NAME.tripled, value: json}]
"""
"""Functions that give something else each time, so that nothing but receipts can judge them."""


def audit(pipeline: Pipeline, proof: Proof = Proof.AUTO) -> Verdict:
    graph = resolve(load_app(str(pipeline.topology_file)))
    settings = KafkaSettings(bootstrap_servers=pipeline.bootstrap_servers)
    return audit_application(graph, settings, scope=Scope(), proof=proof)


def processed(pipeline: Pipeline) -> Callable[[], bool]:
    return lambda: pipeline.committed() == pipeline.fed


@pytest.mark.parametrize(
    ("topology", "kills", "proof"),
    [
        (BY_CHANCE, 2, Proof.RECEIPTS),
        pytest.param(TOPOLOGY, 1, Proof.FUNCTIONS, marks=pytest.mark.exhaustive),
    ],
    ids=["receipts", "functions"],
)
def test_a_live_audit_is_clean_while_workers_run_and_are_killed(
    make_pipeline: Callable[..., Pipeline], topology: str, kills: int, proof: Proof
) -> None:
    pipeline = make_pipeline(topology=topology)
    pipeline.feed(20_000)
    judged: list[int] = []
    for _ in range(kills):
        pipeline.feed(2_000)
        before = pipeline.committed()
        worker = pipeline.start_worker(instance="one", settings=RECEIPTS)
        wait_until(lambda before=before: pipeline.committed() > before, "a commit")
        verdict = audit(pipeline, proof)
        assert verdict.clean, verdict
        assert verdict.input > before
        judged.append(verdict.input)
        worker.process.kill()
        worker.process.wait()
    pipeline.feed(2_000)  # a worker may have been through with the rest before it was judged
    pipeline.start_worker(instance="one", settings=RECEIPTS)
    wait_until(processed(pipeline), "the end of the input")
    verdict = audit(pipeline, proof)
    assert verdict.clean, verdict
    assert verdict.input == pipeline.fed > judged[0]
    first, second = (len(pipeline.read(topic)) for topic in pipeline.outputs)
    assert verdict.output == first + second


def test_each_damage_beside_a_running_worker_is_named_with_its_records(
    make_pipeline: Callable[..., Pipeline], tmp_path: Path
) -> None:
    pipeline = make_pipeline(topology=BY_CHANCE, partitions=2)
    pipeline.feed(2_000)
    pipeline.start_worker(settings=RECEIPTS)
    wait_until(processed(pipeline), "the end of the input")
    doubled, tripled = (pipeline.read(topic) for topic in pipeline.outputs)
    copied = in_partition(doubled, 1)[10]
    copy(pipeline, copied)
    removed = in_partition(tripled, 0)[:5]
    remove_up_to(pipeline, removed[-1])
    pipeline.feed(1_000)

    command = Folder(tmp_path, pipeline.bootstrap_servers)
    done = command.run("audit", str(pipeline.topology_file), "--by", "receipts", "--json")
    report = done.json
    assert done.exit_code == 1, done.err
    counts = {k: report[k] for k in ("lost", "duplicated", "reordered", "torn", "unexpected")}
    assert counts == {"lost": 5, "duplicated": 1, "reordered": 0, "torn": 5, "unexpected": 0}
    of_kind = {
        kind: [d for d in report["details"] if d["kind"] == kind]
        for kind in ("lost", "duplicated", "torn")
    }
    assert [d["input"] for d in of_kind["duplicated"]] == [input_of(copied)]
    assert f"repeats {place_of(copied)}:" in of_kind["duplicated"][0]["text"]
    wanted = sorted(map(input_of, removed))
    assert sorted(d["input"] for d in of_kind["lost"]) == wanted
    assert sorted(d["input"] for d in of_kind["torn"]) == wanted
    shown = command.run("audit", str(pipeline.topology_file), "--from", place_of(copied))
    assert (shown.exit_code, "is not an input partition" in shown.error) == (2, True)


def in_partition(records: list[Message], number: int) -> list[Message]:
    return [record for record in records if record.partition() == number]


def copy(pipeline: Pipeline, record: Message) -> None:
    topic, partition, _ = position_of(record)
    producer = feeder(pipeline.bootstrap_servers)
    producer.produce(
        topic,
        record.value(),
        record.key(),
        partition,
        timestamp=record.timestamp()[1],
        headers=record.headers(),
    )
    assert producer.flush(60) == 0


def remove_up_to(pipeline: Pipeline, record: Message) -> None:
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap_servers})
    topic, partition, offset = position_of(record)
    for future in admin.delete_records([TopicPartition(topic, partition, offset + 1)]).values():
        future.result(60)


def input_of(record: Message) -> str:
    receipt = Receipt.parse(headers_of(record)[HEADER_RECEIPT])
    assert receipt is not None
    return f"{receipt.topic}[{receipt.partition}]@{receipt.offset}"


def place_of(record: Message) -> str:
    return f"{record.topic()}[{record.partition()}]@{record.offset()}"


def test_an_application_that_remembers_is_judged_where_its_receipts_begin_but_for_its_commits(
    make_pipeline: Callable[..., Totals],
) -> None:
    """One of its outputs goes out at commits (`emit: commit`): which record gave it, none did."""
    pipeline = make_pipeline(Totals, partitions=1)
    totals, latest = f"{pipeline.name}.totals", f"{pipeline.name}.latest"

    def process(*settings: str) -> None:
        pipeline.feed(300)
        wanted = [*pipeline.keeping, *settings]
        worker = pipeline.start_worker(instance="one", settings=wanted, until_caught_up=True)
        assert worker.wait() == 0, worker.log[-3000:]

    process()
    with pytest.raises(StartRefused, match=r"@\d+ to @\d+ have no receipts in the committed"):
        audit(pipeline)
    before = len(pipeline.read(latest))
    process(*RECEIPTS)
    verdict = audit(pipeline)
    assert verdict.clean, verdict
    assert verdict.input == 300 + 2 * 300
    assert verdict.share == pytest.approx(0.5, abs=0.2)  # offsets count, those of markers too
    assert 0 < before < verdict.not_judged == len(pipeline.read(latest))
    notes = "\n".join(verdict.notes)
    assert f"{pipeline.name}.in[0]@0 to @299: not judged; processed without receipts" in notes
    assert f"topic {latest}: {verdict.not_judged} outputs without a receipt are not judged" in notes

    copied = [one for one in pipeline.read(totals) if HEADER_RECEIPT in headers_of(one)][-1]
    copy(pipeline, copied)
    copy(pipeline, pipeline.read(latest)[-1])
    damaged = audit(pipeline)
    assert (damaged.duplicated, damaged.lost, damaged.torn) == (1, 0, 0)
    assert [detail.input for detail in damaged.details] == [input_of(copied)]
    assert damaged.not_judged == verdict.not_judged + 1


def test_what_cannot_be_audited_is_refused_with_a_message_that_helps(
    make_pipeline: Callable[..., Pipeline], tmp_path: Path
) -> None:
    pipeline = make_pipeline()
    topology = str(pipeline.topology_file)
    command = Folder(tmp_path, pipeline.bootstrap_servers)
    for arguments, expected in (
        (["missing.yaml"], "missing.yaml"),
        ([topology], "has no committed position"),
        ([topology, "--from", "2026-01-02", "--to", "2026-01-01"], "is after --to 2026-01-01"),
        (
            [
                topology,
                "--set",
                "kafka.bootstrap_servers=127.0.0.1:1",
                "--set",
                "kafka.request_timeout_seconds=1",
            ],
            "no broker at 127.0.0.1:1 answered within 1 s",
        ),
    ):
        done = command.run("audit", *arguments)
        assert done.exit_code == 2, (arguments, done)
        assert expected in done.error, (arguments, done.error)
