"""Staging of sources without a repeatable order, such as JDBC, as Parquet files.

A query may return its rows in another order, or other rows, each time. A retried attempt must read
the rows that were processed before, so such a source is copied to Parquet, where every row has a
number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eosframework.backfill.job.job_entry import PinnedFile
from eosframework.backfill.spark.jvm import file_system_of, hadoop_path
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


def _refuse_leftovers(system: Any, place: Any, directory: str) -> None:
    if system.exists(place) and len(system.listStatus(place)) > 0:
        raise ConfigurationError(
            f"directory {directory} is not empty, and its content is incomplete ({_COMPLETE} "
            f"is missing): an earlier attempt was interrupted, or the files are unrelated. "
            f"Remove it,  or name another directory"
        )
