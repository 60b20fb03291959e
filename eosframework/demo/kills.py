"""Victims and times of a demo's kills: random, and evenly spread over the run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kill:
    """A killed process, and its tasks at the time."""

    pid: int
    instance: str
    tasks: tuple[str, ...]

    def __str__(self) -> str:
        tasks = ", ".join(self.tasks)
        return f"SIGKILL to pid {self.pid}, {self.instance}, in the middle of {tasks}"


def kill_points(steps: int, kills: int, chance: random.Random) -> list[int]:
    """Return the steps at which to kill: one at random within each equal share of the run."""
    share = steps * 0.92 / max(kills, 1)
    first = steps * 0.05
    return [int(first + share * (number + chance.uniform(0.1, 0.9))) for number in range(kills)]


def hold_points(steps: int, points: Sequence[int]) -> list[int]:
    """Return for each kill the step before which it must be done: the next one's, or near the end.

    Args:
        steps: of the run.
        points: as `kill_points` returns them.
    """
    return [*points[1:], int(steps * 0.98)]


def deal(kills: int, chance: random.Random) -> list[str]:
    """Return the kinds of victims in order: workers and relays, and a few databases."""
    databases = max(kills // 5, int(kills > 2))
    rest = ["worker" if number % 2 == 0 else "relay" for number in range(kills - databases)]
    dealt = ["database"] * databases + rest
    chance.shuffle(dealt)
    return dealt
