"""Lists of files that replace a topic: fixed when a job starts, checked at each read.

They may be on any Hadoop file system. A file of another size or time is another file, which may
lack rows that were processed, so it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eosframework.errors import ConfigurationError
from eosframework.spark.job.job_entry import PinnedFile
from eosframework.spark.session.spark_session import file_system_of, hadoop_path, reason_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
