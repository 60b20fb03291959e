"""Staging of sources without a repeatable order, such as JDBC, as Parquet files.

A query may return its rows in another order, or other rows, each time. A retried attempt must read
the rows that were processed before, so such a source is copied to Parquet, where every row has a
number.

Lists of files that replace a topic: fixed when a job starts, checked at each read.
They may be on any Hadoop file system. A file of another size or time is another file, which may
lack rows that were processed, so it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eosframework.backfill.job.job_entry import PinnedFile
from eosframework.backfill.spark.spark_session import file_system_of, hadoop_path, reason_of
from eosframework.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HIDDEN = ("_", ".")
"""Prefixes of the auxiliary files of Spark and Hadoop."""


def listed(spark: SparkSession, paths: Sequence[str]) -> tuple[PinnedFile, ...]:
    """Return the files at the given paths, sorted; each path is a file, a directory or a pattern.

    Raises:
        ConfigurationError: a path has no file, or cannot be listed.
    """
    found: dict[str, PinnedFile] = {}
    for path in paths:
        of_path = {file.path: file for file in _files(spark, path)}
        if not of_path:
            raise ConfigurationError(
                f"there is no file at {path!r}; expected a file, a folder with files, or a pattern "
                f"such as history/2024-*.csv"
            )
        found |= of_path
    return tuple(found[path] for path in sorted(found))


def check_pinned(spark: SparkSession, files: Sequence[PinnedFile]) -> None:
    """Check that files are unchanged.

    Raises:
        ConfigurationError: names the first changed or missing file.
    """
    folders = sorted({file.path.rpartition("/")[0] for file in files})
    now = {file.path: file for folder in folders for file in _in_folder(spark, folder)}
    for file in files:
        if (found := now.get(file.path)) == file:
            continue
        what = "is gone" if found is None else f"has changed: {_difference(file, found)}"
        raise ConfigurationError(
            f"file {file.path}, which the job reads, {what} since the job started. Restore it; "
            f"if that is impossible, start another job, into another application or with "
            f"--suffix"
        )


def _difference(before: PinnedFile, now: PinnedFile) -> str:
    if before.size_bytes != now.size_bytes:
        return f"it had {before.size_bytes} bytes and has {now.size_bytes}"
    return f"it was written at {before.modified_at} and now at {now.modified_at} (in milliseconds)"


def _files(spark: SparkSession, path: str) -> list[PinnedFile]:
    """Return the files of a path, including those in nested directories."""
    from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]

    try:
        place = hadoop_path(spark, path)
        system = file_system_of(spark, place)
        return list(_below(system, system.globStatus(place) or ()))
    except Py4JError as error:
        raise ConfigurationError(
            f"files at {path!r} cannot be listed: {reason_of(error)}; correct the path, or add "
            f"Spark's connector for that file system"
        ) from error


def _below(system: Any, listed: Iterable[Any]) -> Iterator[PinnedFile]:
    for status in listed:
        if status.isFile():
            yield _pinned(status)
            continue
        inside = system.listStatus(status.getPath())
        yield from _below(system, [s for s in inside if not _is_hidden(s)])


def _is_hidden(status: Any) -> bool:
    return status.getPath().getName().startswith(_HIDDEN)


def _in_folder(spark: SparkSession, folder: str) -> list[PinnedFile]:
    """Return the files directly in a directory; none if it is missing."""
    from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]

    try:
        place = hadoop_path(spark, folder)
        system = file_system_of(spark, place)
        if not system.exists(place):
            return []
        return [_pinned(status) for status in system.listStatus(place) if status.isFile()]
    except Py4JError as error:
        raise ConfigurationError(
            f"folder {folder} of files that the job reads cannot be listed: {reason_of(error)}"
        ) from error


def _pinned(status: Any) -> PinnedFile:
    return PinnedFile(
        path=status.getPath().toString(),
        size_bytes=status.getLen(),
        modified_at=status.getModificationTime(),
    )


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
