"""Ends transactions that attempts of a dead driver left open on the control topic.

    L1. wait briefly: a healthy attempt's commit is decided soon
    L2. find the tasks with undecided entries
    L3. init their ids, as the following attempts would do anyway

Until all transactions are decided no reader may rely on the control topic, and the brokers end them
only after their timeout. An attempt ends the leftovers of its own task only, and would wait for
those of other tasks, which may run much later.
"""

from __future__ import annotations

import structlog

from eosframework.backfill.job.job_entry import task_of
from eosframework.backfill.job.job_log import JobLog
from eosframework.config import Settings
from eosframework.errors import TransactionError
from eosframework.kafka.worker_clients import producers
from eosframework.txnid import TransactionalId

DECIDED_SECONDS = 2.0
"""Longest time for a healthy attempt's commit; later it counts as a leftover."""


def end_leftovers(
    log: JobLog, application: str, settings: Settings, decided_seconds: float = DECIDED_SECONDS
) -> list[str]:
    """End open transactions of a job's tasks on the control topic, and return their ids.

    Args:
        log: of the job.
        application: owner of the job.
        settings: connection to the cluster.
        decided_seconds: wait for open transactions.

    Raises:
        ClusterUnreachable: the cluster did not answer.
    """
    if log.is_decided(decided_seconds):
        return []
    tasks = {task for key in log.undecided_keys() if (task := task_of(log.name, key))}
    ids = [
        str(TransactionalId.backfill(application, f"{log.name}.{sub_topology}", partition))
        for sub_topology, partition in sorted(tasks)
    ]
    events = structlog.get_logger("eosframework.backfill").bind(job=log.name)
    events.info("leftovers_ended", transactional_ids=ids)
    outputs = producers(settings)
    try:
        outputs.close(outputs.open(ids))
    except TransactionError as error:
        # The stages then wait until the brokers end them.
        events.warning("leftovers_not_ended", error=str(error))
    finally:
        outputs.stop()
    return ids
