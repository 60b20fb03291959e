"""A store that is damaged is no record's fault, whatever `on_error` says."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.applications.pipeline import Pipeline, WorkerProcess

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  counted:
    from: numbers
    on_error: ON_ERROR
    steps:
      - group_by: {by: "tests.support.applications.functions:thousands", key: string}
      - count: {}
    to: [{topic: NAME.counted, value: json}]
"""
RECORDS = 3000

MakePipeline = Callable[..., Pipeline]


@pytest.fixture
def make_counted(make_pipeline: MakePipeline) -> Callable[[str], Pipeline]:
    def make(on_error: str) -> Pipeline:
        topology = TOPOLOGY.replace("ON_ERROR", on_error)
        pipeline = make_pipeline(topology=topology, outputs={"counted": 1}, partitions=1)
        pipeline.apply()
        return pipeline

    return make


def start(pipeline: Pipeline) -> WorkerProcess:
    return pipeline.start_worker(
        until_caught_up=True, settings=[f"state.directory={pipeline.directory}/state"]
    )


def damage(pipeline: Pipeline) -> None:
    """Change a byte of the first block of the largest file; opening stores does not read that."""
    files = (pipeline.directory / "state").rglob("*.sst")
    file = max(files, key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[20] ^= 0x10
    file.write_bytes(content)


def wrong_counts(pipeline: Pipeline) -> list[str]:
    """Each key's counts have to rise by one; a record that was left out, or in twice, shows."""
    counts: dict[bytes, list[int]] = defaultdict(list)
    for message in pipeline.read(f"{pipeline.name}.counted"):
        counts[message.key() or b""].append(int(message.value() or b"0"))
    each = list(range(1, pipeline.fed // 1000 + 1))
    return [f"{key!r}: {found}" for key, found in counts.items() if found != each]


@pytest.mark.parametrize(
    "on_error", ["{dead_letter: NAME.dead}", pytest.param("skip", marks=pytest.mark.exhaustive)]
)
def test_a_store_that_is_damaged_ends_the_worker_and_no_record_is_left_out(
    make_counted: Callable[[str], Pipeline], on_error: str
) -> None:
    pipeline = make_counted(on_error)
    pipeline.feed(RECORDS)
    healthy = start(pipeline)
    assert healthy.wait() == 0, healthy.log[-3000:]
    damage(pipeline)
    pipeline.feed(RECORDS)
    victim = start(pipeline)
    assert victim.wait() == 1, victim.log[-3000:]
    assert "Remove that directory" in victim.log, victim.log[-3000:]
    assert "Traceback" not in victim.log
    shutil.rmtree(Path(pipeline.directory) / "state")
    healed = start(pipeline)
    assert healed.wait() == 0, healed.log[-3000:]
    assert wrong_counts(pipeline) == []
    assert pipeline.read(f"{pipeline.name}.dead") == []
