"""Spark's own JVM, for what Python has no words for."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def jvm_of(spark: SparkSession) -> Any:
    """Return the view of the JVM's packages and classes."""
    return cast(Any, spark.sparkContext)._jvm  # noqa: SLF001


def class_exists(spark: SparkSession, name: str) -> bool:
    """Tell whether the driver can load a class."""
    from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]

    loader = jvm_of(spark).java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(name)
    except Py4JError:
        return False
    return True


def hadoop_path(spark: SparkSession, text: str) -> Any:
    """Return a path of any file system that Hadoop knows."""
    return jvm_of(spark).org.apache.hadoop.fs.Path(text)


def file_system_of(spark: SparkSession, path: Any) -> Any:
    """Return the file system that a path is on."""
    context: Any = cast(Any, spark.sparkContext)._jsc  # noqa: SLF001
    return path.getFileSystem(context.hadoopConfiguration())


def quiet_bridge() -> None:
    """Keep out of the log what the bridge to the JVM says: it raises its failures as well.

    Ctrl-C in the middle of a call is one of them, and it writes some to no logger of its own.
    """
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_not_of_the_bridge)


def quiet_server(spark: SparkSession) -> None:
    """Keep tracebacks of the server that gets counters from the JVM off the terminal.

    It prints one where the JVM is killed, and whoever waits for the JVM is told as well.
    """
    server: Any = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = _said_nothing


@contextmanager
def ended_when_interrupted() -> Generator[None]:
    """Let no JVM stay behind that was being started in the block when Ctrl-C came.

    Nobody could reach it any more, and it waits for its caller's standard input to end, which for
    pyspark's child is never.
    """
    import psutil

    known = {child.pid for child in psutil.Process().children()}
    try:
        yield
    except KeyboardInterrupt:
        for child in psutil.Process().children():
            if child.pid not in known:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        raise


def stop_session(spark: SparkSession) -> None:
    """End Spark; where its JVM has ended by itself, there is nothing left to do."""
    from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]

    with warnings.catch_warnings(), suppress(Py4JError, OSError):
        warnings.simplefilter("ignore")
        spark.stop()


def _said_nothing(*_: object) -> None:
    """Stand for `socketserver.BaseServer.handle_error`."""


def _is_not_of_the_bridge(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def reason_of(error: Exception) -> str:
    """Return what the JVM said, in one line."""
    cause: Any = getattr(error, "java_exception", None)
    return str(cause.toString() if cause is not None else error).strip().splitlines()[0]
