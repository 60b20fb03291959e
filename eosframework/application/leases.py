"""Leased ids: names of tasks from a pool in the database.

No two tasks come to share an id, however a start and a release interleave:

    start     L1  read the control topic, with the mark of the last release
              L2  the source gives the ids; waits for a pending release. Note them with that mark
    takeover  L3  the mark is still that of L1 (`StartPositions.confirm_start`)
    release   LR1  lock the ids of the application at their source
              LR2  the group has no member
              LR3  mark the control topic; ids that were noted under an earlier mark are void
              LR4  the group has no member
              LR5  init the ids: fences suspended workers, ends open transactions
              LR6  free them at their source

A worker that joins before LR4 is a member there. One that joins later finds the mark of LR3 in L3,
unless it has read it in L1: then its L2 waits for LR6.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog

from eosframework.application.context import ApplicationContext
from eosframework.application.control_topic import LEASES, RELEASED, ControlState
from eosframework.application.fencing import refuse_members
from eosframework.errors import DatabaseUnusable, StartRefused
from eosframework.kafka.producer.producer_pool import ProducerPool
from eosframework.topology.graph.graph import Graph
from eosframework.transactions import failpoints
from eosframework.transactions.producing import fence
from eosframework.txnid import IdSource, TransactionalId, tasks


def task_names(graph: Graph, partitions: Mapping[str, int]) -> list[TransactionalId]:
    """Return the tasks of a graph, without leased ids.

    Args:
        graph: of the application.
        partitions: number of partitions by source topic; a sub-topology whose sources are not
            co-partitioned has no tasks.
    """
    names: list[TransactionalId] = []
    for part in graph.sub_topologies:
        counts = {source.topic: partitions[source.topic] for source in part.sources}
        if len(set(counts.values())) == 1 and all(counts.values()):
            names += tasks(graph.application, part.name, counts)
    return names


def given_ids(
    source: IdSource, names: Sequence[TransactionalId], control: ControlState
) -> list[TransactionalId]:
    """Return the tasks with their ids (L2).

    An unavailable source is not needed if the control topic has the ids of all tasks.

    Raises:
        StartRefused: the source has no id for a task, or an id has moved to another task by any
            other way than `ids release`.
        DatabaseUnusable: the source is unavailable, and the control topic lacks an id.
    """
    known = _noted(control)
    try:
        ids = source.ids(names)
    except DatabaseUnusable as error:
        found = [known.get(_name(task)) for task in names]
        if None in found:
            raise
        structlog.get_logger("eosframework.worker").warning(
            "ids_taken_from_control_topic", error=str(error)
        )
        return [replace(task, leased=id_) for task, id_ in zip(names, found, strict=True)]
    refuse_moved_ids(ids, control)
    return ids


def refuse_moved_ids(ids: Sequence[TransactionalId], control: ControlState) -> None:
    """Refuse ids that moved to another task by any other way than `ids release`.

    Raises:
        StartRefused: names the id and both tasks.
    """
    before = {id_: name for name, id_ in _noted(control).items()}
    for task in ids:
        known = before.get(str(task))
        if known is not None and known != _name(task):
            raise StartRefused(
                f"transactional id {task} is leased to {_name(task)}, and the control topic of "
                f"application {task.application!r} knows it as the id of {known}, whose worker may "
                f"still write under it; undo that change of the database, or free the id with "
                f"`eosframework ids release APP {task}`"
            )


def id_entries(ids: Sequence[TransactionalId], control: ControlState) -> dict[str, object]:
    """Return the new entry of the control topic about leased ids (L2)."""
    leased = {_name(task): str(task) for task in ids if task.leased is not None}
    entry = {"released": last_release(control), "ids": {**_noted(control), **leased}}
    return {LEASES: entry} if leased and control.entries.get(LEASES) != entry else {}


def last_release(control: ControlState) -> int | None:
    """Return the mark of the last release of ids; None: there was none."""
    return control.entries.get(RELEASED, {}).get("at")


def release(
    ids: Sequence[TransactionalId], context: ApplicationContext, outputs: ProducerPool
) -> None:
    """Make sure that no producer writes under the ids, now or later (LR2 to LR5).

    Args:
        ids: of one application, locked at their source.
        context: of the application.
        outputs: inits the ids.

    Raises:
        StartRefused: a worker runs.
        TransactionError: an id could not be initialized.
    """
    if not ids:
        return
    application, control_topic = ids[0].application, context.control_topic
    refuse_members([application], context.admin, "its ids are released")
    control_topic.ensure()
    control_topic.write({RELEASED: {"at": time.time_ns()}})
    failpoints.hit("release.after_mark")
    refuse_members([application], context.admin, "its ids are released")
    fence(outputs, map(str, ids))


def _noted(control: ControlState) -> dict[str, str]:
    """Return the ids that starts have noted since the last release, by the task's name."""
    noted = control.entries.get(LEASES)
    if noted is None or noted["released"] != last_release(control):
        return {}
    return noted["ids"]


def _name(task: TransactionalId) -> str:
    return f"{task.sub_topology}/{task.partition}"
