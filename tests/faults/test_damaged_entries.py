"""Entries of changelogs and global tables that cannot be decoded are blamed on no record."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.applications.feeding import write_record
from tests.support.applications.pipeline import Pipeline, WorkerProcess
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
      - group_by: {by: "tests.support.applications.functions:thousands", key: string}
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
    on_error: {dead_letter: NAME.dead}
    steps:
      - join: {with: rates, by: "operator:or_"}
    to: [{topic: NAME.joined, value: json}]
"""
KEY = b"500"

MakePipeline = Callable[..., Pipeline]


def start(pipeline: Pipeline) -> WorkerProcess:
    return pipeline.start_worker(
        until_caught_up=True, settings=[f"state.directory={pipeline.directory}/state"]
    )


def finish(pipeline: Pipeline) -> None:
    healthy = start(pipeline)
    assert healthy.wait() == 0, healthy.log[-3000:]


def refused(pipeline: Pipeline, *texts: str) -> None:
    """Start a worker that ends, and look for its words."""
    victim = start(pipeline)
    assert victim.wait() == 1, victim.log[-3000:]
    assert "Traceback" not in victim.log
    assert not [text for text in texts if text not in victim.log], victim.log[-3000:]
    assert pipeline.read(f"{pipeline.name}.dead") == []


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "lost",
    [pytest.param(False, marks=pytest.mark.exhaustive), True],
    ids=["with the store", "restored"],
)
def test_an_entry_of_a_changelog_that_cannot_be_read_is_named_and_no_record_becomes_a_dead_letter(
    make_pipeline: MakePipeline, lost: bool
) -> None:
    pipeline = make_pipeline(topology=COUNTED, outputs={"counted": 1}, partitions=1)
    pipeline.apply()
    pipeline.feed(2500)
    finish(pipeline)
    changelog = f"{pipeline.name}-counts-changelog"
    offset = write_record(
        pipeline.bootstrap_servers, changelog, KEY, b"\x01" + bytes(8) + b"no number"
    )
    if lost:
        shutil.rmtree(pipeline.directory / "state")
    pipeline.feed(10)
    refused(
        pipeline,
        f"store 'counts': an entry of {changelog}[0] cannot be read",
        f"The entry is {changelog}[0]@{offset}",
        repr(KEY),
        "produce the right entry, or one without a value",
    )
    write_record(pipeline.bootstrap_servers, changelog, KEY, None)
    finish(pipeline)
    counts = [m.value() for m in pipeline.read(f"{pipeline.name}.counted") if m.key() == KEY]
    assert counts == [b"1", b"2", b"1"]


def test_a_row_of_a_global_table_that_cannot_be_read_is_named_and_no_record_becomes_a_dead_letter(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(topology=LOOKED_UP, outputs={"joined": 1}, partitions=1)
    rates = f"{pipeline.name}.rates"
    create_topics(
        AdminClient({"bootstrap.servers": pipeline.bootstrap_servers}), [NewTopic(rates, 1, 1)]
    )
    write_record(pipeline.bootstrap_servers, rates, b"1", b"{}")
    offset = write_record(pipeline.bootstrap_servers, rates, b"3", b"{")
    pipeline.apply()
    pipeline.feed(5)
    refused(
        pipeline,
        f"global table of topic '{rates}': an entry cannot be read: DecodeError",
        f"The entry is {rates}[0]@{offset} (key b'3')",
        "Declare the types that the topic has, or produce the right row",
    )
    write_record(pipeline.bootstrap_servers, rates, b"3", b"{}")
    finish(pipeline)
    assert len(pipeline.read(f"{pipeline.name}.joined")) == 2
