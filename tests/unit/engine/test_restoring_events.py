"""A long restore logs its progress every few seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from structlog.testing import capture_logs

from eosframework.engine.restoration.restoration import EVENT_SECONDS, SLICE_SECONDS, Restoration
from eosframework.engine.stores.state_ports import Reached, StoreIdentity
from eosframework.engine.task.task_states import TaskState
from eosframework.records import TopicPartition
from eosframework.state import MemoryState

CHANGELOG = TopicPartition("counts.changelog", 0)
RECORDS_PER_SLICE = 10


class Change:
    """A record of the changelog."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def key(self) -> bytes:
        return b"%d" % self._offset

    def value(self) -> bytes:
        return b"v"

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, self._offset


class SlowChangelog:
    """Gives ten records in each slice, which takes its whole time."""

    def __init__(self, end: int) -> None:
        self.now = 0.0
        self._end, self._read_to = end, 0

    def bounds(self, partitions: Sequence[TopicPartition]) -> Any:
        return dict.fromkeys(partitions, (0, self._end))

    def written_ends(self, partitions: Sequence[TopicPartition]) -> Any:
        return dict.fromkeys(partitions, self._end)

    def open(self, ranges: object) -> SlowChangelog:
        return self

    def read(self, seconds: float) -> Mapping[TopicPartition, Sequence[Any]]:
        self.now += SLICE_SECONDS
        first = self._read_to
        self._read_to = min(first + RECORDS_PER_SLICE, self._end)
        return {CHANGELOG: [Change(offset) for offset in range(first, self._read_to)]}

    def read_to(self, partition: TopicPartition) -> int:
        return self._read_to

    def close(self) -> None:
        pass


class EmptyState:
    """The state of a task whose store has nothing yet."""

    def __init__(self) -> None:
        self.changelogs = {"counts": CHANGELOG}
        self.stores: Any = MemoryState().open("counts-0", 1, [StoreIdentity("counts", "id", 1)])


class WaitingTask:
    """It waits for its state."""

    state = TaskState.ASSIGNED
    reached = Reached(0, {})

    def __init__(self) -> None:
        self.stores = EmptyState()


def events_of(records: int) -> list[Any]:
    changelog, task = SlowChangelog(records), cast(Any, WaitingTask())
    restoring = Restoration(changelog, 1000.0, clock=lambda: changelog.now)
    with capture_logs() as logs:
        restoring.turn([task])
        while not restoring.is_done(task):
            restoring.turn([task])
    assert restoring.records_left == 0
    assert task.stores.stores.position("counts") == records
    return [event for event in logs if event["event"] == "restoring"]


def test_a_long_restore_tells_what_is_left_and_how_fast_it_goes() -> None:
    slices = round(2.5 * EVENT_SECONDS / SLICE_SECONDS)
    told = events_of(slices * RECORDS_PER_SLICE)
    assert len(told) == 2
    assert all(event["records_per_second"] == RECORDS_PER_SLICE / SLICE_SECONDS for event in told)
    assert told[0]["records_left"] > told[1]["records_left"] > 0


def test_a_short_restore_says_only_that_it_began_and_ended() -> None:
    assert events_of(30) == []
