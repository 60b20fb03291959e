"""Entries of the journal of effects, as records of its topic."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

import orjson

from eosframework.engine.failures.failure_handler import summary
from eosframework.errors import RunError
from eosframework.serialization import strict_json
from eosframework.transactions.ports import Delivered, Message, Output

RESULT_BYTES = 256 * 1024
"""The largest result, as JSON: all results are held in memory, and a record has to fit a topic."""


class EntryState(StrEnum):
    """The knowledge that an entry has of its effect."""

    INTENT = "intent"
    """A call may have begun."""
    FAILED = "failed"
    """A call has ended without a result; it may have taken effect."""
    DONE = "done"
    """It took effect, and has a result."""
    UNUSABLE = "unusable"
    """It took effect, and its result cannot be kept."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The newest entry of a key.

    Args:
        attempt: number of the attempt.
        topic: from which the record was read for which the attempt was made.
        offset: of that record.
        result: of an effect that is done, as JSON.
        error: the reason why there is no result.
        written_ms: time of writing, in milliseconds since the epoch.
    """

    state: EntryState
    attempt: int
    topic: str
    offset: int
    result: bytes = b"null"
    error: str = ""
    written_ms: int = 0

    @property
    def is_doubt(self) -> bool:
        """True if it cannot be known whether the effect took place."""
        return self.state in (EntryState.INTENT, EntryState.FAILED)


def result_of(value: Any) -> bytes:
    """Return the JSON of a result.

    Raises:
        TypeError, ValueError: it has none, or one that is too large.
    """
    encoded = strict_json.write_kept(value)
    if len(encoded) > RESULT_BYTES:
        raise ValueError(f"it has {len(encoded):,} bytes as JSON, and may have {RESULT_BYTES:,}")
    return encoded


def value_of(result: bytes) -> Any:
    """Return the value of a result."""
    return strict_json.read(result)


def error_text(error: BaseException) -> str:
    """Return the text of an error that an entry keeps."""
    return summary(error)


def output_of(
    topic: str, partition: int, key: str, entry: Entry, delivered: Delivered | None = None
) -> Output:
    """Return the record of an entry."""
    fields: dict[str, Any] = {
        "state": str(entry.state),
        "attempt": entry.attempt,
        "input": [entry.topic, entry.offset],
    }
    if entry.state is EntryState.DONE:
        fields["result"] = orjson.Fragment(entry.result)
    if entry.error:
        fields["error"] = entry.error
    value = orjson.dumps(fields)
    return (topic, value, key.encode(), partition, delivered, None, entry.written_ms, None)


def read_entry(message: Message) -> tuple[str, Entry]:
    """Return the key and the entry of a record.

    Raises:
        RunError: another program wrote it, so it is not known which effects were made.
    """
    try:
        fields = cast("dict[str, Any]", strict_json.read(message.value() or b""))
        topic, offset = fields["input"]
        entry = Entry(
            EntryState(fields["state"]),
            int(fields["attempt"]),
            str(topic),
            int(offset),
            strict_json.write_kept(fields.get("result")),
            str(fields.get("error", "")),
            message.timestamp()[1],
        )
        return (message.key() or b"").decode(), entry
    except (ValueError, KeyError, TypeError) as error:
        place = f"{message.topic()}[{message.partition()}]@{message.offset()}"
        raise RunError(
            f"the entry of the journal of effects at {place} cannot be read "
            f"({type(error).__name__}: {error}): it was not written by this application, so it is "
            f"not known which effects were made. Allow only the application to write to the topic; "
            f"`eosframework topics` has the commands that show and delete the record"
        ) from error
