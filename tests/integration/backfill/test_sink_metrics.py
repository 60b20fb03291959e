"""The figures of a sink's batches, as listeners of the query and Prometheus see them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from eosframework.spark import SinkProgress
from tests.support.applications.pipeline import wait_until
from tests.support.applications.spark_sinks import SinkWorld

pytest.importorskip("pyspark")
from pyspark.sql.streaming.listener import StreamingQueryListener


def exposed(world: SinkWorld) -> dict[str, float]:
    """What Spark's own servlet for Prometheus shows of the gauges of accumulators."""
    context: Any = world.spark.sparkContext
    jvm = context._jvm
    # By reflection: py4j cannot call methods of Spark 4.3's SparkEnv.
    environment = jvm.java.lang.Class.forName("org.apache.spark.SparkEnv")
    field = environment.getDeclaredField("metricsSystem")
    field.setAccessible(True)
    sources = field.get(context._jsc.sc().env()).getSourcesByName("AccumulatorSource")
    text = ""
    for index in range(sources.size()):
        registry = sources.apply(index).metricRegistry()
        servlet = jvm.org.apache.spark.metrics.sink.PrometheusServlet(
            jvm.java.util.Properties(), registry
        )
        text += servlet.getMetricsSnapshot(None)
    prefix = re.escape(f"eosframework_{world.name}_".replace("-", "_").replace(".", "_"))
    found = re.findall(prefix + r'(\w+)_Value\{type="gauges"\} (\S+)', text)
    return {name: float(value) for name, value in found}


@pytest.mark.exhaustive
def test_listeners_and_prometheus_have_the_figures_of_each_batch(world: SinkWorld) -> None:
    sink = world.sink(shards=2)
    seen: list[tuple[int, int, tuple[SinkProgress, ...]]] = []

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None: ...
        def onQueryTerminated(self, event: Any) -> None: ...
        def onQueryProgress(self, event: Any) -> None:
            seen.append((event.progress.batchId, event.progress.numInputRows, sink.progress))

    listener = Listener()
    world.spark.streams.addListener(listener)
    try:
        world.feed(0, 500)
        world.feed(500, 800)
        world.run(sink)
        wait_until(lambda: len(seen) >= 2, "the events of two batches", 60)
    finally:
        world.spark.streams.removeListener(listener)
    assert [(batch, rows) for batch, rows, _ in seen[:2]] == [(0, 500), (1, 300)]
    [last] = seen[1][2]
    assert (last.sink, last.batch, last.rows) == ("kafka_out", 1, 300)
    assert last.stage_seconds > 0
    assert last.write_seconds > 0
    world.feed(800, 900)
    again = world.sink(shards=2)
    world.run(again)
    [last] = again.progress
    found = exposed(world)
    assert found["kafka_out_batches"] == 3
    assert found["kafka_out_rows"] == 900, "of both sink objects"
    assert found["kafka_out_stage_milliseconds"] > 0
    assert found["kafka_out_complete_at_seconds"] == pytest.approx(last.complete_at, abs=1)
