"""Crash, stop or hold a worker at a named point of its protocol, and tell that it happened.

A worker process arms its faults at start; the test that started it reads from a directory which
of them fired, so that a fault that never happened cannot pass for one that was survived.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from eosframework import failpoints


class Action(StrEnum):
    """What a fault does to its process."""

    KILL = "kill"
    """SIGKILL: as a crash, the kernel's out-of-memory killer or a lost machine."""
    STOP = "stop"
    """SIGSTOP: the process stands still until somebody continues it: a zombie in the making."""
    HOLD = "hold"
    """Waits until the file `release` appears beside the one that tells it fired."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens the n-th time a point is reached.

    Args:
        point: one of `failpoints.POINTS`.
        hit: fires the n-th time the point is reached, counted from 1, and only then.
    """

    point: str
    action: Action
    hit: int = 1

    def __str__(self) -> str:
        return f"{self.point}={self.action}@{self.hit}"

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Read what `str` wrote."""
        point, _, rest = text.partition("=")
        action, _, hit = rest.partition("@")
        return cls(point, Action(action), int(hit or 1))


def arm(faults: Iterable[Fault], directory: Path) -> None:
    """Arm faults in this process.

    Args:
        faults: at most one for each point.
        directory: where a file `POINT.fired` appears just before a fault acts.
    """
    for fault in faults:
        failpoints.arm(fault.point, _Armed(fault, directory))


def fired(point: str, directory: Path) -> bool:
    """Tell whether the fault at `point` has fired in any process armed with `directory`."""
    return (directory / f"{point}.fired").exists()


class _Armed:
    """The action at one point, with its count of hits."""

    def __init__(self, fault: Fault, directory: Path) -> None:
        self._fault = fault
        self._directory = directory
        self._hits = 0
        self._lock = threading.Lock()

    def __call__(self, point: str) -> None:
        # Points are hit from several threads. One that comes while the process is about to end or
        # to stand still waits here: it would commit meanwhile.
        with self._lock:
            self._hits += 1
            if self._hits != self._fault.hit or fired(point, self._directory):
                return
            marker = self._directory / f"{point}.fired"
            marker.write_text(str(os.getpid()), encoding="ascii")
            match self._fault.action:
                case Action.KILL:
                    os.kill(os.getpid(), signal.SIGKILL)
                case Action.STOP:
                    # A signal to the process may be taken by any of its threads, and until that
                    # one has woken up, this one goes on and commits.
                    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
                case Action.HOLD:
                    pass
        if self._fault.action is Action.HOLD:
            while not (self._directory / "release").exists():
                time.sleep(0.01)
