"""Rows that a database refused, so that the steps that write them fail when they run again."""

from __future__ import annotations

from collections.abc import Iterable

from eosframework.errors import RowRefused
from eosframework.transactions.ports import Message

_Place = tuple[str, int, int, bytes | None, int]


class RefusedRows:
    """Records whose rows a database refused: the step that writes the row fails when it runs again.

    So `on_error` applies to the record, or to the result of a window or timer, as to any other
    error, and nothing of it stays in a store. A place is forgotten after the transaction in which
    its row failed.
    """

    def __init__(self) -> None:
        self._refused: dict[_Place, tuple[str, RowRefused]] = {}
        self._failed: set[_Place] = set()

    def __bool__(self) -> bool:
        return bool(self._refused)

    def note(self, writer: str, refused: Iterable[tuple[Message, RowRefused]]) -> None:
        """Add records, with the reasons of the database.

        Args:
            writer: transactional id of the transaction.
            refused: the records.
        """
        self._refused |= {_place(message): (writer, error) for message, error in refused}

    def check(self, message: Message) -> None:
        """Raise what the database said about a row of a message; called where the row is written.

        Raises:
            RowRefused: the database refused it.
        """
        place = _place(message)
        if place in self._refused:
            self._failed.add(place)
            raise self._refused[place][1]

    def rewind(self, writer: str) -> None:
        """Expect again what failed in a transaction that was dropped."""
        self._failed -= self._failed_of(writer)

    def committed(self, writer: str) -> None:
        """Forget what failed in a transaction that is committed."""
        for place in self._failed_of(writer):
            self._failed.remove(place)
            del self._refused[place]

    def _failed_of(self, writer: str) -> set[_Place]:
        return {place for place in self._failed if self._refused[place][0] == writer}


def _place(message: Message) -> _Place:
    _, timestamp = message.timestamp()
    return message.topic(), message.partition(), message.offset(), message.key(), timestamp
