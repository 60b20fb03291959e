"""Transactional ids: the names of writers, and the partition that each id writes for.

Pure: nothing here talks to a broker. It refuses names that would make ids ambiguous and
source topics that cannot share a task.

Internal: no module here is public.
"""

from eosframework.txnid.assignment import co_partitioned, tasks
from eosframework.txnid.identity import TransactionalId, effects_id, prefix, worker_pattern
from eosframework.txnid.names import (
    InternalTopic,
    TopicKind,
    changelog_topic,
    control_topic,
    effects_topic,
    metric_name,
    ownership_topic,
    refuse_bad_application,
    refuse_bad_id,
    refuse_bad_name,
    refuse_reserved_name,
    repartition_topic,
    replay_topic,
    reserved_topic,
    retry_topic,
    rows_topic,
    tables_group,
)
from eosframework.txnid.source import Allotted, DerivedIds, IdSource, PooledId, allot

__all__ = [
    "Allotted",
    "DerivedIds",
    "IdSource",
    "InternalTopic",
    "PooledId",
    "TopicKind",
    "TransactionalId",
    "allot",
    "changelog_topic",
    "co_partitioned",
    "control_topic",
    "effects_id",
    "effects_topic",
    "metric_name",
    "ownership_topic",
    "prefix",
    "refuse_bad_application",
    "refuse_bad_id",
    "refuse_bad_name",
    "refuse_reserved_name",
    "repartition_topic",
    "replay_topic",
    "reserved_topic",
    "retry_topic",
    "rows_topic",
    "tables_group",
    "tasks",
    "worker_pattern",
]
