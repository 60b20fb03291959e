"""The decisions of a database, before an offline change of positions moves past them.

An offline change has no members, and has fenced all ids (F1 to F3). Then a decision that Kafka
lacks is produced again (V6 of `engine/worker/settlement`), and all decisions are forgotten: a taker
would compare them with positions that were set.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from eosframework.application.context import ApplicationContext
from eosframework.config import Settings
from eosframework.engine.worker.settlement import Settlement
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.worker_clients import producers
from eosframework.records import Position, TopicPartition
from eosframework.topology.graph.graph import Graph
from eosframework.transactions.producing import fence

if TYPE_CHECKING:
    from eosframework.postgres.database.tables.decisions import PostgresDecisions


_QUESTIONS = 9


@dataclass(frozen=True, slots=True)
class _EmptyGroup:
    """A group without members, as a settlement needs it."""

    name: str
    admin: ClusterAdmin

    def committed(self, partitions: Sequence[TopicPartition]) -> list[Position]:
        """Return the stable committed positions."""
        return self.admin.committed(self.name, partitions)

    def membership(self) -> Any:
        """Return the membership under which offsets of a group without members are accepted."""
        return self.admin.no_membership(self.name)


def decisions(graph: Graph, settings: Settings) -> PostgresDecisions:
    """Return the database that decides the transactions of a graph's transforms.

    Raises:
        ConfigurationError: no database is configured.
        StartRefused: the role lacks privileges.
        DatabaseUnavailable: the database is unavailable.
    """
    # Import the database driver only for tables.
    from eosframework.postgres.database import Database
    from eosframework.postgres.database.grants import DECISION_GRANTS, require_grants
    from eosframework.postgres.database.tables.decisions import PostgresDecisions

    database = Database(settings.database, application_name=f"eosframework {graph.application}")
    require_grants(database, DECISION_GRANTS)
    return PostgresDecisions(database, graph.application, graph.together)


def round_trip_seconds(settings: Settings) -> float:
    """Return the median time of a question to the database.

    Raises:
        ConfigurationError: no database is configured.
        DatabaseUnusable: the database is unavailable.
    """
    # Import the database driver only for tables.
    from eosframework.postgres.database import Database
    from eosframework.postgres.database.connection import queries

    took: list[float] = []
    with Database(settings.database).session("ask the database") as connection:
        for _ in range(_QUESTIONS):
            began = time.monotonic()
            queries.is_standby(connection)
            took.append(time.monotonic() - began)
    return median(took)


def settle_decisions(context: ApplicationContext) -> None:
    """Produce again what Kafka lacks of the decisions of a stopped application; forget them.

    Raises:
        DatabaseUnusable: the database is unavailable, or has no schema yet.
        TransactionError: a decision could not be committed.
    """
    if not context.graph.together:
        return
    graph, settings = context.graph, context.settings
    database = decisions(graph, settings)
    ids = database.known_ids()
    outputs = producers(settings)
    try:
        fence(outputs, ids)
        group = _EmptyGroup(graph.application, context.admin)
        Settlement(database, outputs, group).settle_others(ids)
    finally:
        outputs.stop()
    database.forget()


def set_decided_offsets(context: ApplicationContext, positions: Sequence[Position]) -> None:
    """Let the database decide from positions on; an offset of None forgets a partition.

    Raises:
        DatabaseUnusable: they may or may not be set; repeat the call.
    """
    if not context.graph.together:
        return
    writing = {
        source.topic
        for part in context.graph.sub_topologies
        if part.together
        for source in part.sources
    }
    kept = [position for position in positions if position.topic in writing]
    decisions(context.graph, context.settings).set_offsets(kept)


def forget_decided(context: ApplicationContext) -> None:
    """Let the database decide from the begin on, for an application that is reset and fenced.

    Raises:
        DatabaseUnusable: the decisions may or may not be forgotten; repeat the call.
    """
    if context.graph.together:
        decisions(context.graph, context.settings).forget_all()
