"""What attempts of a driver that died left open in the registry is ended, so that all is decided.

    L1. wait a moment: a commit of an attempt that is well is decided soon
    L2. find the tasks of which something is not decided
    L3. init their ids, as the attempts that follow would do anyway

Until it is decided nobody may trust the registry, and the brokers would end it only when it
outlasts its timeout. Attempts end what was left of their own task, and then wait for what was left
of others, whose turn may come much later.
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
"""How long a commit of an attempt that is well may take before it counts as left."""


def end_leftovers(
    log: JobLog, application: str, settings: Settings, decided_seconds: float = DECIDED_SECONDS
) -> list[str]:
    """End what is open in the registry of a job's tasks, and return their ids.

    Args:
        log: of the job.
        application: whose job it is.
        settings: how to reach the cluster.
        decided_seconds: how long is waited for what is open.

    Raises:
        ClusterUnreachable: nobody answered.
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
        events.warning("leftovers_not_ended", error=str(error))  # then they are waited for
    finally:
        outputs.stop()
    return ids
