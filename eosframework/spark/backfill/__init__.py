"""Backfills: the same topology over history, read by Spark and run by the worker's operators.

Owns jobs (input, topology, progress of each task), the order of records and of sub-topologies, the
work of a task on an executor, and the cutover to live workers. The only importer of pyspark; code
on executors needs of it only the iterator of batches.

A job's range, files and topology are fixed when it starts; different ones require another job. A
backfill writes only through transactional producers, whose ids belong to the job's tasks and never
to an attempt, and through claims in the database.

Public: the names in `__all__`; the modules are internal.
"""

from eosframework.spark.backfill.api import Backfill, outputs_of
from eosframework.spark.session.spark_session import spark_session

__all__ = ["Backfill", "outputs_of", "spark_session"]
