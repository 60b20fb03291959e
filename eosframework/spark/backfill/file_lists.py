"""Lists of files that replace a topic: fixed when a job starts, checked at each read.

They may be on any Hadoop file system. A file of another size or time is another file, which may
lack rows that were processed, so it is refused.

Tables with snapshots (Delta, Iceberg): fixed by their version. A folder of one also has files that
are not in it any more, so it is not read as a list of files.

Staging of sources without a repeatable order, such as JDBC, as Parquet files.
A query may return its rows in another order, or other rows, each time. A retried attempt must read
the rows that were processed before, so such a source is copied to Parquet, where every row has a
number.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from eosframework.errors import ConfigurationError
from eosframework.records import whole_number
from eosframework.spark.job.job_entry import PinnedFile, PinnedTable
from eosframework.spark.session.spark_session import (
    class_exists,
    file_system_of,
    hadoop_path,
    reason_of,
)
from eosframework.spark.session.values import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HIDDEN = ("_", ".")
"""Prefixes of the auxiliary files of Spark and Hadoop."""

_STAGED = (
    "copy the rows that are in it once: eosframework backfill stage {} DIRECTORY --option path={}"
)
_MARKS = {
    "_delta_log": ("a Delta table", "read it with --source 'TOPIC=delta:{}'"),
    "metadata": (
        "an Iceberg table",
        "read it with --source 'TOPIC=iceberg:CATALOG.DATABASE.TABLE', or 'TOPIC=iceberg:{}' if it "
        "is in no catalog",
    ),
    ".hoodie": ("a Hudi table", _STAGED.format("hudi", "{}")),
    "_spark_metadata": ("the output of a streaming query", _STAGED.format("FORMAT", "{}")),
}
"""Folders that say which files of their parent count, with the parent's kind and the next step."""

_ICEBERG = ".metadata.json"
"""End of the names of an Iceberg table's versions, in its folder `metadata`."""


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
        found: Any = system.globStatus(place) or ()
        _refuse_tables_above(system, [status.getPath().getParent() for status in found])
        return list(_below(system, found))
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
        kept: list[Any] = []
        for inside in system.listStatus(status.getPath()):
            name = inside.getPath().getName()
            if name in _MARKS:
                _refuse_table(system, inside.getPath())
            if not name.startswith(_HIDDEN):
                kept.append(inside)
        yield from _below(system, kept)


def _refuse_tables_above(system: Any, folders: Iterable[Any]) -> None:
    """Raise if a folder, or one above it, is that of a table; directories NAME=VALUE are in one.

    Each folder is looked at once: a look is a request to the file system.
    """
    seen: set[str] = set()
    for folder in folders:
        place = folder
        while place is not None and place.toString() not in seen:
            seen.add(place.toString())
            if "=" not in place.getName():
                for name in _MARKS:
                    mark = place.suffix(f"/{name}")
                    if system.exists(mark):
                        _refuse_table(system, mark)
            place = place.getParent()


def _refuse_table(system: Any, mark: Any) -> None:
    """Raise if a folder says which files of its parent count.

    Raises:
        ConfigurationError: names the parent and the way to read it.
    """
    name = mark.getName()
    if name == "metadata" and not any(
        status.getPath().getName().endswith(_ICEBERG) for status in system.listStatus(mark)
    ):
        return
    kind, advice = _MARKS[name]
    folder = mark.getParent().toString()
    raise ConfigurationError(
        f"{folder} is {kind}: some of its files may not be in it any more, or not yet, and {name} "
        f"tells which; {advice.format(folder)}"
    )


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


def partition_base(
    spark: SparkSession, files: Sequence[PinnedFile], options: Mapping[str, str]
) -> str | None:
    """Return the directory below which directories NAME=VALUE are columns of files.

    Spark finds none by itself in a list of files.

    Args:
        spark: a session.
        files: at least one.
        options: of Spark; its `basePath` is used if it is given.

    Returns:
        None: no file is in such a directory.

    Raises:
        ConfigurationError: files have different columns, or below different directories; Spark
            would leave files out, or refuse them all.
    """
    given = next((value for name, value in options.items() if name.lower() == "basepath"), None)
    base = None if given is None else _qualified(spark, given)
    first: tuple[PinnedFile, tuple[str, ...], str] | None = None
    for file in files:
        names, above = _partition_of(file.path, base)
        if first is None:
            first = file, names, above
        elif names != first[1] or (names and above != first[2]):
            raise ConfigurationError(
                f"file {first[0].path} has {_shown(*first[1:])}, and file {file.path} has "
                f"{_shown(names, above)}; expected the same directories NAME=VALUE for all files "
                f"of a topic. Leave out the files of one kind, or set the directory from which on "
                f"such directories are columns: option.basePath=DIRECTORY"
            )
    # A bucket's name alone is no directory.
    return base or (f"{first[2]}/" if first is not None and first[1] else None)


def _partition_of(path: str, base: str | None) -> tuple[tuple[str, ...], str]:
    """Return the names in directories NAME=VALUE that contain a file, and the directory above."""
    above = path.rpartition("/")[0]
    names: list[str] = []
    while above != base:
        parent, _, folder = above.rpartition("/")
        name, equals, _ = folder.partition("=")
        if not equals:
            break
        names.insert(0, name)
        above = parent
    return tuple(names), above


def _shown(names: Sequence[str], above: str) -> str:
    if not names:
        return "no partition columns"
    return f"the partition columns {', '.join(names)} below {above}"


def _qualified(spark: SparkSession, text: str) -> str:
    """Return a path as those of files are written."""
    path = hadoop_path(spark, text)
    return file_system_of(spark, path).makeQualified(path).toString()


_READERS = {
    "delta": (
        "io.delta.sql.DeltaSparkSessionExtension",
        "--spark spark.jars.packages=io.delta:delta-spark_{0}_2.13:VERSION --spark "
        "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension --spark "
        "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    ),
    "iceberg": (
        "org.apache.iceberg.spark.SparkCatalog",
        "--spark spark.jars.packages=org.apache.iceberg:iceberg-spark-runtime-{0}_2.13:VERSION "
        "--spark spark.sql.catalog.CATALOG=org.apache.iceberg.spark.SparkCatalog",
    ),
}
"""A class of each format's reader, and the options that add it."""

VERSION = "versionAsOf"
"""Spark's option for the version of a table."""


def current_version(
    spark: SparkSession, format: str, name: str, options: Mapping[str, str]
) -> PinnedTable:
    """Return the current version of a table, or the one in its options.

    Raises:
        ConfigurationError: the session has no reader for the format, or the table has no such
            version.
    """
    reader, advice = _READERS[format]
    if not class_exists(spark, reader):
        minor = ".".join(spark.version.split(".")[:2])
        raise ConfigurationError(
            f"this Spark session cannot read {format}:{name}: the class {reader} is missing. Start "
            f"it with {advice.format(minor)} (in Python, with these settings)"
        )
    wanted = options.get(VERSION)
    version = None if wanted is None else whole_number(wanted)
    with refusing_table(f"{format}:{name}"):
        found = _versions(spark, format, name, version)
    if not found or (wanted is not None and version is None):
        what = "no rows yet" if wanted is None else f"no version {wanted}"
        raise ConfigurationError(
            f"{format}:{name} has {what}; expected a table with a version, or option.{VERSION} "
            f"with the number of one: of a Delta table's version, or of an Iceberg snapshot"
        )
    return PinnedTable(name=name, version=found[0][0], committed_at=found[0][1])


def check_version(spark: SparkSession, format: str, table: PinnedTable) -> None:
    """Check that a version is still that of the same table.

    Raises:
        ConfigurationError: it is missing, or was committed at another time.
    """
    what = f"{format}:{table.name}"
    with refusing_table(what):
        found = _versions(spark, format, table.name, table.version)
    if found != [(table.version, table.committed_at)]:
        raise ConfigurationError(
            f"version {table.version} of {what}, which the job reads, is gone, or is that of "
            f"another table of this name. Restore it; if that is impossible, start another job, "
            f"into another application or with --suffix"
        )


def _versions(
    spark: SparkSession, format: str, name: str, version: int | None
) -> list[tuple[int, int]]:
    """Return a version, or the current one if it is None, with the time of its commit."""
    from pyspark.sql.functions import col, expr

    if format == "delta":
        found = (
            cast(Any, spark)
            .sql(f"DESCRIBE HISTORY delta.{quoted(name)}")
            .select("version", expr("unix_millis(timestamp)"))
        )
        found = found.orderBy(col("version").desc())
    else:
        part = "#" if "/" in name else "."
        found = spark.read.format(format).load(f"{name}{part}snapshots")
        current = spark.read.format(format).load(f"{name}{part}refs").where("name = 'main'")
        if version is None:
            found = found.join(current.select("snapshot_id"), "snapshot_id")
        found = found.selectExpr("snapshot_id AS version", "unix_millis(committed_at)")
    if version is not None:
        found = found.where(col("version") == version)
    return [(row[0], row[1]) for row in found.limit(1).collect()]


@contextmanager
def refusing_table(what: str) -> Generator[None]:
    """Raise a ConfigurationError for a table that Spark cannot read."""
    from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise ConfigurationError(
            f"Spark cannot read {what}: {reason_of(error)}; correct its name, its options or the "
            f"settings of its catalog"
        ) from error


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
