"""Batch operators give the same results as the same steps for single records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eosframework import Topology, dead_letter
from eosframework.engine.codegen.compile_context import CompileContext
from eosframework.engine.codegen.compiler import compile_part
from eosframework.engine.failures.failure_handler import FailureHandler
from eosframework.errors import RecordFailed, RunError
from eosframework.topology.resolve.resolve import resolve
from eosframework.transactions.ports import Output
from tests.unit.engine.messages import Sent
from tests.unit.engine.operators.batch.functions import (
    SCHEMA,
    dear,
    double,
    doubled,
    first_only,
    is_dear,
    strict,
    total,
    totals,
)

pc: Any = pyarrow.compute  # its functions are made when it is imported

values = st.fixed_dictionaries(
    {},
    optional={
        "price": st.none() | st.floats(-100, 100) | st.integers(-100, 100),
        "count": st.none() | st.integers(-1000, 1000),
        "name": st.none() | st.text(),
        "more": st.integers(0, 9) | st.text(),
    },
)
messages = st.lists(st.none() | values.map(orjson.dumps), max_size=12)
sizes = st.sampled_from([None, 1, 2, 5])


def shop() -> tuple[Topology, Any]:
    app = Topology("shop")
    return app, app.stream("sold", key="string", value="json")


def run(app: Topology, sent: Sequence[bytes | None], rows: int | None = None) -> list[Any]:
    """Return topic, value, key, time and headers of each output."""
    (part,) = resolve(app.loaded()).sub_topologies
    (source,) = compile_part(part, CompileContext(batch_rows=rows)).sources.values()
    slice_ = [
        Sent(data, i, key_=b"k%d" % i, time=1000 + i, headers_=[("n", b"%d" % i)])
        for i, data in enumerate(sent)
    ]
    out: list[Output] = []
    assert source.run(slice_, out, 0, FailureHandler()) == (999 + len(sent) if sent else 0)
    return [(o[0], o[1], o[2], o[6], o[7]) for o in out]


def unless_gone(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else function(value)


@given(messages, sizes)
def test_outputs_are_those_of_the_row_path(sent: list[bytes | None], rows: int | None) -> None:
    app, sold = shop()
    totalled = sold.map_batch(totals, schema=SCHEMA).named("totalled")
    totalled.to("totals")
    totalled.map_batch(doubled).to("doubled")
    costly = sold.filter_batch(dear, schema=SCHEMA).named("costly")
    costly.to("costly")
    costly.map_batch(totals).to("costly.totals")
    expected_app, sold = shop()
    totalled = sold.map_values(unless_gone(total)).named("totalled")
    totalled.to("totals")
    totalled.map_values(unless_gone(double)).to("doubled")
    costly = sold.filter(lambda value: value is None or is_dear(value)).named("costly")
    costly.to("costly")
    costly.map_values(unless_gone(total)).to("costly.totals")
    assert run(app, sent, rows) == run(expected_app, sent)


@given(messages, sizes)
def test_steps_behind_see_the_new_values(sent: list[bytes | None], rows: int | None) -> None:
    app, sold = shop()
    kept = sold.map_batch(totals, schema=SCHEMA).filter(lambda v: v is None or v["name"])
    kept.select_key(lambda r: f"{r.key}{r.value and r.value['name']}").to("named")
    expected = []
    for i, data in enumerate(sent):
        value = None if data is None else total(orjson.loads(data))
        if value is None or value["name"]:
            key = f"k{i}{value and value['name']}".encode()
            text = None if value is None else orjson.dumps(value)
            expected.append(("named", text, key, 1000 + i, [("n", b"%d" % i)]))
    assert run(app, sent, rows) == expected


@pytest.mark.parametrize("rows", [None, 1, 3])
def test_a_record_that_fails_goes_its_way_and_no_other_does(rows: int | None) -> None:
    app, sold = shop()
    stream = sold.map_batch(strict, schema=SCHEMA).map_values(lambda v: {"price": 1 / v["price"]})
    stream.on_error(dead_letter("dead")).to("out")
    good = b'{"price":2,"count":1}'
    bad = [b"no json", b'{"price":1,"count":13}', b'{"price":0,"count":1}', b'{"price":"x"}']
    sent = [good, bad[0], bad[1], good, bad[2], bad[3], good]
    found = run(app, sent, rows)
    assert [o[0] for o in found] == ["out", "dead", "dead", "out", "dead", "dead", "out"]
    assert [o[1] for o in found if o[0] == "dead"] == bad
    steps = [dict(o[4])["__eos.errors.step"].decode() for o in found if o[0] == "dead"]
    assert ["read columns" in steps[0], "strict" in steps[1]] == [True, True]
    assert ["<lambda>" in steps[2], "read columns" in steps[3]] == [True, True]
    errors = [dict(o[4])["__streams.errors.exception"].decode() for o in found if o[0] == "dead"]
    assert errors[1] == "ValueError: thirteen is not served"


def test_records_before_the_one_that_fails_are_complete() -> None:
    app, sold = shop()
    sold.map_batch(strict, schema=SCHEMA).to("out")
    (part,) = resolve(app.loaded()).sub_topologies
    (source,) = compile_part(part).sources.values()
    out: list[Output] = []
    sent = [Sent(b'{"count":%d}' % n, n) for n in (11, 12, 13, 14)]
    with pytest.raises(RecordFailed, match=r"@13 failed in step .*strict.* thirteen") as failure:
        source.run(sent, out, 0, FailureHandler())
    assert failure.value.offset == 13
    assert [orjson.loads(o[1] or b"")["count"] for o in out] == [11, 12]


def no_batch(batch: Any) -> Any:
    return {"count": [1]}


def no_mask(batch: Any) -> Any:
    return batch["count"]


def own_key(batch: Any) -> Any:
    return pa.record_batch({"_key": pc.binary_join_element_wise(batch["_key"], "x", "")})


@pytest.mark.parametrize(
    ("operator", "function", "message"),
    [
        ("map_batch", first_only, "returned 1 rows for a batch of 3; expected one for each row"),
        ("map_batch", no_batch, "returned dict; expected a pyarrow.RecordBatch"),
        ("filter_batch", no_mask, "returned an array of int64; expected a pyarrow array of bool"),
        ("map_batch", own_key, "changed column _key; records keep their key"),
    ],
)
def test_a_broken_promise_ends_the_worker_whatever_on_error_says(
    operator: str, function: Any, message: str
) -> None:
    app, sold = shop()
    batches = getattr(sold, operator)(function, schema={**SCHEMA, "_key": str})
    batches.on_error("skip").to("out")
    with pytest.raises(RunError, match=message):
        run(app, [b"{}", b"{}", b"{}"])


def test_columns_are_read_once_for_all_that_want_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from eosframework.engine.operators.arrow_conversion import Reader

    count = 0
    read = Reader.read

    def counted(self: Reader, *slice_: Any) -> Any:
        nonlocal count
        count += 1
        return read(self, *slice_)

    monkeypatch.setattr(Reader, "read", counted)
    app, sold = shop()
    sold.map_batch(totals, schema=SCHEMA).to("a")
    sold.filter_batch(dear, schema=SCHEMA).to("b")
    sold.filter_batch(dear, schema={"price": float}).to("c")
    assert len(run(app, [b'{"price":11,"count":1,"name":"x"}'] * 4)) == 12
    assert count == 2


def test_event_time_comes_from_the_value_where_the_source_says_so() -> None:
    app = Topology("shop")
    sold = app.stream("sold", value="json", timestamp=lambda value: value["at"])
    sold.map_batch(lambda batch: batch, schema={"at": "int64", "_timestamp": "int64"}).to("out")
    (part,) = resolve(app.loaded()).sub_topologies
    (source,) = compile_part(part).sources.values()
    out: list[Output] = []
    assert source.run([Sent(b'{"at":5}'), Sent(b'{"at":7}')], out, 0, FailureHandler()) == 7
    assert [(o[1], o[6]) for o in out] == [(b'{"at":5}', 5), (b'{"at":7}', 7)]


@settings(max_examples=25)
@given(st.lists(st.integers(8, 17), max_size=20), sizes)
def test_receipts_number_what_each_record_gave(counts: list[int], rows: int | None) -> None:
    from eosframework.engine.task.receipts import ReceiptedOutputs
    from eosframework.records import Position, TopicPartition

    app, sold = shop()
    sold.map_batch(strict, schema=SCHEMA).on_error("skip").to("out")
    (part,) = resolve(app.loaded()).sub_topologies
    context = CompileContext(receipts=True, batch_rows=rows)
    (source,) = compile_part(part, context).sources.values()
    out = ReceiptedOutputs("shop")
    partition = TopicPartition("in", 3)
    out.restart([Position("in", 3, 0, "")])
    out.begin(partition, 1)
    sent = [Sent(b'{"count":%d}' % n, i) for i, n in enumerate(counts)]
    source.run(sent, out, 0, FailureHandler())
    assert len(out) == sum(count != 13 for count in counts)
    assert all(o[7][-1][0] == "__eos.receipt" for o in out)
