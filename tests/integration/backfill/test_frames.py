"""A topology's operators on a DataFrame: what they give is what the worker would send."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest

from eosframework import Topology
from eosframework.backfill import outputs_of
from eosframework.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_odd(value: dict[str, int]) -> bool:
    return value["n"] % 2 == 1


def tenfold(value: dict[str, int]) -> dict[str, int]:
    if value["n"] == 13:
        raise ValueError("unlucky")
    return {"n": value["n"] * 10}


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
