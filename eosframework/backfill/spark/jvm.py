"""Access to Spark's JVM for functions without a Python API."""

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
    """Return whether the driver can load a class."""
    from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]

    loader = jvm_of(spark).java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(name)
    except Py4JError:
        return False
    return True


def hadoop_path(spark: SparkSession, text: str) -> Any:
    """Return a path of any Hadoop file system."""
    return jvm_of(spark).org.apache.hadoop.fs.Path(text)


def file_system_of(spark: SparkSession, path: Any) -> Any:
    """Return the file system that a path is on."""
    context: Any = cast(Any, spark.sparkContext)._jsc  # noqa: SLF001
    return path.getFileSystem(context.hadoopConfiguration())


def quiet_bridge() -> None:
    """Keep the log messages of the bridge to the JVM out of the log; it also raises its failures.

    Ctrl-C during a call causes some, partly without a logger of its own.
    """
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_not_of_the_bridge)


def quiet_server(spark: SparkSession) -> None:
    """Keep tracebacks of the accumulator server off the terminal.

    It prints one when the JVM is killed; the code that waits for the JVM gets an error anyway.
    """
    server: Any = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = _ignore_error


@contextmanager
def killed_on_interrupt() -> Generator[None]:
    """Kill a JVM that was starting in the block when Ctrl-C came.

    It would be unreachable and never end: it waits for the end of its standard input, which
    pyspark's child process never sees.
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
    """End Spark; a JVM that has ended already needs nothing more."""
    from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]

    with warnings.catch_warnings(), suppress(Py4JError, OSError):
        warnings.simplefilter("ignore")
        spark.stop()


def _ignore_error(*_: object) -> None:
    """Replace `socketserver.BaseServer.handle_error`."""


def _is_not_of_the_bridge(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def reason_of(error: Exception) -> str:
    """Return the JVM's error message, in one line."""
    cause: Any = getattr(error, "java_exception", None)
    return str(cause.toString() if cause is not None else error).strip().splitlines()[0]
