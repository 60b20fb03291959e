"""The stage of a batch: its rows, computed once and stored durably before any shard commits.

The rows are staged as the plan gives them, and sharded when they are read. Sharding them first
would make the stage itself unrepeatable: when an executor is lost while it is written, Spark
computes the lost rows again, and a row whose key is not the same would come to another shard, which
may be written already.

A stage is one directory of Parquet under a name of its own. It counts from the moment at which the
sink's entry names it, so nothing has to be renamed, which object stores cannot do atomically.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from eosframework.backfill.spark.jvm import file_system_of, hadoop_path
from eosframework.errors import StartRefused

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_COMPLETE = "_SUCCESS"
"""Written last by Spark."""


def write_stage(
    frame: DataFrame, columns: Mapping[str, Column], parent: str
) -> tuple[str, StructType]:
    """Write rows, one column for each sink, and return their directory and schema.

    Args:
        frame: the user's rows.
        columns: by label of the sink.
        parent: directory on a file system that every executor can read.
    """
    directory = f"{parent.rstrip('/')}/{uuid.uuid4().hex}"
    rows = frame.select(*[column.alias(label) for label, column in columns.items()])
    rows.write.option("maxRecordsPerFile", 0).parquet(directory)
    return directory, rows.schema


def read_stage(
    spark: SparkSession, directory: str, label: str, schema: StructType | None = None
) -> DataFrame:
    """Return the rows of one sink.

    Args:
        spark: a session.
        directory: of the stage.
        label: of the sink.
        schema: of the stage; None: it is read from the files.

    Raises:
        StartRefused: the directory is missing or incomplete, or has no rows of this sink.
    """
    place = hadoop_path(spark, f"{directory}/{_COMPLETE}")
    if not file_system_of(spark, place).exists(place):
        raise StartRefused(
            f"sink {label!r}: the stage {directory} of its incomplete batch is missing; rows of "
            f"the batch may be committed, and computed again they could be others. Restore the "
            f"directory, which is part of the checkpoint; or give the rest of the batch up: begin "
            f"with a new checkpoint and another sink name"
        )
    reader = spark.read if schema is None else spark.read.schema(schema)
    rows = reader.parquet(directory)
    if label not in rows.columns:
        raise StartRefused(
            f"sink {label!r}: the stage {directory} was written for {', '.join(rows.columns)}. "
            f"Start the query once with the sinks that it had, then change them"
        )
    return rows.select(f"`{label}`.*")


def size_of(spark: SparkSession, directory: str) -> int:
    """Return the size of a stage's files in bytes."""
    place = hadoop_path(spark, directory)
    return int(file_system_of(spark, place).getContentSummary(place).getLength())


def remove_stage(spark: SparkSession, directory: str) -> None:
    """Remove a stage; one that is gone already is no error."""
    place = hadoop_path(spark, directory)
    file_system_of(spark, place).delete(place, True)


def remove_leftovers(spark: SparkSession, parent: str) -> None:
    """Remove stages that no sink's entry names: their driver ended before it could."""
    place = hadoop_path(spark, parent)
    file_system_of(spark, place).delete(place, True)
