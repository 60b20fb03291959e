"""Writes a job to the control topic once, even if several drivers start it at the same time.

    1. init the id of the job: this fences a driver at 2 to 4
    2. read whether the job exists, with no transaction undecided
    3. write it in a transaction
    4. commit; a fenced driver starts again, and finds the job at 2

Each driver determines its own ends. If the last writer won, tasks that have processed the first
driver's ranges would count as complete for those of the last, and the difference would be lost.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import structlog

from eosframework.backfill.job.job_entry import Job, JobState, to_entries
from eosframework.backfill.job.job_log import JobLog
from eosframework.config import Settings
from eosframework.errors import (
    ClusterUnreachable,
    DataRejected,
    RunError,
    TransactionError,
    TransactionFatal,
)
from eosframework.kafka.producer.producer_pool import ProducerPool
from eosframework.kafka.worker_clients import producers
from eosframework.processing.ports import Commit, TransactionalOutput
from eosframework.processing.transaction.producing import produce_all
from eosframework.txnid import TransactionalId

ATTEMPTS = 20
PAUSE_SECONDS = 0.5
"""Largest random pause, so that two drivers do not fence each other repeatedly."""


def register(
    job: Job,
    log: JobLog,
    settings: Settings,
    *,
    pause: Callable[[float], None] = time.sleep,
) -> JobState:
    """Write a job unless another driver has, and return the written one.

    Args:
        job: this driver's version.
        log: of the job.
        settings: connection to the cluster.
        pause: waits for a number of seconds.

    Raises:
        ClusterUnreachable: the brokers do not commit it; whether it is written is unknown.
        RunError: the brokers refuse the id or the entries, and would again.
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
            # 1. two drivers find no job  2. both init the job's id, and the later one fences the
            # earlier one  3. the earlier one's commit fails, and in its next attempt it reads the
            # job of the later one. The init ends every open transaction of the id, so none hides
            # an entry from the read that follows.
            opened = outputs.open([identity])
            if (state := log.read()) is not None:
                return state
            _write(job, log, outputs, opened[0])
            return JobState(job)
        except (TransactionFatal, DataRejected) as error:
            raise RunError(
                f"job {job.name!r} cannot be written to the control topic of "
                f"{job.application!r}: {error}"
            ) from error
        except TransactionError as error:
            failed = error
            events.warning("job_start_repeated", error=str(error))
        finally:
            outputs.close(opened)
        pause(random.uniform(0, PAUSE_SECONDS))
    raise ClusterUnreachable(
        f"job {job.name!r} could not be written to the control topic of {job.application!r}: "
        f"{failed}"
    ) from failed


def _write(job: Job, log: JobLog, outputs: ProducerPool, output: TransactionalOutput) -> None:
    output.begin()
    produce_all(output, [log.output(key, entry) for key, entry in to_entries(job).items()])
    [done] = outputs.commit([Commit(output, (), None)])
    if done.error is not None:
        raise done.error
