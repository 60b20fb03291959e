"""A backfill's attempts run batch operators as workers do."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute

from eosframework import Topology, dead_letter
from eosframework.errors import DataRejected, OutcomeUnknown
from tests.unit.spark.backfill.attempts import PART, World

pc: Any = pyarrow.compute  # its functions are made when it is imported


def unlucky(batch: pa.RecordBatch) -> pa.RecordBatch:
    if pc.any(pc.equal(batch["n"], 47)).as_py():
        raise ValueError("not 47")
    return batch


def topology() -> Topology:
    app = Topology("app")
    numbers = app.stream("in", key=bytes, value=dict, name=PART).on_error(dead_letter("dead"))
    kept = numbers.filter_batch(lambda b: pc.less(b["n"], 90), schema={"n": int})
    kept.map_batch(unlucky).to("out")
    return app


def test_an_attempt_gives_what_a_worker_would_and_once() -> None:
    world = World(topology())
    faults: list[Any] = [(None, True), (OutcomeUnknown("x"), False), (OutcomeUnknown("x"), True)]
    world.broker.commit_faults = faults
    world.broker.produce_fault = lambda output: (
        DataRejected("too large") if output[:2] == ("out", b'{"n":13}') else None
    )
    done = world.run()
    assert world.numbers() == [n for n in range(90) if n not in (13, 47)]
    assert sorted(world.numbers("dead")) == [13, 47]
    assert (done.complete, done.records, done.dead_letters) == (True, 100, 2)
