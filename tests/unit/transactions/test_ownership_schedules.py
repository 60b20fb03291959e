"""Sleepers, crashes and moves between any two steps.

The group refuses offsets of a membership that is over, when they are sent. Reads of offsets do not
wait for open transactions, so nothing but the fence keeps an offset that was accepted before a move
from being committed after it. Each id that may write is listed: takers and commands rely on that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import pytest

from eosframework.engine.task.offsets import Progress
from eosframework.transactions.ownership import Ownership, remove_entries
from eosframework.transactions.ports import Commit, Committed
from eosframework.txnid import TransactionalId
from tests.support.memory.schedules import Outputs, play

SEEDS = 40
SEARCHED = 1000
NO_REASON = "no schedule shows what the rule is for"


class NoEntryAnew(Ownership):
    """No K6."""

    def renew(self, tasks: Iterable[TransactionalId]) -> None:
        pass


class FencesNobody(Ownership):
    """No K3: the entries found are removed, and their ids are not inited."""

    def take(
        self, tasks: Iterable[TransactionalId], own_ids: Collection[str], fence: Callable[..., Any]
    ) -> None:
        super().take(tasks, own_ids, lambda ids: None)


class RemovesAll(Ownership):
    """K4 removes every entry of the partitions except one's own, also those added since K2."""

    def take(
        self, tasks: Iterable[TransactionalId], own_ids: Collection[str], fence: Callable[..., Any]
    ) -> None:
        chosen = list(tasks)
        super().take(chosen, own_ids, fence)
        assert self._log is not None
        others = self._look(self._log, chosen).others
        remove_entries(self._log, [entry.claim for entry in others])


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_input_takes_effect_once_whatever_sleeps_dies_or_moves(seed: int) -> None:
    played = play(seed)
    assert played.values == played.expected
    assert not played.kafka.unlisted
    assert played.kafka.misuses == []


@pytest.mark.parametrize("broken", [NoEntryAnew, FencesNobody, RemovesAll])
def test_without_one_of_its_rules_a_schedule_has_an_id_that_writes_and_is_not_listed(
    broken: type[Ownership],
) -> None:
    assert any(fails(seed, ownership=broken) for seed in range(SEARCHED)), NO_REASON


@pytest.mark.exhaustive
def test_where_the_group_takes_offsets_of_a_lapsed_member_an_input_is_processed_twice() -> None:
    assert any(fails(seed, group_checks=False) for seed in range(SEARCHED)), NO_REASON


def fails(seed: int, **options: Any) -> bool:
    """Tell whether a schedule doubles an input, or an id that is not listed writes."""
    try:
        played = play(seed, **options)
    except AssertionError:
        return False
    return not played.holds


class ForgetsSuspects(Outputs):
    """A suspect commit of a start position passes for a clean one."""

    def commit(
        self, commits: Sequence[Commit], within_seconds: float | None = None
    ) -> list[Committed]:
        results = super().commit(commits, within_seconds)
        return [
            result if commit.positions[0].metadata != str(Progress()) else Committed(result.error)
            for commit, result in zip(commits, results, strict=True)
        ]


def test_a_takeover_whose_commit_is_suspect_is_repeated_or_its_id_is_not_listed() -> None:
    assert any(fails(seed, outputs=ForgetsSuspects) for seed in range(SEARCHED)), NO_REASON
