"""Writes a job into the registry, once: of drivers that start it at the same time one does.

    1. init the id of the job: whoever is at 2 to 4 with it is fenced
    2. read whether the job is there by now, settled
    3. write it in a transaction
    4. commit; whoever was fenced begins again, and finds it at 2

Each driver fixes ends of its own. If the last one to write won, tasks that the first has run to its
ends would pass for complete at those of the last, and what lies between would be lost.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import structlog

from eosframework.backfill.job.job_entry import Job
from eosframework.backfill.job.job_log import JobLog
from eosframework.backfill.job.job_state import JobState, to_entries
from eosframework.config import Settings
from eosframework.errors import ClusterUnreachable, TransactionError
from eosframework.kafka.producer.producer_pool import ProducerPool
from eosframework.kafka.worker_clients import producers
from eosframework.processing.ports import Commit, TransactionalOutput
from eosframework.txnid import TransactionalId

ATTEMPTS = 20
PAUSE_SECONDS = 0.5
"""At most; two that fence each other do not go on doing so."""


def register(
    job: Job,
    log: JobLog,
    settings: Settings,
    *,
    pause: Callable[[float], None] = time.sleep,
) -> JobState:
    """Write a job, unless another driver has meanwhile, and return what is written.

    Args:
        job: as this driver would run it.
        log: of the job.
        settings: how to reach the cluster.
        pause: waits for so many seconds.

    Raises:
        ClusterUnreachable: the brokers do not commit it; whether it is written is not known.
    """
    outputs = producers(settings)
    try:
        return _registered(job, log, outputs, pause)
    finally:
        outputs.stop()


def _registered(
    job: Job, log: JobLog, outputs: ProducerPool, pause: Callable[[float], None]
) -> JobState:
    events = structlog.get_logger("eosframework.backfill").bind(job=job.name)
    identity = str(TransactionalId.backfill(job.application, job.name, 0))
    failed: TransactionError | None = None
    for _ in range(ATTEMPTS):
        opened: list[TransactionalOutput] = []
        try:
            opened = outputs.open([identity])
            if (state := log.read()) is not None:
                return state
            _write(job, log, outputs, opened[0])
            return JobState(job)
        except TransactionError as error:
            failed = error
            events.warning("job_start_repeated", error=str(error))
        finally:
            outputs.close(opened)
        pause(random.uniform(0, PAUSE_SECONDS))
    raise ClusterUnreachable(
        f"job {job.name!r} could not be written into the registry of {job.application!r}: {failed}"
    ) from failed


def _write(job: Job, log: JobLog, outputs: ProducerPool, output: TransactionalOutput) -> None:
    try:
        output.begin()
        for key, entry in to_entries(job).items():
            output.produce(*log.output(key, entry))
    except TransactionError:
        raise
    except Exception as error:
        raise output.explain(error) from error
    [done] = outputs.commit([Commit(output, (), None)])
    if done.error is not None:
        raise done.error
