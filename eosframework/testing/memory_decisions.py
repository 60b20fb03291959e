"""A database in memory that decides transactions, for the drivers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from eosframework.errors import TaskFenced
from eosframework.postgres.tables.decided_rows import DecidedRows, OpenRows, decoded, refusal
from eosframework.postgres.tables.table_ports import TableRows
from eosframework.records import Position, TopicPartition
from eosframework.topology.graph.graph import TableSink
from eosframework.transactions import failpoints
from eosframework.transactions.ports import Decided


class MemoryDatabase:
    """The content of the database, which all processes share.

    Args:
        sinks: the tables that are written in decisions.
    """

    def __init__(self, sinks: Sequence[TableSink]) -> None:
        self.rows: list[TableRows] = []
        self.maker = DecidedRows(sinks)
        self.epochs: dict[str, int] = {}
        self.decided: dict[str, bytes] = {}
        self.offsets: dict[TopicPartition, int] = {}


class MemoryDecisions:
    """The `Decisions` of one process."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database
        self._epochs: dict[str, int] = {}
        self._own: dict[str, Collection[TopicPartition]] = {}

    @property
    def unavailable(self) -> None:
        """None: it is there."""

    def take(
        self, ids: Collection[str], own: Mapping[str, Collection[TopicPartition]]
    ) -> list[Decided]:
        """Raise epochs; see `Decisions`."""
        database = self._database
        for id_ in ids:
            database.epochs[id_] = database.epochs.get(id_, 0) + 1
        self._epochs |= {id_: database.epochs[id_] for id_ in own}
        self._own |= own
        return [decoded(id_, database.decided[id_]) for id_ in ids if id_ in database.decided]

    def next_offsets(self, transactional_id: str) -> Mapping[TopicPartition, int | None]:
        """Return what is decided; see `Decisions`."""
        return {p: self._database.offsets.get(p) for p in self._own[transactional_id]}

    def offsets(self) -> Mapping[TopicPartition, int | None]:
        """Return what is decided now; see `Decisions`."""
        return dict(self._database.offsets)

    def begin(self, transactional_id: str) -> OpenRows:
        """Begin a transaction; see `Decisions`."""
        return self._database.maker.begin(partial(self._decision_of, transactional_id))

    def _decision_of(
        self, id_: str, rows: OpenRows, positions: Sequence[Position], within_seconds: float
    ) -> Callable[[], None]:
        """Return the function that decides a transaction."""
        database, own, epoch = self._database, self._own[id_], self._epochs[id_]

        def decide() -> None:
            if refused := [row for batch in rows.batches for row in batch.refused]:
                raise refusal(refused)
            failpoints.hit("decision.before_commit")
            if database.epochs[id_] != epoch:
                raise TaskFenced(f"transactional.id {id_} was taken in the database")
            database.rows += [table for batch in rows.batches for table in batch.tables]
            database.decided[id_] = rows.encoded(positions)
            database.offsets |= {
                p.topic_partition: p.offset
                for p in positions
                if p.topic_partition in own and p.offset is not None
            }
            failpoints.hit("decision.after_commit")

        return decide

    def close(self) -> None:
        """Do nothing: there is no connection."""
