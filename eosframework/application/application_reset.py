"""Removal of an application's state from a cluster, in steps that can be repeated.

    RS1  refuse while its groups have members, or if the ownership topic is not the recorded one
    RS2  mark the control topic: no worker starts before the reset is complete, and a worker that
        had started and was no member meanwhile takes nothing over
    RS3  init every id under which it wrote or may write: open transactions end, and a suspended
        worker is fenced, so that it writes nothing into recreated topics
    RS4  delete its groups, and with them its positions; brokers refuse that while there are members
    RS5  delete its internal topics, and wait until they are gone; delete the records of outputs if
        they were requested to be emptied: nothing writes them any more
    RS6  commit the requested positions
    RS7  delete the entries of the control topic, and mark the reset as complete last

Entries of others stay in the control topic, for example those of relays.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from eosframework.application.context import ApplicationContext
from eosframework.application.control_topic import (
    FAILED,
    OWNERSHIP,
    RESET,
    WRITTEN,
    ControlState,
    committed_key,
    is_reset_unfinished,
    topic_entry,
    topic_key,
)
from eosframework.application.deleted_topics import delete_and_wait
from eosframework.application.fencing import IdsOf, fence_all, refuse_members
from eosframework.application.ownership_topic import ownership_of, refuse_lost_ownership
from eosframework.errors import StartRefused
from eosframework.kafka.admin.metadata import TopicDescription
from eosframework.records import Position
from eosframework.transactions import failpoints

FORGOTTEN = ("topic", WRITTEN, "committed", FAILED, "topology", "backfill", OWNERSHIP)
"""Kinds of entries of the control topic that record the application's progress."""

BEFORE_RESET = "the application is reset"


@dataclass(frozen=True, slots=True)
class KafkaReset:
    """The state to remove from a cluster.

    Args:
        groups: to delete.
        topics: that exist, to delete.
        emptied: outputs whose records are deleted.
        ids: to fence, as far as they are known before the reset.
        ids_of: returns all of them, once nothing hides the control topic's end.
        entries: keys to delete from the control topic.
        positions: next offsets of source partitions; other partitions start as if the application
            had never run.
        sources: the topics of these positions.
    """

    application: str
    groups: tuple[str, ...]
    topics: tuple[str, ...]
    ids: tuple[str, ...]
    ids_of: IdsOf
    entries: tuple[str, ...]
    emptied: tuple[str, ...] = ()
    positions: tuple[Position, ...] = ()
    sources: Mapping[str, TopicDescription] = field(default_factory=dict[str, TopicDescription])


def refuse_unfinished_reset(application: str, control: ControlState) -> None:
    """Refuse to start after an interrupted reset, whose state and positions do not match.

    Raises:
        StartRefused: says how to finish it.
    """
    if is_reset_unfinished(control):
        raise StartRefused(
            f"a reset of application {application!r} was begun and is not through, so its state "
            f"and its positions do not fit together; finish it: eosframework reset APP"
        )


def remove_state(reset: KafkaReset, context: ApplicationContext) -> None:
    """Perform RS1 to RS5; after an interruption it can be repeated.

    Raises:
        StartRefused: there are members, or the ids that may still write are unknown.
        TransactionError: an id could not be initialized.
        ClusterUnreachable: no broker answered in time.
    """
    admin, control_topic = context.admin, context.control_topic
    refuse_members(reset.groups, admin, BEFORE_RESET)
    control_topic.ensure()
    control = control_topic.refresh()
    if not is_reset_unfinished(control):
        topic = ownership_of(context)
        refuse_lost_ownership(control, topic.found_id(), topic.topic)
    control_topic.write({RESET: {"begun_at": round(time.time() * 1000)}})
    failpoints.hit("reset.after_mark")
    fence_all(reset.ids_of, context.settings, control_topic)
    failpoints.hit("reset.after_fence")
    for group in reset.groups:
        if not admin.delete_group(group):
            raise StartRefused(
                f"group {group!r} got a member while the application was reset; stop it, and "
                f"finish the reset: eosframework reset APP"
            )
    failpoints.hit("reset.after_groups")
    if reset.topics:
        delete_and_wait(reset.topics, admin)
    admin.delete_records(reset.emptied)
    failpoints.hit("reset.after_topics")


def finish_reset(reset: KafkaReset, context: ApplicationContext) -> None:
    """Perform RS6 and RS7: from here on workers may start.

    Raises:
        ConfigurationError: a worker has joined meanwhile; repeat the reset.
        ClusterUnreachable: no broker answered in time.
    """
    control_topic = context.control_topic
    if reset.positions:
        context.admin.commit(reset.application, reset.positions)
    failpoints.hit("reset.after_positions")
    known = control_topic.refresh().entries
    forgotten = {key: None for key in known if key.partition("/")[0] in FORGOTTEN}
    control_topic.write(forgotten)
    remembered: dict[str, object] = {}
    readers = context.graph.readers
    for position in reset.positions:
        source = reset.sources[position.topic]
        remembered[topic_key(position.topic)] = topic_entry(source)
        key = committed_key(readers[position.topic].name, position.topic_partition)
        remembered[key] = {"topic_id": source.topic_id}
    control_topic.write({**remembered, RESET: {"done_at": round(time.time() * 1000)}})
    control_topic.refresh()
