"""The end of recorded ownership, so that versions that record no entries can start again.

    W1  refuse while the application's group has members
    W2  mark the control topic: no worker starts before this is complete. Mark the ownership topic:
        a worker that has started ends in its next reading, which follows each init of its own id
    W3  init every id that is listed, or was used live; then note that this is done
    W4  delete the ownership topic, and wait until it is gone
    W5  delete the request to record, and write the source of ids as before it

The topic is read in W3 after the mark of W2, so a worker that is suspended in a takeover or in a
recycle is listed and fenced, or finds the mark:

    1. its entry is acknowledged before W3 reads, and its id inited before W3 inits it: it is fenced
    2. its entry is, and its id is inited afterwards: its next reading (K2, K6) finds the mark, or
       the topic is gone
    3. its entry is acknowledged later: so is its reading (K2)

The steps are in docs/model/ownership.pml (`STOP`). Each step may be repeated.
"""

from __future__ import annotations

from dataclasses import dataclass

from eosframework import failpoints
from eosframework.application.context import ApplicationContext
from eosframework.application.control_topic import OWNERSHIP, ControlState
from eosframework.application.deleted_topics import delete_and_wait
from eosframework.application.fencing import fence, live_ids, refuse_members
from eosframework.application.ownership_topic import (
    ownership_of,
    refuse_lost_ownership,
    stopping_entries,
    unrecorded_ids,
)
from eosframework.errors import StartRefused
from eosframework.txnid import ownership_topic


@dataclass(frozen=True, slots=True)
class StoppedRecording:
    """The removed state.

    Args:
        fenced: number of ids that were fenced.
        topic: that was deleted.
    """

    fenced: int
    topic: str


def refuse_unfinished_stop(control: ControlState) -> None:
    """Refuse to start after an interrupted end of recording.

    Raises:
        StartRefused: says how to finish it.
    """
    if control.ownership is not None and control.ownership.is_stopping:
        raise StartRefused(
            "the end of recorded ownership was begun and is not complete, so it is unknown which "
            "ids are fenced; finish it: eosframework ids stop-recording APP"
        )


def stop_recording(context: ApplicationContext) -> StoppedRecording | None:
    """Perform W1 to W5; after an interruption it can be repeated.

    Returns:
        None: no entries are recorded, and nothing was done.

    Raises:
        StartRefused: the group has members, or the ownership topic is not the recorded one.
        TransactionError: an id could not be inited.
        ClusterUnreachable: no broker answered in time.
    """
    graph, admin, control_topic = context.graph, context.admin, context.control_topic
    asked = control_topic.refresh().ownership
    if asked is None:
        return None
    refuse_members([graph.application], admin, "its ids are no longer recorded")
    topic = ownership_topic(graph.application)
    fenced = 0 if asked.is_fenced_for_stop else _fence_all(context, asked.topic_id, topic)
    delete_and_wait([topic], admin)
    failpoints.hit("stop_recording.after_topic")
    known = control_topic.refresh().entries
    control_topic.write({**unrecorded_ids(known), OWNERSHIP: None})
    control_topic.refresh()
    return StoppedRecording(fenced, topic)


def _fence_all(context: ApplicationContext, topic_id: str, topic: str) -> int:
    """Perform W2 and W3, and return the number of ids."""
    graph, admin, control_topic = context.graph, context.admin, context.control_topic
    found = admin.describe_topics([topic])[topic]
    refuse_lost_ownership(control_topic.state, found.topic_id if found.exists else None, topic)
    control_topic.write(stopping_entries(topic_id, fenced=False))
    log = ownership_of(context)
    log.mark_stop()
    failpoints.hit("stop_recording.after_mark")
    counts = admin.partition_counts(graph.source_topics)
    fence(lambda known: live_ids(graph, known, counts), context.settings, control_topic)
    ids = {*live_ids(graph, control_topic.state, counts), *log.ids()}
    failpoints.hit("stop_recording.after_fence")
    control_topic.write(stopping_entries(topic_id, fenced=True))
    return len(ids)
