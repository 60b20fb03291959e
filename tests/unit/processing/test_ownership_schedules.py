"""Sleepers, crashes and moves between any two steps: only recorded ownership protects.

The group accepts the offsets of every member, so nothing but the fence keeps an input from being
processed twice. Each rule of the protocol that is taken out lets a schedule double one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from eosframework.transactions.ownership import steps
from eosframework.transactions.ownership.entries import parse
from eosframework.transactions.ownership.ownership import ByTask, Ownership
from eosframework.txnid import TransactionalId
from tests.support.memory.schedules import play

SEEDS = 40
SEARCHED = 1000


class EntryAfterFence(Ownership):
    """K1 after K3."""

    def claim(self, by_task: ByTask, producer_of: Callable[[TransactionalId], str]) -> None:
        self._wanted = by_task, producer_of

    def take(
        self, tasks: Iterable[TransactionalId], own_ids: Iterable[str], fence: Callable[..., object]
    ) -> None:
        chosen, own = list(tasks), set(own_ids)
        if not chosen:
            return
        assert self._log is not None
        found = {
            e.claim.transactional_id
            for e in parse(self._log.read(), "")
            if e.claim.partition in {task.partition for task in chosen}
        }
        if found - own:
            fence(sorted(found - own))
        super().claim(*self._wanted)
        super().take(chosen, [*own, *found], lambda ids: None)


class NeverGivesUp(Ownership):
    """K2 without its give-up: later entries are fenced and removed as well."""

    def take(
        self, tasks: Iterable[TransactionalId], own_ids: Iterable[str], fence: Callable[..., object]
    ) -> None:
        assert self._log is not None
        chosen = list(tasks)
        own = {claim.key for claim in self._claims_of(chosen)}
        numbers = {task.partition for task in chosen}
        others = [
            e
            for e in parse(self._log.read(), "")
            if e.claim.partition in numbers and e.claim.key not in own
        ]
        ids = {entry.claim.transactional_id for entry in others} - set(own_ids)
        if ids:
            fence(sorted(ids))
        steps.remove(self._log, [entry.claim for entry in others])


class RemovesAll(Ownership):
    """K4 removes every entry of the partitions except one's own, also those added since K2."""

    def take(
        self, tasks: Iterable[TransactionalId], own_ids: Iterable[str], fence: Callable[..., object]
    ) -> None:
        chosen = list(tasks)
        super().take(chosen, own_ids, fence)
        own = {claim.key for claim in self._claims_of(chosen)}
        numbers = {task.partition for task in chosen}
        assert self._log is not None
        steps.remove(
            self._log,
            [
                e.claim
                for e in parse(self._log.read(), "")
                if e.claim.partition in numbers and e.claim.key not in own
            ],
        )


class NeverReadsAgain(Ownership):
    """No K6."""

    def superseded(self, tasks: Iterable[TransactionalId]) -> list[TransactionalId]:
        return []


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_input_takes_effect_once_whatever_sleeps_dies_or_moves(seed: int) -> None:
    played = play(seed)
    assert played.values == played.expected
    assert played.kafka.misuses == []


@pytest.mark.parametrize("broken", [EntryAfterFence, NeverGivesUp, RemovesAll, NeverReadsAgain])
def test_without_one_of_its_rules_a_schedule_processes_an_input_twice(
    broken: type[Ownership],
) -> None:
    def fails(seed: int) -> bool:
        try:
            played: Any = play(seed, broken)
        except AssertionError:
            return False
        return played.values != played.expected

    assert any(fails(seed) for seed in range(SEARCHED)), "no schedule shows what the rule is for"
