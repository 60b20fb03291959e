"""The driver's side of the data source: sinks, sessions, and a socket for Spark's processes.

    check     at start() or save(), when Spark makes the source: the names of the options
    open      before the tasks of a batch: options, columns and the directory for files
    commit    after them: the sink writes the batch, as it does for `foreachBatch`
    abort     the files of a batch that failed are removed

A commit is the call of a `Sink` with the staged rows as a DataFrame. Which batch is written,
skipped, resumed or refused is decided there, by the query's id and its source offsets in the
checkpoint. So it does not matter whether the process that asked is alive when the answer comes:
Spark offers the batch again, and the sink knows it. A restarted query waits until the batch of
such a process is written or has failed.

Sinks stay open between the batches of a query, as with `foreachBatch`.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, cast

import structlog

from eosframework.errors import ConfigurationError, EosError, StartRefused
from eosframework.spark.data_source.kafka_options import SERVERS
from eosframework.spark.data_source.row_files import RowReader, file_system
from eosframework.spark.data_source.source import NAME, source_class
from eosframework.spark.data_source.source_options import check_names, job_of, sink_of
from eosframework.spark.session.executors import map_batches
from eosframework.spark.session.spark_session import (
    file_system_of,
    hadoop_path,
    reason_of,
    refuse_connect,
)
from eosframework.spark.sinks.sink_api import Sink
from eosframework.spark.sinks.sink_runner import default_root, is_active, stages_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_Request = Mapping[str, Any]

_QUERY = "sql.streaming.queryId"

_MOST_OPENED = 100
"""Answers to `open` that are kept."""

_CLOSE_SECONDS = 5.0
"""Longest wait at the end of the process for a batch that is being written."""


def register(spark: SparkSession) -> None:
    """Make `format("eos_kafka")` known to a session.

    The process that calls it writes the batches, so it has to live as long as its queries do, as
    with `foreachBatch`. Call it in each thread that starts queries: Spark looks a format of Python
    up in the thread's active session, which the call makes `spark`.

    Args:
        spark: a classic session.

    Raises:
        ConfigurationError: it is one of Spark Connect.
    """
    refuse_connect(spark, f"format({NAME!r})")
    server = _running()
    spark.dataSource.register(source_class(server.address, server.number_of(spark)))
    # Spark looks the name up in the session that is active in the thread that starts a query, and a
    # new thread, or one with another session, has not this one.
    session: Any = spark
    session._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)  # noqa: SLF001


@dataclass(frozen=True)
class _Use:
    """The run of a query that uses a sink.

    Args:
        query: id of the query.
        run: id of the run.
        options: of the source.
    """

    query: str
    run: str | None
    options: Mapping[str, str]


class _Slot:
    """A sink between the batches of a query."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.use: _Use | None = None
        self.sink: Sink | None = None

    def given(self, use: _Use, make: Callable[[], Sink]) -> Sink:
        """Return the sink for a use; that of another use is closed."""
        if self.sink is None or self.use != use:
            self.close()
            self.use, self.sink = use, make()
        return self.sink

    def close(self) -> None:
        """Release the sink."""
        if self.sink is not None:
            self.sink.close()
        self.sink = None


class DriverServer:
    """Answers Spark's processes; one thread for each request."""

    def __init__(self) -> None:
        self._directory = tempfile.mkdtemp(prefix="eosframework-")  # only its owner can enter it
        self.address = str(Path(self._directory, "driver"))
        self._listener = Listener(self.address, "AF_UNIX")
        self._sessions: list[SparkSession] = []
        self._slots: dict[tuple[str | None, str, str], _Slot] = {}
        self._opened: dict[str, str] = {}
        self._lock = Lock()
        self._closing = False
        self._process = os.getpid()
        self._thread = Thread(target=self._accept, name=NAME, daemon=True)
        self._thread.start()

    def number_of(self, spark: SparkSession) -> int:
        """Return the number of a session here."""
        with self._lock:
            known = [n for n, one in enumerate(self._sessions) if one is spark]
            if not known:
                self._sessions.append(spark)
            return known[0] if known else len(self._sessions) - 1

    def close(self) -> None:
        """Close the socket, and the sinks that write no batch now."""
        if os.getpid() != self._process:  # a copy of it, which was forked
            return
        self._closing = True
        with suppress(OSError), Client(self.address, "AF_UNIX"):
            self._thread.join()
        self._listener.close()
        shutil.rmtree(self._directory, ignore_errors=True)
        with self._lock:
            slots, self._slots = [*self._slots.values()], {}
        for slot in slots:
            if slot.lock.acquire(timeout=_CLOSE_SECONDS):
                slot.close()
                slot.lock.release()

    # --- requests -------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            connection = self._listener.accept()
            if self._closing:
                connection.close()
                return
            Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        with connection, suppress(OSError, EOFError):
            request = json.loads(connection.recv_bytes())
            connection.send_bytes(json.dumps(self._answered(request)).encode())

    def _answered(self, request: _Request) -> dict[str, Any]:
        try:
            return {"answer": getattr(self, f"_{request['request']}")(request)}
        except EosError as error:
            return {"error": str(error), "kind": type(error).__name__}
        except Exception as error:  # without its traceback: options may have passwords
            reason = f"format({NAME!r}): {type(error).__name__}: {reason_of(error)}"
            return {"error": reason, "kind": "RunError"}

    def _check(self, request: _Request) -> None:
        check_names(request["options"])

    def _open(self, request: _Request) -> str:
        """Return the directory for files; everything that needs no row is refused here."""
        key = json.dumps(request, sort_keys=True)
        if key not in self._opened:  # each batch of a query asks the same
            if len(self._opened) >= _MOST_OPENED:
                self._opened.clear()
            self._opened[key] = self._new(request)
        return self._opened[key]

    def _new(self, request: _Request) -> str:
        spark: SparkSession = self._sessions[int(request["session"])]
        options = request["options"]
        schema = _schema(request)
        modes = {name: request[name] for name in ("streaming", "overwrite")}
        sink = sink_of(options, schema)
        if (job := job_of(options, **modes)) is not None:
            sink = sink.of_job(job)
        sink.check_columns(_empty(spark, schema))
        return _directory(spark, options, sink)

    def _commit(self, request: _Request) -> None:
        spark: SparkSession = self._sessions[int(request["session"])]
        written = request["written"]
        files = [(one["directory"], one["file"]) for one in written if one["file"] is not None]
        rows = _frame(spark, _schema(request), files)
        if request["batch"] is None:
            self._write_job(spark, request, rows)
        else:
            self._write_batch(spark, request, rows)

    def _abort(self, request: _Request) -> None:
        _remove(request["directories"])

    # --- writing --------------------------------------------------------------------------------

    def _write_job(self, spark: SparkSession, request: _Request, rows: DataFrame) -> None:
        options = request["options"]
        job = job_of(options, streaming=False, overwrite=False)
        assert job is not None
        sink = sink_of(options, rows.schema)
        if not sink.write(rows, job, options.get("directory")):
            events = structlog.get_logger("eosframework.spark")
            events.warning("job_skipped", job=job, reason="it is complete: nothing was written")
        _remove(one["directory"] for one in request["written"])

    def _write_batch(self, spark: SparkSession, request: _Request, rows: DataFrame) -> None:
        options, written = request["options"], request["written"]
        assert written, "a batch has at least one task"
        use = _Use(written[0]["query"], written[0]["run"], options)
        made = sink_of(options, rows.schema)
        slot = self._slot_of(made, options.get(SERVERS))
        with slot.lock:
            self._refuse_second(spark, made, slot, use)
            context = spark.sparkContext
            # As in the thread of the query: the sink finds its query, and stop() cancels its jobs.
            context.setLocalProperty(_QUERY, use.query)
            if use.run is not None:
                context.setJobGroup(use.run, "", interruptOnCancel=True)
            slot.given(use, lambda: made)(rows, request["batch"])
            # Within the lock: a restarted query stores the rows of its next batch there.
            _remove(one["directory"] for one in written)

    def _slot_of(self, sink: Sink, servers: str | None) -> _Slot:
        [part] = sink.parts
        with self._lock:
            return self._slots.setdefault((servers, part.application, part.label), _Slot())

    def _refuse_second(self, spark: SparkSession, sink: Sink, slot: _Slot, use: _Use) -> None:
        """Refuse a second query, before it fences the first one.

        Raises:
            StartRefused: names both.
        """
        before = slot.use
        if before is None or before.query == use.query or not is_active(spark, before.query):
            return
        [part] = sink.parts
        raise StartRefused(
            f"sink {part.label!r} of application {part.application!r} is used by the active query "
            f"{before.query}, and gets a batch of query {use.query}. Nothing was written; give one "
            f"of the queries another option('name', …)"
        )


_SERVER: list[DriverServer] = []
"""Of this process."""

_STARTING = Lock()


def _running() -> DriverServer:
    with _STARTING:
        if not _SERVER:
            _SERVER.append(DriverServer())
            atexit.register(close_server)
        return _SERVER[0]


def close_server() -> None:
    """Close this process's server, unless there is none; `register` starts another one."""
    with _STARTING:
        servers = [*_SERVER]
        _SERVER.clear()
    for server in servers:
        server.close()


# --- rows ---------------------------------------------------------------------------------------


def _schema(request: _Request) -> StructType:
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(request["schema"]))


def _empty(spark: SparkSession, schema: StructType) -> DataFrame:
    return cast(Any, spark).createDataFrame([], schema)


def _frame(spark: SparkSession, schema: StructType, files: Sequence[tuple[str, str]]) -> DataFrame:
    """Return the rows of files, which are in one directory."""
    if not files:
        return _empty(spark, schema)
    reader = RowReader(files[0][0], tuple(name for _, name in files))
    return map_batches(spark.range(0, len(files), 1, len(files)), reader, schema)


def _directory(spark: SparkSession, options: Mapping[str, str], sink: Sink) -> str:
    """Return a directory for the files of a sink, which pyarrow can write.

    Raises:
        ConfigurationError: pyarrow cannot reach it.
    """
    root = options.get("directory") or options.get("checkpointlocation") or default_root(spark)
    parts = stages_of(root, sink.parts[0].application, [part.label for part in sink.parts])
    place = hadoop_path(spark, f"{parts}.rows")
    found = str(file_system_of(spark, place).makeQualified(place).toString())
    try:
        system, path = file_system(found)
        system.create_dir(path, recursive=True)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"format({NAME!r}): the rows of a batch cannot be stored in {found}: {error}. "
            f"Executors store them with pyarrow; name a directory that it can write with "
            f"option('directory', …)"
        ) from None
    return found


def _remove(directories: Any) -> None:
    """Remove the files of a batch, of all attempts; a restarted query repeats what is left."""
    for directory in {*directories}:
        with suppress(OSError, ValueError):
            system, path = file_system(directory)
            system.delete_dir(path)
