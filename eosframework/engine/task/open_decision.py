"""The open transaction of an id whose outcome a database decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eosframework.engine.operators.refused_rows import RefusedRows
from eosframework.errors import RowsRefused
from eosframework.records import Position
from eosframework.transactions.ports import Decided, Decisions, Output, is_row


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
        self._rows: list[Output] = []
        self._outputs: list[Output] = []

    def begin(self) -> None:
        """Forget the last transaction."""
        self._rows, self._outputs = [], []
        self._refused.rewind(self._transactional_id)

    def taken(self, outputs: Sequence[Output]) -> Sequence[Output]:
        """Keep rows, and copies of outputs; return the outputs without the rows."""
        rows = [output for output in outputs if is_row(output)]
        if rows:
            self._rows += rows
            outputs = [output for output in outputs if not is_row(output)]
        self._outputs += outputs
        return outputs

    def prepared(self, positions: Sequence[Position]) -> Callable[[], None]:
        """Return the function that decides the transaction; see `Decisions.prepared`."""
        id_ = self._transactional_id
        decided = Decided(id_, positions, self._outputs)
        return self._decisions.prepared(id_, self._rows, decided, self._within_seconds)

    def reject(self, error: RowsRefused) -> None:
        """Let the records fail whose rows were refused."""
        self._refused.note(self._transactional_id, error.refused)

    def committed(self) -> None:
        """Note that the transaction is committed."""
        self._refused.committed(self._transactional_id)
