"""Spark's own JVM, for what Python has no words for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def jvm_of(spark: SparkSession) -> Any:
    """Return the view of the JVM's packages and classes."""
    return cast(Any, spark.sparkContext)._jvm  # noqa: SLF001


def class_exists(spark: SparkSession, name: str) -> bool:
    """Tell whether the driver can load a class."""
    from py4j.protocol import Py4JError

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
