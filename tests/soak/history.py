"""Everything that was seen of a run: what the checker judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tests.soak.effects import Total

Lane = tuple[str, int]
"""An output partition: the topic's side, and its number."""


class Input(NamedTuple):
    """The place of an input."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"input {self.partition}@{self.offset}"


class Seen(NamedTuple):
    """An output that a reader got."""

    side: str
    partition: int
    offset: int
    input: Input
    index: int
    """Which of its input's outputs it is, from 0."""
    attempt: str
    """Id of the call that made it: PROCESS.NUMBER."""
    total: Total
    """The total of its input's key, as the call left it."""

    @property
    def lane(self) -> Lane:
        return self.side, self.partition

    def __str__(self) -> str:
        return f"{self.side}[{self.partition}]@{self.offset}"


class Outcome(StrEnum):
    """What the brokers decided about a transaction in one partition."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"


class Producer(NamedTuple):
    """Who wrote a batch; the epoch rises with every new owner of the transactional.id."""

    id: int
    epoch: int


class Written(NamedTuple):
    """A batch of outputs in a broker's log, with the marker that decided it."""

    side: str
    partition: int
    first: int
    last: int
    producer: Producer
    outcome: Outcome


class OffsetWritten(NamedTuple):
    """An offset of the group in a broker's log, in the order in which it took effect."""

    input: Input
    """The next input to read."""
    producer: Producer
    outcome: Outcome


Polled = Input
"""A committed offset as somebody who asked got it."""


@dataclass(frozen=True)
class History:
    """One run.

    Args:
        inputs: the numbers in the input, by partition in order.
        committed: what a `read_committed` reader got at the end, each partition in order.
        concurrent: the same of a reader that read along.
        uncommitted: what a `read_uncommitted` reader got at the end.
        written: the outputs' batches in the broker's log.
        offsets_written: the group's offsets in the broker's log, as they took effect.
        polled: the group's committed offsets, as they were asked for again and again.
        journals: by process, the input of each of its calls, in order.
        dead: the inputs of the dead letters.
        open_transactional_ids: what a coordinator said is still open at the end.
    """

    inputs: Mapping[int, Sequence[int]]
    committed: Sequence[Seen] = ()
    concurrent: Sequence[Seen] = ()
    uncommitted: Sequence[Seen] = ()
    written: Sequence[Written] = ()
    offsets_written: Sequence[OffsetWritten] = ()
    polled: Sequence[Polled] = ()
    journals: Mapping[str, Sequence[Input]] = field(default_factory=dict)
    dead: Sequence[Input] = ()
    open_transactional_ids: Sequence[str] = ()
