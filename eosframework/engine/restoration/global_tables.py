"""Global tables: topics that each process reads completely, for lookups by any key.

They are read outside the group, from the first offset of every partition; no task runs before
everything that existed at the start has been read. This includes records after the start of an open
transaction, so the tables wait until it has ended. Then they follow their topics. They take part in
no transaction: a lookup finds the current row, so processing the same records again may give other
results.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from eosframework.engine.restoration.held_input import FIND_OPEN
from eosframework.engine.stores.state_ports import ChangelogReading, Changelogs
from eosframework.errors import ClusterUnreachable, PositionLost
from eosframework.records import TopicPartition

SLICE_SECONDS = 0.1
"""Time that one turn reads until the tables are complete."""

RETRY_SECONDS = 1.0

HELD_SECONDS = 10.0
"""Time without a record after which the remaining offsets are logged."""

Rows = dict[bytes, tuple[bytes, int]]
"""By encoded key, the encoded row and its timestamp in milliseconds."""


@dataclass(slots=True)
class GlobalTables:
    """The global tables of one process.

    Args:
        log: reads their topics.
        partitions: the number of partitions of each topic.
        clock: seconds, monotonic.
    """

    log: Changelogs
    partitions: Mapping[str, int]
    clock: Callable[[], float] = time.monotonic
    topics: dict[str, Rows] = field(init=False)
    """The rows of each topic; the dicts stay the same as long as the process lives."""
    is_complete: bool = field(init=False, default=False)
    _reading: ChangelogReading | None = field(init=False, default=None)
    _ends: dict[TopicPartition, int] = field(init=False, default_factory=dict[TopicPartition, int])
    _filled: dict[str, Rows] = field(init=False, default_factory=dict[str, Rows])
    _began_at: float = field(init=False, default=0.0)
    _not_before: float = field(init=False, default=0.0)
    _came_at: float | None = field(init=False, default=None)
    """Clock time of the last read record; None: the warning was logged."""

    def __post_init__(self) -> None:
        self.topics = {topic: {} for topic in self.partitions}

    @property
    def records_left(self) -> int:
        """The number of offsets to read before tasks may run."""
        reading = self._reading
        if self.is_complete or reading is None:
            return 0
        return sum(max(0, end - reading.read_to(p)) for p, end in self._ends.items())

    def turn(self) -> bool:
        """Read on, and return whether everything that existed at the start has been read."""
        if self._reading is None:
            self._begin()
        elif self._ends:
            self._read(self._reading, SLICE_SECONDS)
            self._warn_if_blocked(self._reading)
            self._finish()
        else:
            self._read(self._reading, 0.0)
        return self.is_complete

    def renew(self) -> None:
        """Read everything again, and let look-ups wait: a topic was created again."""
        self.close()
        self.is_complete = False
        self._not_before = 0.0

    def close(self) -> None:
        """Stop reading."""
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def _begin(self) -> None:
        """Read everything again; after a lost position lookups use the previous rows meanwhile."""
        if self.clock() < self._not_before:
            return
        wanted = [
            TopicPartition(t, n) for t, count in self.partitions.items() for n in range(count)
        ]
        try:
            ends = self.log.written_ends(wanted)
            bounds = self.log.bounds(wanted)
        except ClusterUnreachable as error:
            _events().warning("global_tables_retried", error=str(error))
            self._not_before = self.clock() + RETRY_SECONDS
            return
        self._began_at = self._came_at = self.clock()
        self._ends = dict(ends)
        self._filled = {topic: {} for topic in self.partitions}
        self._reading = self.log.open({p: (first, sys.maxsize) for p, (first, _) in bounds.items()})
        self._finish()

    def _read(self, reading: ChangelogReading, seconds: float) -> None:
        tables = self._filled if self._ends else self.topics
        try:
            batches = reading.read(seconds)
        except PositionLost as error:
            _events().warning("global_tables_retried", error=str(error))
            self.close()
            return
        if batches:
            self._came_at = self.clock()
        for partition, messages in batches.items():
            rows = tables[partition.topic]
            for message in messages:
                key, value = message.key(), message.value()
                if key is None:
                    continue
                if value is None:
                    rows.pop(key, None)
                else:
                    rows[key] = value, message.timestamp()[1]

    def _warn_if_blocked(self, reading: ChangelogReading) -> None:
        """Log once which partitions are blocked, for example by an open transaction."""
        if self._came_at is None or self.clock() - self._came_at < HELD_SECONDS:
            return
        self._came_at = None
        held = {p: reading.read_to(p) for p, end in self._ends.items() if reading.read_to(p) < end}
        offsets = {str(p): o for p, o in held.items()}
        _events().warning("global_tables_held_back", offsets=offsets, advice=FIND_OPEN)

    def _finish(self) -> None:
        """Publish the rows to lookups, once everything is read."""
        reading = self._reading
        if reading is None or any(reading.read_to(p) < end for p, end in self._ends.items()):
            return
        self._ends = {}
        for topic, rows in self._filled.items():
            self.topics[topic].clear()
            self.topics[topic].update(rows)
        self._filled = {}
        self.is_complete = True
        _events().info(
            "global_tables_read",
            rows={topic: len(rows) for topic, rows in self.topics.items()},
            seconds=round(self.clock() - self._began_at, 3),
        )


def _events() -> structlog.stdlib.BoundLogger:
    return structlog.get_logger("eosframework.state")
