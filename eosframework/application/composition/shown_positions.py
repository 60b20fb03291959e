"""The positions of an application with the bounds of the logs, for display."""

from __future__ import annotations

from dataclasses import dataclass

from eosframework.application.context import ApplicationContext
from eosframework.application.start_checks import gather
from eosframework.records import Position


@dataclass(frozen=True, slots=True)
class ShownPosition:
    """The position of one source partition.

    Args:
        committed: the next offset; None: there is none.
        committed_before: an offset was committed at least once.
        first: the first offset of the log.
        end: the last stable offset of the log.
    """

    topic: str
    partition: int
    committed: int | None
    committed_before: bool
    first: int
    end: int

    @property
    def place(self) -> str:
        """The committed offset as text."""
        if self.committed is not None:
            return f"at {self.committed}"
        return "committed offset LOST" if self.committed_before else "never committed"


def positions_of_transforms(context: ApplicationContext) -> list[ShownPosition]:
    """Return the positions of an application's transforms, from Kafka.

    Raises:
        ClusterUnreachable: no broker answered in time.
    """
    facts = gather(context)
    before = {p: p.topic_partition in facts.control.committed for p in facts.committed}
    return _shown(context, before)


def positions_of_tables(context: ApplicationContext) -> list[ShownPosition]:
    """Return the positions of an application's table sinks, from the database.

    Raises:
        ConfigurationError: no database is configured.
        DatabaseUnusable: the database cannot be queried, or has no schema yet.
    """
    # Import the database driver only for table sinks.
    from eosframework.application.composition.table_writer import table_positions

    positions = table_positions(context.graph, context.settings)
    topics = context.admin.describe_topics(p.topic for p in positions)
    there = [p for p in positions if p.partition < topics[p.topic].partitions]
    return _shown(context, {p: p.offset is not None for p in there})


def _shown(context: ApplicationContext, positions: dict[Position, bool]) -> list[ShownPosition]:
    """Return the rows of positions, each given with True if it was ever committed."""
    bounds = context.admin.log_bounds([p.topic_partition for p in positions])
    return [
        ShownPosition(p.topic, p.partition, p.offset, before, *bounds[p.topic_partition])
        for p, before in positions.items()
    ]
