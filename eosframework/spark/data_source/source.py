"""The data source as Spark sees it, in processes that Spark starts.

    driver's machine   a process for each batch makes the writer; another one commits or aborts.
                       Neither has a session or keeps anything
    executors          each task writes the rows of its partition to a file (`row_files`)

The processes on the driver's machine ask the driver's own Python, where the source was registered,
through a socket in a directory that only its user can enter. There a session and the sinks are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from itertools import chain, islice
from multiprocessing.connection import Client
from typing import TYPE_CHECKING, Any

import pyspark.sql.datasource as spark_api
from pyspark import TaskContext

from eosframework import errors
from eosframework.spark.data_source.row_files import RecordBatch, write_rows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NAME = "eos_kafka"
"""Of the format."""

_QUERY, _GROUP = "sql.streaming.queryId", "spark.jobGroup.id"
"""Local properties of tasks: the query, and its run, by which Spark cancels its jobs."""

_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True)
class Written(spark_api.WriterCommitMessage):
    """The file of one task.

    Args:
        directory: of the file.
        file: its name; None: the task had no rows.
        rows: their number.
        query: id of the streaming query; None: of a batch DataFrame.
        run: id of the query's run, or of the batch's job group; None: it has none.
    """

    directory: str
    file: str | None
    rows: int
    query: str | None
    run: str | None


@dataclass(frozen=True)
class Driver:
    """The driver's Python process, as other processes reach it.

    Args:
        address: path of its socket.
        session: number of the session there.
    """

    address: str
    session: int

    def ask(self, request: str, **values: Any) -> Any:
        """Return the driver's answer.

        Raises:
            EosError: the driver's error.
            RunError: the process has ended.
        """
        try:
            with Client(self.address, "AF_UNIX") as connection:
                wanted = {"request": request, "session": self.session, **values}
                connection.send_bytes(json.dumps(wanted).encode())
                answer = json.loads(connection.recv_bytes())
        except (OSError, EOFError) as error:
            raise errors.RunError(
                f"format({NAME!r}): the Python process that called eosframework.spark.register "
                f"cannot be reached ({type(error).__name__}: {error}). What is committed stays; "
                f"register the source in the process that starts the query, and start it again"
            ) from None
        if "error" in answer:
            # Spark puts the traceback of this process in front of the message otherwise.
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
            kind = getattr(errors, answer["kind"], errors.RunError)
            raise kind(answer["error"]) from None
        return answer["answer"]


class _Writer:
    """The common part of the writers of batch and streaming.

    Args:
        driver: where the sink is.
        options: of the source.
        schema: of the rows.
        directory: for files.
    """

    def __init__(
        self, driver: Driver, options: Mapping[str, str], schema: StructType, directory: str
    ) -> None:
        self._driver = driver
        self._options = dict(options)
        self._schema = schema
        self._directory = directory

    def write(self, iterator: Iterator[Any]) -> Written:
        """Write the rows of a partition to a file."""
        task = TaskContext.get()
        assert task is not None, "Spark calls it in a task"
        query = task.getLocalProperty(_QUERY)
        directory = f"{self._directory}/{query}" if query else self._directory
        file, rows = write_rows(self._batches(iterator), directory)
        return Written(directory, file, rows, query, task.getLocalProperty(_GROUP))

    def _batches(self, iterator: Iterator[Any]) -> Iterable[RecordBatch]:
        return iterator

    def _commit(self, messages: list[Any], batch: int | None) -> None:
        self._driver.ask(
            "commit",
            options=self._options,
            schema=self._schema.json(),
            batch=batch,
            written=[asdict(message) for message in messages if message is not None],
        )

    def _abort(self, messages: list[Any]) -> None:
        kept = {message.directory for message in messages if message is not None}
        self._driver.ask("abort", directories=sorted(kept))


class BatchWriter(_Writer, spark_api.DataSourceArrowWriter):
    """Writes a batch DataFrame once for its job."""

    def commit(self, messages: list[Any]) -> None:
        """Write the rows to Kafka, unless the job is complete."""
        self._commit(messages, None)

    def abort(self, messages: list[Any]) -> None:
        """Remove the files."""
        self._abort(messages)


_STREAMED: Any = getattr(spark_api, "DataSourceStreamArrowWriter", spark_api.DataSourceStreamWriter)
"""The interface that gives batches of Arrow; Spark 4.0 has only the one that gives rows."""


class StreamWriter(_Writer, _STREAMED):
    """Writes the batches of a streaming query."""

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Write the rows to Kafka, unless the batch is complete."""
        self._commit(messages, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Remove the files."""
        self._abort(messages)

    def _batches(self, iterator: Iterator[Any]) -> Iterable[RecordBatch]:
        if _STREAMED is not spark_api.DataSourceStreamWriter:
            yield from iterator
            return
        conversion: Any = import_module("pyspark.sql.conversion").LocalDataToArrowConversion
        for first in iterator:
            rows = [*chain([first], islice(iterator, _ROWS_AT_ONCE - 1))]
            yield from conversion.convert(rows, self._schema, False).to_batches()


class KafkaSource(spark_api.DataSource):
    """The format; `register` makes a class of it that knows the driver."""

    driver: Driver

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._given = {name.lower(): value for name, value in options.items()}
        self.driver.ask("check", options=self._given)
        self._commits_only = False

    def __getstate__(self) -> dict[str, object]:
        """Return the state for the process that commits a streaming batch; it opens nothing."""
        return {**self.__dict__, "_commits_only": True}

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> str:
        """Refuse to read.

        Raises:
            ConfigurationError: always.
        """
        raise errors.ConfigurationError(
            f"format({NAME!r}) writes and does not read; read a topic with format('kafka')"
        )

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of a batch DataFrame.

        Raises:
            ConfigurationError: an option or a column is unsuitable.
        """
        return BatchWriter(self.driver, self._given, schema, self._opened(schema, False, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return the writer of a streaming query.

        Raises:
            ConfigurationError: an option or a column is unsuitable.
        """
        return StreamWriter(self.driver, self._given, schema, self._opened(schema, True, overwrite))

    def _opened(self, schema: StructType, streaming: bool, overwrite: bool) -> str:
        """Return the directory for files, once the driver has checked options and columns."""
        if self._commits_only:
            return ""
        wanted = {"options": self._given, "schema": schema.json()}
        return self.driver.ask("open", **wanted, streaming=streaming, overwrite=overwrite)


def source_class(address: str, session: int) -> type[KafkaSource]:
    """Return the data source for a driver; Spark pickles the class by value.

    Args:
        address: path of the driver's socket.
        session: number of the session there.
    """
    return type("EosKafka", (KafkaSource,), {"driver": Driver(address, session)})
