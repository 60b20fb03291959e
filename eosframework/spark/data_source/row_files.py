"""The rows of a batch between Spark's write tasks and its commit, as files of Arrow.

A file is what one attempt of a task got from Spark, batch by batch, so it has all of Spark's types.
Its name is its own: Spark names the files of the attempts that count in the commit, and the
directory is removed with what other attempts have left there.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

RecordBatch = Any
"""A batch of pyarrow."""

_S3 = {"s3a": "s3", "s3n": "s3"}
"""Schemes of Hadoop for S3, and that of pyarrow."""


def file_system(directory: str) -> tuple[Any, str]:
    """Return pyarrow's file system of a directory, and the path there.

    Args:
        directory: a URI of Hadoop, or an absolute path.

    Raises:
        ValueError: pyarrow has no file system for the scheme.
        OSError: the file system cannot be reached.
    """
    fs: Any = import_module("pyarrow.fs")
    scheme, colon, rest = directory.partition(":")
    if not colon:
        return fs.LocalFileSystem(), directory
    if scheme == "file":
        return fs.LocalFileSystem(), "/" + rest.lstrip("/")
    return fs.FileSystem.from_uri(f"{_S3.get(scheme, scheme)}:{rest}")


def write_rows(batches: Iterable[RecordBatch], directory: str) -> tuple[str | None, int]:
    """Write rows to a new file of a directory; return its name, None without rows, and the rows.

    Args:
        batches: of one attempt of a task.
        directory: created unless it exists.
    """
    ipc: Any = import_module("pyarrow.ipc")
    rows, filled = 0, (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return None, 0
    system, path = file_system(directory)
    name = f"{uuid.uuid4().hex}.arrow"
    system.create_dir(path, recursive=True)
    try:
        with (
            system.open_output_stream(f"{path}/{name}") as target,
            ipc.new_stream(target, first.schema) as writer,
        ):
            while first is not None:
                writer.write_batch(first)
                rows += first.num_rows
                first = next(filled, None)
    except BaseException:
        with suppress(OSError):
            system.delete_file(f"{path}/{name}")
        raise
    return name, rows


class RowReader:
    """The function for `mapInArrow` over numbers of files: it returns their rows.

    Args:
        directory: of the files.
        names: of the files, by number.
    """

    def __init__(self, directory: str, names: tuple[str, ...]) -> None:
        self._directory = directory
        self._names = names

    def __call__(self, numbers: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        """Yield the rows of the files whose numbers are in the only column."""
        ipc: Any = import_module("pyarrow.ipc")
        system, path = file_system(self._directory)
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                with (
                    system.open_input_stream(f"{path}/{self._names[number]}") as stored,
                    ipc.open_stream(stored) as rows,
                ):
                    yield from rows
