"""Fencing of workers before an offline change, so that none can commit during it.

    F1  refuse while the application's groups have members
    F2  init every transactional.id whose owner could still commit, by the entries of ownership and
        the control topic: open transactions are aborted, and an owner that is suspended before its
        EndTxn is fenced
    F3  read the control topic again; an open transaction may have hidden its end, and with it
        further ids: back to F2 with those

An empty group is not enough. A worker that was suspended before EndTxn leaves the group when its
session expires; its offsets were checked before that, so its commit would still succeed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from eosframework.application.context import ApplicationContext
from eosframework.application.control_topic import (
    ControlState,
    ControlTopic,
    is_reset_unfinished,
)
from eosframework.application.ownership_topic import OwnershipTopic, refuse_lost_ownership
from eosframework.config import Settings
from eosframework.errors import StartRefused
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.worker_clients import producers
from eosframework.records import whole_number
from eosframework.topology.graph.graph import Graph
from eosframework.transactions.producing import fence
from eosframework.txnid import TopicKind, TransactionalId

IdsOf = Callable[[ControlState], Iterable[str]]
"""Returns the ids to fence, from the content of the control topic."""


def refuse_members(groups: Sequence[str], admin: ClusterAdmin, before: str) -> None:
    """Refuse if one of the groups has a member (F1).

    Args:
        groups: names of consumer groups.
        admin: describes them.
        before: the refused change, for the message.

    Raises:
        StartRefused: names the group and its members.
    """
    for group in groups:
        if members := admin.describe_group(group).members:
            named = ", ".join(f"{member.name} at {member.host}" for member in members)
            raise StartRefused(
                f"group {group!r} has {len(members)} members ({named}); stop them before {before} "
                f"(one that was killed counts until worker.session_timeout_seconds have passed)"
            )


def fence_all(ids_of: IdsOf, settings: Settings, control_topic: ControlTopic) -> ControlState:
    """Fence ids, and those of all entries of ownership (F2, F3).

    Args:
        ids_of: returns the ids that are in no entry of ownership.
        settings: how to reach the cluster.
        control_topic: of the application.

    Returns:
        The content of the control topic, which no open transaction of these ids hides any more.

    Raises:
        StartRefused: the brokers do not verify transactions, or the ownership topic is not the
            recorded one.
        TransactionError: an id could not be initialized.
        ClusterUnreachable: no broker answered in time.
    """
    control = control_topic.refresh()
    fenced: set[str] = set()
    outputs = producers(settings)
    try:
        # 1. a suspended worker has an open transaction with entries for further ids  2. the entries
        # after its begin are hidden from this reader  3. the init of its id aborts it  4. the next
        # look shows what it hid. A look that shows no new id was not obstructed by these ids.
        while waiting := {*ids_of(control), *owners(settings, control_topic)} - fenced:
            fence(outputs, waiting)
            fenced.update(waiting)
            control = control_topic.refresh()
    finally:
        outputs.stop()
    return control


def owners(settings: Settings, control_topic: ControlTopic) -> set[str]:
    """Return the ids of workers that entries of ownership name.

    Raises:
        StartRefused: the ownership topic is not the recorded one, so ids are unknown.
    """
    control = control_topic.state
    if control.ownership is None:
        return set()
    application = control_topic.topic.removesuffix(f"-{TopicKind.CONTROL}")
    topic = OwnershipTopic(application, settings.kafka, ClusterAdmin(settings.kafka))
    found = topic.found_id()
    if found is None and is_reset_unfinished(control):
        return set()  # The reset fenced these ids before it deleted the topic.
    refuse_lost_ownership(control, found, topic.topic)
    return topic.ids()


def fence_workers(context: ApplicationContext) -> None:
    """Fence every id whose owner can move the application's positions: workers, and cutovers.

    Raises:
        TransactionError: an id could not be initialized in time.
    """
    graph = context.graph
    fence_all(lambda found: cutovers(graph, found), context.settings, context.control_topic)


def cutovers(graph: Graph, control: ControlState) -> set[str]:
    """Return the ids of cutovers, which move the application's positions without an entry."""
    return {
        str(TransactionalId.backfill(graph.application, key.removeprefix("backfill/"), 0))
        for key in control.entries
        if key.startswith("backfill/") and key.count("/") == 1
    }


def all_but_owners(graph: Graph, control: ControlState) -> set[str]:
    """Return every id under which the application may write without an entry of ownership.

    These are the ids of cutovers, of backfill tasks and of replays of dead letters.
    """
    application = graph.application
    ids = {*cutovers(graph, control), str(TransactionalId.replay(application))}
    for key in control.entries:
        match key.split("/"):
            case ["backfill", job, "task", sub_topology, part] if whole_number(part) is not None:
                name = f"{job}.{sub_topology}"
                ids.add(str(TransactionalId.backfill(application, name, int(part))))
            case _:
                pass
    return ids
