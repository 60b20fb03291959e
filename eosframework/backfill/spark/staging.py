"""Staging of sources without a repeatable order, such as JDBC, as Parquet files.

A query may return its rows in another order, or other rows, each time. A retried attempt must read
the rows that were processed before, so such a source is copied to Parquet, where every row has a
number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eosframework.backfill.job.job_entry import PinnedFile
from eosframework.backfill.spark.jvm import file_system_of, hadoop_path, reason_of
from eosframework.backfill.spark.pinned import listed
from eosframework.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COMPLETE = "_SUCCESS"
"""Written last by Spark."""


def stage(spark: SparkSession, frame: DataFrame, directory: str) -> tuple[PinnedFile, ...]:
    """Write a DataFrame to Parquet unless that is done already, and return the files.

    Args:
        spark: a session of the backfill.
        frame: rows in any order; not read if the directory is complete.
        directory: on a file system that every executor can read; it must have no other files.

    Raises:
        ConfigurationError: the directory has files of an incomplete or another write.
    """
    place = hadoop_path(spark, directory)
    system = file_system_of(spark, place)
    if not system.exists(place.suffix(f"/{_COMPLETE}")):
        _refuse_leftovers(system, place, directory)
        frame.write.mode("append").parquet(directory)
    return listed(spark, [directory])


def stage_source(
    spark: SparkSession, kind: str, options: Mapping[str, str], directory: str
) -> tuple[PinnedFile, ...]:
    """Stage the rows of a data source of Spark; see `stage`.

    Args:
        spark: a session.
        kind: name of the data source, such as jdbc.
        options: of the data source.
        directory: as for `stage`.

    Raises:
        ConfigurationError: the source cannot be read, or the directory not be written.
    """
    from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]
    from pyspark.errors import PySparkException

    try:
        return stage(spark, spark.read.format(kind).options(**options).load(), directory)
    except (PySparkException, Py4JError) as error:
        raise ConfigurationError(
            f"data source {kind!r} cannot be staged in {directory}: {reason_of(error)}. Correct "
            f"--option, or name a missing driver with --spark spark.jars.packages=…; remove the "
            f"directory if it exists, and try again"
        ) from error


def _refuse_leftovers(system: Any, place: Any, directory: str) -> None:
    if system.exists(place) and len(system.listStatus(place)) > 0:
        raise ConfigurationError(
            f"directory {directory} is not empty, and its content is incomplete ({_COMPLETE} "
            f"is missing): an earlier attempt was interrupted, or the files are unrelated. "
            f"Remove it, or name another directory"
        )
