"""The batch operators that follow one source, over a slice of its messages.

Results are returned per message: the steps that follow run record by record in one transaction,
unaware that the values were computed together.

Batch operators: JSON values to Arrow columns, the user's functions over them, and back to JSON.
Owns the step from the values of a slice of messages to each message's new value. It does not know
what follows: `on_error`, outputs and commits belong to the cycle. pyarrow is an extra; only this
package and backfill/ import it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, TypeVar, cast

from eosframework.engine.operators.arrow_conversion import (
    Message,
    Reader,
    RecordBatch,
    arrow,
    compute,
    json_rows,
    refuse_unwritable,
)
from eosframework.errors import EosError, RunError, raised_by_functions
from eosframework.serialization.serdes import Serde
from eosframework.topology.graph.graph import Operator, Step
from eosframework.topology.spec.batch_spec import KEY_COLUMN, TIME_COLUMN, Columns


def _call_of(step: Step) -> Callable[[RecordBatch], Any]:
    """Return a function that calls a batch operator and checks its result.

    It returns the new batch, or an array of booleans for a filter. It raises RunError if the result
    has the wrong type or length: this is not a fault of single records, so no record of the batch
    is processed.
    """
    function = step.function.call
    check = _checked_batch if step.operator is Operator.MAP_BATCH else _checked_mask

    def call(batch: RecordBatch) -> Any:
        return check(step.name, batch, function(batch))

    return call


def _checked_batch(what: str, before: RecordBatch, result: Any) -> RecordBatch:
    if not isinstance(result, arrow.RecordBatch):
        raise RunError(
            f"{what} returned {_kind_of(result)}; expected a pyarrow.RecordBatch, for example "
            f"pyarrow.record_batch({{'name': array}})"
        )
    _refuse_length(what, "rows", before, result.num_rows)
    for name in (KEY_COLUMN, TIME_COLUMN):
        if name in result.schema.names and not _is_same(before, result, name):
            raise RunError(
                f"{what} changed column {name}; records keep their key and time. Leave the column "
                f"as it is or out, and set a new key after this step, with select_key"
            )
    return result


def _checked_mask(what: str, before: RecordBatch, result: Any) -> Any:
    if isinstance(result, arrow.ChunkedArray):
        result = result.combine_chunks()
    if not isinstance(result, arrow.Array) or not arrow.types.is_boolean(result.type):
        raise RunError(
            f"{what} returned {_kind_of(result)}; expected a pyarrow array of booleans, for "
            f"example pyarrow.compute.greater(batch['price'], 10)"
        )
    _refuse_length(what, "booleans", before, len(result))
    return compute.fill_null(result, False)


def _refuse_length(what: str, of: str, before: RecordBatch, count: int) -> None:
    if count != before.num_rows:
        raise RunError(
            f"{what} returned {count:,} {of} for a batch of {before.num_rows:,}; expected one for "
            f"each row, in their order. To leave records out use filter_batch"
        )


def _is_same(before: RecordBatch, result: RecordBatch, name: str) -> bool:
    return name in before.schema.names and result.column(name).equals(before.column(name))


def _kind_of(result: Any) -> str:
    if isinstance(result, arrow.Array):
        return f"an array of {result.type}"
    return type(result).__name__


@dataclass(frozen=True, slots=True)
class Refused:
    """Stands for the value of a record that failed.

    Args:
        at: number of the node at which it failed.
    """

    error: BaseException
    at: int


class _Gone:
    """Stands for the value of a record that a filter dropped."""


GONE = _Gone()

Value = bytes | None | Refused | _Gone
"""The result for a message's value: JSON; None: a tombstone, which batch operators never see."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A batch of rows, and the places of their messages in the slice."""

    places: Sequence[int]
    batch: RecordBatch


@dataclass(slots=True)
class _Frame:
    """The result of a node for a slice."""

    pieces: list[_Piece] = field(default_factory=list[_Piece])
    refused: dict[int, Refused] = field(default_factory=dict[int, Refused])


@dataclass(frozen=True, slots=True)
class _Slice:
    messages: Sequence[Message]
    values: Sequence[bytes | None]
    places: Sequence[int]
    """The messages that have a value."""


class Stage:
    """Runs nodes in the order in which they were added; each is known by its number.

    Args:
        key: serde of the source's keys.
        time_of: returns a message's event time in milliseconds.
        most_rows: the most rows of a batch; None: the whole slice.
    """

    def __init__(
        self, key: Serde, time_of: Callable[[Any], int], most_rows: int | None = None
    ) -> None:
        self._key = key
        self._time_of = time_of
        self._most_rows = most_rows
        self._nodes: list[_Reading | _Calling] = []
        self._readings: dict[Columns, int] = {}
        self._exits: list[tuple[int, bool]] = []

    def reading(self, columns: Columns) -> int:
        """Add a node that reads columns; nodes with equal columns share one."""
        if columns not in self._readings:
            reader = Reader(columns, self._key, self._time_of)
            self._readings[columns] = self._add(_Reading(reader, self._most_rows, len(self._nodes)))
        return self._readings[columns]

    def calling(self, before: int, step: Step) -> int:
        """Add a batch operator after another node."""
        return self._add(_Calling(step, before, len(self._nodes)))

    def exit(self, node: int) -> None:
        """Add a node to those whose values are returned."""
        self._exits.append((node, self._makes_values(node)))

    def __call__(self, messages: Sequence[Message]) -> list[list[Value]]:
        """Return the values of all messages at each exit, in the order of the exits.

        Raises:
            RunError: a function returned a wrong type or length; nothing of the slice was done.
        """
        values = [message.value() for message in messages]
        places: Sequence[int] = range(len(values))
        if None in values:
            places = [place for place in places if values[place] is not None]
        given = _Slice(messages, values, places)
        frames: list[_Frame] = []
        for node in self._nodes:
            frames.append(node.run(given, frames))
        return [self._values(given, frames[node], node, made) for node, made in self._exits]

    def _add(self, node: _Reading | _Calling) -> int:
        self._nodes.append(node)
        return len(self._nodes) - 1

    def _makes_values(self, number: int) -> bool:
        """Return whether the values at a node are new; a filter passes its input on."""
        node = self._nodes[number]
        return isinstance(node, _Calling) and (node.maps or self._makes_values(node.before))

    def _values(self, given: _Slice, frame: _Frame, node: int, made: bool) -> list[Value]:
        whole = len(frame.pieces) == 1 and len(frame.pieces[0].places) == len(given.messages)
        found: list[Value] = [GONE] * len(given.messages)
        for place, refused in frame.refused.items():
            found[place] = refused
        if len(given.places) < len(found):
            for place, value in enumerate(given.values):
                if value is None:
                    found[place] = None
        for piece in frame.pieces:
            if not made:
                for place in piece.places:
                    found[place] = given.values[place]
                continue
            for places, texts in _written(piece, node):
                if isinstance(texts, Refused):
                    found[places[0]] = texts
                elif whole and len(texts) == len(found):
                    return list(texts)
                else:
                    for place, text in zip(places, texts, strict=True):
                        found[place] = text
        return found


class _Reading:
    """Reads the columns of the messages that have a value."""

    def __init__(self, reader: Reader, most_rows: int | None, number: int) -> None:
        self._reader = reader
        self._most_rows = most_rows
        self._number = number

    def run(self, given: _Slice, frames: Sequence[_Frame]) -> _Frame:
        """Return the columns; records whose values do not fit are refused."""
        frame = _Frame()
        places, messages, values = given.places, given.messages, given.values
        if len(places) < len(messages):
            messages = [messages[place] for place in places]
            values = [values[place] for place in places]
        present = cast("Sequence[bytes]", values)

        def read(first: int, end: int) -> RecordBatch:
            return self._reader.read(messages[first:end], present[first:end])

        size = self._most_rows or max(len(places), 1)
        for begin in range(0, len(places), size):
            for first, end, batch in _bisect_rows(begin, min(begin + size, len(places)), read):
                if isinstance(batch, BaseException):
                    frame.refused[places[first]] = Refused(batch, self._number)
                else:
                    frame.pieces.append(_Piece(places[first:end], batch))
        return frame


class _Calling:
    """Calls the function of a batch operator with the result of another node."""

    def __init__(self, step: Step, before: int, number: int) -> None:
        self.before = before
        self.maps = step.operator is Operator.MAP_BATCH
        self._name = step.name
        self._call = _call_of(step)
        self._number = number

    def run(self, given: _Slice, frames: Sequence[_Frame]) -> _Frame:
        """Return the result; records for which the function fails are refused."""
        frame = _Frame(refused=dict(frames[self.before].refused))
        for piece in frames[self.before].pieces:
            for part, result in self._called(piece):
                if isinstance(result, BaseException):
                    frame.refused[part.places[0]] = Refused(result, self._number)
                elif self.maps:
                    refuse_unwritable(result, self._name)
                    frame.pieces.append(_Piece(part.places, result))
                elif kept := list(compress(part.places, result.to_pylist())):
                    frame.pieces.append(_Piece(kept, part.batch.filter(result)))
        return frame

    def _called(self, piece: _Piece) -> Iterator[tuple[_Piece, Any]]:
        def call(first: int, end: int) -> Any:
            return self._call(piece.batch.slice(first, end - first))

        for first, end, result in _bisect_rows(0, len(piece.places), call):
            yield _Piece(piece.places[first:end], piece.batch.slice(first, end - first)), result


def _written(piece: _Piece, node: int) -> Iterator[tuple[Sequence[int], Refused | list[bytes]]]:
    """Yield the JSON of rows with their places; a row may fail, for example with invalid text."""

    def write(first: int, end: int) -> list[bytes]:
        return json_rows(piece.batch.slice(first, end - first))

    for first, end, texts in _bisect_rows(0, len(piece.places), write):
        places = piece.places[first:end]
        yield places, Refused(texts, node) if isinstance(texts, BaseException) else texts


T = TypeVar("T")

_Done = tuple[int, int, T | BaseException]
"""First row, end of the rows (exclusive), and the result; for a single row it may be its error."""


def _bisect_rows(first: int, end: int, work: Callable[[int, int], T]) -> Iterator[_Done[T]]:
    """Yield the results of `work` over rows, bisected where it fails, down to the failing row.

    An EosError does not depend on single rows and is raised.

    Args:
        first: the first row.
        end: the end of the rows, exclusive.
        work: takes such a pair; fails where a row does not fit.
    """
    try:
        result = work(first, end)
    except EosError:
        raise
    except raised_by_functions() as error:
        failure = error
    else:
        yield first, end, result
        return
    if end - first == 1:
        yield first, end, failure.with_traceback(None)
        return
    middle = (first + end) // 2
    yield from _bisect_rows(first, middle, work)
    yield from _bisect_rows(middle, end, work)
