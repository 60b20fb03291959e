"""Errors of entries that cannot be decoded: of stores, and of global tables.

An entry is written by an earlier transaction, or by another program, so the record that reads it
is not to blame: the error is the framework's, and never goes to `on_error`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from eosframework.errors import (
    EntryDamaged,
    InstanceFenced,
    RunError,
    TransactionError,
    raised_by_functions,
)

T = TypeVar("T")

_OF_STORE = (
    "If the topology that wrote it declared other types, run that one. Otherwise produce the right "
    "entry, or one without a value (its key then begins anew), under the same key to the same "
    "partition of the changelog, and start the worker again; `eosframework reset` begins with "
    "empty stores"
)
_OF_TOPIC = (
    "Declare the types that the topic has, or produce the right row, or one without a value, under "
    "the same key to the same partition, and start the worker again"
)


@dataclass(frozen=True, slots=True)
class Holder:
    """The store or global table that entries belong to.

    Args:
        text: names it in messages.
        remedy: the next step if an entry cannot be decoded.
        topic: the topic that its entries come from; None: unknown.
        partition: of that topic; None: any.
    """

    text: str
    remedy: str
    topic: str | None = None
    partition: int | None = None

    def damaged(self, part: bytes, error: BaseException) -> BaseException:
        """Return the error to raise for bytes that cannot be decoded.

        Errors of the framework stay as they are: an unavailable schema registry damages nothing.

        Args:
            part: a key, a value, or a part of a value.
            error: the error of the decoder.
        """
        if isinstance(error, RunError | InstanceFenced | TransactionError):
            return error
        reason = " ".join(f"{type(error).__name__}: {_text_of(error)}".split())
        reason = reason if len(reason) <= 300 else reason[:297] + "..."
        origin = "" if self.partition is None else f" of {self.topic}[{self.partition}]"
        return EntryDamaged(
            f"{self.text}: an entry{origin} cannot be read: {reason}. No record is to blame, and "
            f"nothing was written for those that use the entry. {self.remedy}",
            holder=self.text,
            topic=self.topic,
            partition=self.partition,
            part=part,
        )

    def reading(self, decode: Callable[[bytes], T]) -> Callable[[bytes], T]:
        """Return a decoder that raises `EntryDamaged`."""

        def read(data: bytes) -> T:
            try:
                return decode(data)
            except raised_by_functions() as error:
                raise self.damaged(data, error) from error

        return read


def of_store(name: str, topic: str | None = None, partition: int | None = None) -> Holder:
    """Return the holder of a store's entries.

    Args:
        name: of the store.
        topic: its changelog.
        partition: of the task.
    """
    return Holder(f"store {name!r}", _OF_STORE, topic, partition)


def of_global_table(topic: str) -> Holder:
    """Return the holder of a global table's rows."""
    return Holder(f"global table of topic {topic!r}", _OF_TOPIC, topic)


def _text_of(error: BaseException) -> str:
    try:
        return str(error).encode(errors="backslashreplace").decode()
    except raised_by_functions():  # Of a user's own class.
        return "it has no text"
