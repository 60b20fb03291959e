"""Faults: crash, stop or hold a worker at a named point of its protocol, and report it.

A worker process arms its faults at start. The test that started it reads from a directory which of
them fired, so that a fault that never happened cannot pass for one that was survived.
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

from eosframework.transactions import failpoints


class Action(StrEnum):
    """The effect of a fault on its process."""

    KILL = "kill"
    """SIGKILL, as in a crash, by the kernel's out-of-memory killer, or when a machine is lost."""
    STOP = "stop"
    """SIGSTOP: the process stands still until a SIGCONT, and may then be a zombie."""
    HOLD = "hold"
    """Waits until the file `release` appears in the directory of the fault's marker."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An action for the n-th time that a point is reached.

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
        """Return the fault of a text that `str` produced."""
        point, _, rest = text.partition("=")
        action, _, hit = rest.partition("@")
        return cls(point, Action(action), int(hit or 1))


def arm(faults: Iterable[Fault], directory: Path) -> None:
    """Arm faults in this process.

    Args:
        faults: at most one for each point.
        directory: in which a file `POINT.fired` appears just before a fault acts.
    """
    for fault in faults:
        failpoints.arm(fault.point, _Armed(fault, directory))


def fired(point: str, directory: Path) -> bool:
    """Return True if the fault at `point` has fired in any process armed with `directory`."""
    return (directory / f"{point}.fired").exists()


class _Armed:
    """The action at one point, with its count of hits."""

    def __init__(self, fault: Fault, directory: Path) -> None:
        self._fault = fault
        self._directory = directory
        self._hits = 0
        self._lock = threading.Lock()

    def __call__(self, point: str) -> None:
        # Points are hit from several threads. A thread that arrives while the process is about to
        # end or stop waits here; otherwise it would commit meanwhile.
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
                    # 1. SIGSTOP to the process is delivered to any of its threads.
                    # 2. Until that thread wakes up, this one would continue and commit.
                    # So the signal is sent to this thread.
                    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
                case Action.HOLD:
                    pass
        if self._fault.action is Action.HOLD:
            while not (self._directory / "release").exists():
                time.sleep(0.01)
