"""The offsets of Kafka and of a database that decides, compared after a settlement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from eosframework.engine.worker.settlement import WorkerSettlement
from eosframework.errors import Retriable, StartRefused
from eosframework.records import Position, TopicPartition

PART = TopicPartition("in", 0)


class Answers:
    """Answers of a database: the offsets at the takeover, and those of a later look."""

    def __init__(self, taken: int | None, later: int | None) -> None:
        self.taken, self.later = taken, later

    def next_offsets(self, _: str) -> Mapping[TopicPartition, int | None]:
        return {PART: self.taken}

    def offsets(self) -> Mapping[TopicPartition, int | None]:
        return {PART: self.later}


class Deciding:
    """A plan with one id, which decides for one partition."""

    def deciding(self, _: Any) -> Mapping[str, list[TopicPartition]]:
        return {"id": [PART]}


def compared(taken: int | None, later: int | None, stable: int | None) -> Callable[[], None]:
    answers = cast("Any", Answers(taken, later))
    settlement = WorkerSettlement(
        answers, cast("Any", None), cast("Any", None), cast("Any", Deciding()), 30.0
    )
    return lambda: settlement.refuse_other_offsets({}, [Position(*PART, stable)])


@pytest.mark.parametrize("taken", [None, 7])
def test_equal_offsets_and_a_first_decision_are_accepted(taken: int | None) -> None:
    compared(taken, taken, 7)()


def test_a_database_that_is_behind_twice_was_restored() -> None:
    with pytest.raises(StartRefused, match=r"in\[0\]: the group's offset is 9.*decided up to 7"):
        compared(7, 7, 9)()


def test_a_database_that_has_decided_more_meanwhile_was_not_restored() -> None:
    """Another process has taken the partition between the two looks."""
    compared(7, 9, 9)()


def test_offsets_behind_the_database_are_looked_at_again() -> None:
    with pytest.raises(Retriable, match="offsets were set or lost"):
        compared(9, 9, 7)()
