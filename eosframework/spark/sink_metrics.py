"""Figures of a sink's batches, as gauges of Spark's own metrics system on the driver.

Spark exposes them where it exposes its own: at the UI's port for Prometheus, through JMX, or to any
other sink that `spark.metrics.conf` names. They are accumulators of the driver, so no port of ours
is opened and no figure passes through executors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eosframework.backfill.spark.jvm import jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GAUGES = ("batches", "rows", "stage_milliseconds", "write_milliseconds", "complete_at_seconds")
"""All but the last one are sums since the start of the driver."""


@dataclass(frozen=True, slots=True)
class SinkProgress:
    """The figures of one batch that a sink has completed.

    Args:
        sink: `kafka_` or `table_`, and the name of the sink.
        query: id of the streaming query.
        batch: number of the batch within the query.
        rows: number of rows, with those that an earlier driver wrote.
        stage_seconds: time to compute and store the batch; 0 if another sink or driver did.
        write_seconds: time to write it.
        complete_at: seconds since the epoch.
    """

    sink: str
    query: str
    batch: int
    rows: int
    stage_seconds: float
    write_seconds: float
    complete_at: float


class SinkGauges:
    """The gauges of one sink.

    Args:
        spark: a session of the driver.
        application: owner of the sink.
        sink: `kafka_` or `table_`, and the name of the sink.
    """

    def __init__(self, spark: SparkSession, application: str, sink: str) -> None:
        jvm: Any = jvm_of(spark)
        context: Any = spark.sparkContext
        named, self._gauges = jvm.java.util.HashMap(), dict[str, Any]()
        for gauge in GAUGES:
            name = f"eosframework.{application}.{sink}.{gauge}"
            self._gauges[gauge] = jvm.org.apache.spark.util.LongAccumulator()
            context._jsc.sc().register(self._gauges[gauge], name)  # noqa: SLF001
            named.put(name, self._gauges[gauge])
        # Not through SparkEnv: py4j loads all classes of its methods, one of which Spark 4.3 lacks.
        source = getattr(jvm.org.apache.spark.metrics.source, "LongAccumulatorSource$")
        scala_map = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(named)
        getattr(source, "MODULE$").register(context._jsc.sc(), scala_map)  # noqa: SLF001

    def add(self, progress: SinkProgress) -> None:
        """Add a batch."""
        self._gauges["batches"].add(1)
        self._gauges["rows"].add(progress.rows)
        self._gauges["stage_milliseconds"].add(round(progress.stage_seconds * 1000))
        self._gauges["write_milliseconds"].add(round(progress.write_seconds * 1000))
        self._gauges["complete_at_seconds"].reset()
        self._gauges["complete_at_seconds"].add(round(progress.complete_at))


_REGISTERED: dict[tuple[str, str, str], SinkGauges] = {}


def gauges_of(spark: SparkSession, application: str, sink: str) -> SinkGauges:
    """Return the gauges of a sink in this driver.

    Spark keeps the first gauge of a name, so a query that is started again, with another sink
    object of the same name, must continue with the same ones.
    """
    key = str(spark.sparkContext.applicationId), application, sink
    if key not in _REGISTERED:
        _REGISTERED[key] = SinkGauges(spark, application, sink)
    return _REGISTERED[key]
