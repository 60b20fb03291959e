"""The same topology over history: Spark reads a closed range, the worker's own operators run it.

Owns jobs (what is read, by which topology, how far each task is), the order of records and of
sub-topologies, what a task on an executor does, and the cutover to live workers. The only importer
of pyspark; what runs on executors needs none of it but the iterator of batches.

It refuses to guess: a job's range, files and topology are fixed when it starts, and one that
differs later is another job. It writes nothing but through transactional producers whose ids
belong to the job's tasks, never to an attempt, and through claims of the database.
"""

from eosframework.backfill.api import Backfill
from eosframework.backfill.frames import outputs_of
from eosframework.backfill.spark.spark_session import spark_session

__all__ = ["Backfill", "outputs_of", "spark_session"]
