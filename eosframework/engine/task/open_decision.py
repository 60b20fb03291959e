"""The open transaction of an id whose outcome a database decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eosframework.engine.operators.refused_rows import RefusedRows
from eosframework.errors import RowsRefused
from eosframework.records import Position
from eosframework.transactions.ports import Decisions, Output


class OpenDecision:
    """The rows and outputs of an id's open transaction.

    Args:
        decisions: the database.
        transactional_id: of the producer.
        refused: the rows that were refused.
        within_seconds: time for which a commit waits for an unavailable database.
    """

    def __init__(
        self,
        decisions: Decisions,
        transactional_id: str,
        refused: RefusedRows,
        within_seconds: float,
    ) -> None:
        self._refused = refused
        self._decisions = decisions
        self._transactional_id = transactional_id
        self._within_seconds = within_seconds
        self._undecided = decisions.begin(transactional_id)

    def begin(self) -> None:
        """Forget the last transaction."""
        self._undecided = self._decisions.begin(self._transactional_id)
        self._refused.rewind(self._transactional_id)

    def taken(self, outputs: Sequence[Output]) -> Sequence[Output]:
        """Keep rows, and copies of outputs; return the outputs without the rows."""
        return self._undecided.add(outputs)

    def prepared(self, positions: Sequence[Position]) -> Callable[[], None]:
        """Return the function that decides the transaction; see `Undecided.prepared`."""
        return self._undecided.prepared(positions, self._within_seconds)

    def reject(self, error: RowsRefused) -> None:
        """Let the records fail whose rows were refused."""
        self._refused.note(self._transactional_id, error.refused)

    def committed(self) -> None:
        """Note that the transaction is committed."""
        self._refused.committed(self._transactional_id)
