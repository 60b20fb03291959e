"""The choice of a worker's producers: one for all of its partitions, or one for each.

With `worker.producers=auto` a worker has one producer wherever that is sound:

    leased ids, no transactions                         partition: an id is for one partition
    no sub-topology                                     partition: there is no task
    a member runs a version that records no entries     partition: its ids would be unknown
    the ownership topic cannot be had, and nothing is   partition: a worker with an id of its own
      recorded yet                                      needs it
    otherwise                                           worker

Each worker chooses for itself, when it starts: workers of both kinds fence each other.
"""

from __future__ import annotations

from eosframework.config import Producers, WorkerSettings
from eosframework.kafka.admin.metadata import GroupDescription
from eosframework.kafka.consumer.group import records_ownership
from eosframework.topology.graph.graph import Graph


def chosen_by_settings(graph: Graph, worker: WorkerSettings) -> Producers:
    """Return the choice that settings and topology allow: one producer each, or for a worker."""
    if worker.producers is not Producers.AUTO:
        return worker.producers
    is_sound = worker.can_share_producer and graph.sub_topologies
    return Producers.WORKER if is_sound else Producers.PARTITION


def chosen_producers(graph: Graph, worker: WorkerSettings, group: GroupDescription) -> Producers:
    """Return the choice alongside the present members of the group.

    Args:
        graph: of the application.
        worker: settings of the worker that starts.
        group: of the application.
    """
    chosen = chosen_by_settings(graph, worker)
    if worker.producers is Producers.AUTO and not all(map(records_ownership, group.client_ids)):
        return Producers.PARTITION
    return chosen
