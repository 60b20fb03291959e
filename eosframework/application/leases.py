"""Leased ids in the control topic, so that a takeover needs no database.

No two partitions may come to share an id, however a start and a release interleave:

    start     L1  the source gives the ids; waits for a pending release
              L2  write into the control topic which partition has which id
              L3  the source gives the same ids once more, or the start is refused
    takeover  L4  init the former ids, so that nothing open hides the control topic's end; then each
                  partition's id must still be in the control topic
    release   R1  lock the ids of the application at their source
              R2  the group has no member; init all ids of the application, so that nothing open
                  hides the control topic's end
              R3  delete the entries from the control topic, and verify that they are gone
              R4  the group has no member
              R5  init the ids: fences suspended workers, ends open transactions
              R6  free them at their source

A worker that wrote L2 before R3 finds its entry gone at L4, or was a member at R4. A worker that
wrote it after R3 performed L3 after R6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from eosframework.application.context import ApplicationContext
from eosframework.application.control_entries import RECORDED_ENTRY
from eosframework.application.control_topic import IDS, ControlState, leased_key
from eosframework.application.fencing import refuse_members
from eosframework.config import Ids
from eosframework.errors import DatabaseUnusable, EosError, StartRefused
from eosframework.kafka.producer.producer_pool import ProducerPool
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import Graph
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
    """Return the tasks with their ids (L1).

    An unavailable source is not needed if the control topic has the ids of all tasks.

    Raises:
        StartRefused: the source has no id for a task.
        DatabaseUnusable: the source is unavailable, and the control topic lacks an id.
    """
    try:
        return source.ids(names)
    except DatabaseUnusable as error:
        known = {
            (task.sub_topology, task.partition): task
            for leased in control.leased.values()
            for task in leased
        }
        found = [known.get((name.sub_topology, name.partition)) for name in names]
        complete = [task for task in found if task is not None]
        if len(complete) < len(names):
            raise
        structlog.get_logger("eosframework.worker").warning(
            "ids_taken_from_control_topic", error=str(error)
        )
        return complete


def id_entries(
    graph: Graph, ids: Sequence[TransactionalId], control: ControlState
) -> dict[str, object]:
    """Return the new entries of the control topic about the ids (L2)."""
    kind = Ids.LEASED if any(task.leased for task in ids) else Ids.DERIVED
    entries: dict[str, object] = {
        leased_key(TopicPartition(topic, task.partition), str(task)): {
            "application": task.application,
            "sub_topology": task.sub_topology,
        }
        for task in ids
        if task.leased is not None
        for topic, part in graph.readers.items()
        if part.name == task.sub_topology
        if task not in control.leased.get(TopicPartition(topic, task.partition), ())
    }
    if ids and kind is not control.ids:
        is_recorded = kind is Ids.DERIVED and control.ownership is not None
        entries[IDS] = RECORDED_ENTRY if is_recorded else {"from": kind}
    return entries


def refuse_changing_ids(ids: Ids, control: ControlState, client_ids: Sequence[str]) -> None:
    """Refuse another source of ids than that of running workers: they would not fence each other.

    Raises:
        StartRefused: says what to do.
    """
    if control.cluster_id is not None and client_ids and ids is not control.ids:
        raise StartRefused(
            f"worker.ids={ids} here, and {len(client_ids)} workers that run use "
            f"{control.ids} ids: neither would fence the other. Stop all workers first; one "
            f"that was killed counts until worker.session_timeout_seconds have passed"
        )


def refuse_moved_ids(graph: Graph, ids: Sequence[TransactionalId], control: ControlState) -> None:
    """Refuse ids that moved to another task by any other way than `ids release`.

    Raises:
        StartRefused: names the id and both tasks.
    """
    before = {str(task): task for leased in control.leased.values() for task in leased}
    for task in ids:
        known = before.get(str(task))
        names = (task.sub_topology, task.partition)
        if known is not None and (known.sub_topology, known.partition) != names:
            raise StartRefused(
                f"transactional id {task} is leased to {task.sub_topology}[{task.partition}], and "
                f"the control topic of application {graph.application!r} knows it as the id of "
                f"{known.sub_topology}[{known.partition}], which may still be written under it; "
                f"undo that change of the database, or free the id with "
                f"`eosframework ids release APP {task}`"
            )


def refuse_other_ids(before: Sequence[TransactionalId], now: Sequence[TransactionalId]) -> None:
    """Refuse to start if ids were released meanwhile (L3).

    Raises:
        StartRefused: names the first.
    """
    for one, other in zip(before, now, strict=True):
        if one != other:
            raise StartRefused(
                f"transactional id {one} of {one.sub_topology}[{one.partition}] was released while "
                f"this worker started; start it again"
            )


def release(
    ids: Sequence[TransactionalId], context: ApplicationContext, outputs: ProducerPool
) -> None:
    """Make sure that no producer writes under the ids, now or later (R2 to R5).

    Args:
        ids: of one application, locked at their source.
        context: of the application.
        outputs: inits the ids.

    Raises:
        StartRefused: a worker runs, or an open transaction hides the control topic's end.
        TransactionError: an id could not be initialized.
    """
    if not ids:
        return
    application, control_topic = ids[0].application, context.control_topic
    refuse_members([application], context.admin, "its ids are released")
    control_topic.ensure()
    known = {str(task) for leased in control_topic.refresh().leased.values() for task in leased}
    outputs.close(outputs.open(sorted(known | {str(task) for task in ids})))
    # R3. An entry that a worker writes (L2) after this read is not deleted; the second read finds
    # it, and nothing is released.
    entries = _entries_of(ids, control_topic.refresh())
    control_topic.write(dict.fromkeys(entries))
    try:
        if _entries_of(ids, control_topic.refresh()):
            raise StartRefused(
                f"no id of application {application!r} was released: an open transaction hides "
                f"the end of its control topic {control_topic.topic!r}; wait for its timeout "
                f"(`eosframework txn hanging --topic {control_topic.topic}` shows it) and try again"
            )
        # R4. A worker that joins from here on reads the topic without the entries (L4), and ends.
        refuse_members([application], context.admin, "its ids are released")
        outputs.close(outputs.open(sorted(map(str, ids))))
    except EosError:
        # The ids stay leased: takeovers need the entries to fence their former owners.
        control_topic.write(entries)
        raise


def _entries_of(ids: Sequence[TransactionalId], control: ControlState) -> dict[str, object]:
    keys = {
        leased_key(partition, str(task))
        for partition, leased in control.leased.items()
        for task in leased
        if task in ids
    }
    return {key: control.entries[key] for key in sorted(keys)}
