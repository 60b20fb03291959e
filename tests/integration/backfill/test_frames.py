"""A topology's operators on a DataFrame: what they give is what the worker would send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.compute
import pytest

from eosframework import Topology
from eosframework.errors import ConfigurationError
from eosframework.spark.backfill import outputs_of

pc: Any = pyarrow.compute  # its functions are made when it is imported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_odd(value: dict[str, int]) -> bool:
    return value["n"] % 2 == 1


def tenfold(value: dict[str, int]) -> dict[str, int]:
    if value["n"] == 13:
        raise ValueError("unlucky")
    return {"n": value["n"] * 10}


def halves(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"half": pc.divide(pc.cast(batch["n"], pa.float64()), 2.0)})


def numbers() -> Topology:
    app = Topology("numbers")
    stream = app.stream("numbers.in", key=str, value=dict).filter(is_odd).map_values(tenfold)
    stream.on_error("skip").to("numbers.out")
    return app


def test_rows_go_through_the_operators_of_the_worker(spark: SparkSession) -> None:
    rows = [(str(n), orjson.dumps({"n": n}), 1000 + n) for n in range(40)]
    frame = spark.createDataFrame(
        [(k.encode(), v, t) for k, v, t in rows], "key binary, value binary, timestamp bigint"
    )
    found = outputs_of(numbers(), frame).collect()
    expected = {
        (f"{n}".encode(), orjson.dumps({"n": n * 10}), 1000 + n) for n in range(1, 40, 2) if n != 13
    }
    assert {(bytes(r.key), bytes(r.value), r.timestamp) for r in found} == expected
    assert {r.topic for r in found} == {"numbers.out"}


def test_batch_operators_take_the_rows_at_once(spark: SparkSession) -> None:
    app = Topology("numbers")
    stream = app.stream("numbers.in", value=dict)
    stream.map_batch(halves, schema={"n": "int64"}).on_error("skip").to("numbers.out")
    values = [orjson.dumps({"n": n} if n % 7 else {"n": "none"}) for n in range(40)]
    frame = spark.createDataFrame([(value,) for value in values], "value binary")
    found = outputs_of(app, frame).collect()
    expected = {orjson.dumps({"half": n / 2}) for n in range(40) if n % 7}
    assert {bytes(row.value) for row in found} == expected


def test_what_needs_an_order_is_refused_by_name(spark: SparkSession) -> None:
    app = Topology("numbers")
    app.stream("numbers.in", key=str, value=dict).group_by_key().count(store="seen").to("out")
    frame = spark.createDataFrame([(b"1",)], "value binary")
    with pytest.raises(ConfigurationError, match="remembers records"):
        outputs_of(app, frame)


def test_rows_that_are_not_bytes_are_refused(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("1",)], "value string")
    with pytest.raises(ConfigurationError, match="expected bytes"):
        outputs_of(numbers(), frame)
