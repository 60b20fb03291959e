"""A worker warns where a transaction that does not end holds its input back."""

from __future__ import annotations

from typing import Any, cast

from structlog.testing import capture_logs

from eosframework.engine.restoration.held_input import LOOK_SECONDS, HeldInput
from eosframework.engine.task.task_states import TaskState
from eosframework.records import TopicPartition

P0 = TopicPartition("in", 0)
LIMIT_SECONDS = 30.0


class Read:
    """A task that has read its partition to the last stable offset, and the log behind it."""

    state = TaskState.RUNNING
    is_at_end = True
    partitions = (P0,)

    def __init__(self) -> None:
        self.stable, self.end, self.now = 10, 15, 0.0

    def read_to(self, partition: TopicPartition) -> int:
        return self.stable

    def lag(self, positions: dict[TopicPartition, int]) -> int:
        return self.end - positions[P0]

    def clock(self) -> float:
        return self.now


def warned(task: Read, seconds: float, moves: int = 0) -> list[Any]:
    held = HeldInput(cast(Any, task), LIMIT_SECONDS, task.clock)
    with capture_logs() as logs:
        while task.now <= seconds:
            held.turn([cast(Any, task)])
            task.now += LOOK_SECONDS
            task.stable += moves
            task.end += moves
    return logs


def test_a_last_stable_offset_that_does_not_move_is_warned_of_once_and_says_what_to_do() -> None:
    [event] = warned(Read(), 4 * LIMIT_SECONDS)
    assert (event["event"], event["offsets"]) == ("input_held_back", {"in[0]": 10})
    assert "eosframework txn hanging" in event["advice"]


def test_transactions_that_end_in_time_are_not_warned_of() -> None:
    assert warned(Read(), LIMIT_SECONDS) == []
    assert warned(Read(), 4 * LIMIT_SECONDS, moves=1) == []
    quiet = Read()
    quiet.end = quiet.stable
    assert warned(quiet, 4 * LIMIT_SECONDS) == []
