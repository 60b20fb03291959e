"""What a demo kills, and when: at random, and all the same throughout the run."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kill:
    """A process that was killed, and what it was working on."""

    pid: int
    instance: str
    tasks: tuple[str, ...]

    def __str__(self) -> str:
        tasks = ", ".join(self.tasks)
        return f"SIGKILL to pid {self.pid}, {self.instance}, in the middle of {tasks}"


def kill_points(steps: int, kills: int, chance: random.Random) -> list[int]:
    """Return at which of `steps` to kill: one at random within each equal share of the run."""
    share = steps * 0.92 / max(kills, 1)
    first = steps * 0.05
    return [int(first + share * (number + chance.uniform(0.1, 0.9))) for number in range(kills)]


def deal(kills: int, chance: random.Random) -> list[str]:
    """Return what to kill, in order: workers and relays in turns, and a database now and then."""
    databases = max(kills // 5, int(kills > 2))
    rest = ["worker" if number % 2 == 0 else "relay" for number in range(kills - databases)]
    dealt = ["database"] * databases + rest
    chance.shuffle(dealt)
    return dealt
