"""Memory of an open transaction: its state changes, and the outputs of a run."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from eosframework.engine.codegen.compiler import RUN_BYTES, RUN_RECORDS, compile_part
from eosframework.engine.failures.failure_handler import FailureHandler
from eosframework.engine.task.open_state import ChangesBudget
from eosframework.engine.task.run_slices import RUN_OUTPUTS, RecordRun
from eosframework.topology.dsl.builder import Topology
from eosframework.topology.resolve.resolve import resolve
from tests.unit.engine.messages import Sent
from tests.unit.engine.operators.windows.bench import INPUT, Bench

VALUE_BYTES = 10_000
BUDGET_BYTES = 1_000_000
A_RUN_BYTES = RUN_RECORDS * (VALUE_BYTES + 500)


def padded(aggregate: Any, value: Any) -> Any:
    return {"n": value["n"], "padding": "x" * VALUE_BYTES}


@pytest.mark.parametrize("keys", [1, 1000])
def test_a_transaction_whose_changes_are_large_is_committed_early(keys: int) -> None:
    bench = Bench(lambda keyed: keyed.reduce(padded), budget=ChangesBudget(BUDGET_BYTES))
    bench.send(*((f"k{n % keys}", {"n": n, "p": "y" * VALUE_BYTES}, n) for n in range(1000)))
    records: list[int] = []
    while bench.task.positions[INPUT] < 1000:
        bench.run()
        assert bench.state.changed_bytes < BUDGET_BYTES + A_RUN_BYTES
        records.append(bench.task.records_in_transaction)
        bench.commit()
        assert bench.state.changed_bytes == 0
    # A hot key replaces its value: only what is there in the end counts.
    assert len(records) == 1 if keys == 1 else len(records) >= 3
    assert sum(records) == 1000
    given = [orjson.loads(o[1] or b"")["n"] for o in bench.output.committed if o[0] == "out"]
    assert given == list(range(1000))


def test_what_other_tasks_changed_counts_until_they_commit() -> None:
    budget = ChangesBudget(BUDGET_BYTES)
    first, second = (Bench(lambda keyed: keyed.reduce(padded), budget=budget) for _ in range(2))
    for bench in (first, second):
        bench.send(*((f"k{n}", {"n": n, "p": "y" * VALUE_BYTES}, n) for n in range(90)))
    first.run()
    assert not first.task.wants_commit
    second.run()
    assert second.task.wants_commit
    first.commit()
    second.commit()
    second.send(*((f"l{n}", {"n": n}, n) for n in range(30)))
    second.run()
    assert not second.task.wants_commit


def many(value: Any) -> list[Any]:
    return [value] * 100


def test_a_run_ends_once_its_records_have_given_much() -> None:
    app = Topology("app")
    app.stream("in", key=bytes, value="json").flat_map_values(many).to("out", value="json")
    [part] = resolve(app.loaded()).sub_topologies
    run = compile_part(part).sources["in"].run
    out = list[Any]()
    messages = RecordRun([Sent(b"1", n) for n in range(RUN_RECORDS)], out, 1.0, lambda: 0.0)
    run(messages, out, 0, FailureHandler())
    assert RUN_OUTPUTS < len(out) <= RUN_OUTPUTS + 100
    assert messages.done == len(out) // 100


def test_runs_of_large_records_are_short() -> None:
    app = Topology("app")
    app.stream("in", key=bytes, value="json").to("out", value="json")
    [part] = resolve(app.loaded()).sub_topologies
    source = compile_part(part).sources["in"]
    messages = [Sent(b"1", n) for n in range(100)]
    large = [len(run) for run in source.in_runs(messages, 100 * (RUN_BYTES // 4))]
    assert large == [4] * 25
    assert [len(run) for run in source.in_runs(messages, 1000 * RUN_BYTES)] == [1] * 100
    assert [len(run) for run in source.in_runs(messages, RUN_BYTES)] == [100]
