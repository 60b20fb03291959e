"""A user's own loop: a script that is told by environment variables what to read and write."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.contestants.work import Unavailable
from benchmarks.faults.kinds import Kind
from benchmarks.faults.peers import EXACTLY_ONCE, PEERS, Peer, Task
from benchmarks.processes import Command


@dataclass(frozen=True)
class OwnLoop:
    """A Python script, or an executable of any language."""

    script: Path
    promise: str = EXACTLY_ONCE
    settings: str = "a loop of the user's"
    not_struck: Mapping[Kind, str] = field(default_factory=dict[Kind, str])
    aborts_refused_outputs: bool = False

    @property
    def name(self) -> str:
        return self.script.name

    def prepare(self) -> str:
        if not self.script.is_file():
            raise Unavailable(f"there is no file {self.script}")
        return "own"

    def before(self, task: Task) -> None:
        return None

    def command(self, task: Task) -> Command:
        python = [sys.executable] if self.script.suffix == ".py" else []
        return Command([*python, str(self.script.resolve())], task.environment())


class UnknownContestant(Exception):
    """Neither the name of a contestant nor a file."""


def chosen(wanted: str) -> Peer:
    """Return the contestant of a name, or that of a user's script.

    Raises:
        UnknownContestant: it is neither.
    """
    named = [peer for peer in PEERS if peer.name.casefold() == wanted.casefold()]
    if named:
        return named[0]
    script = Path(wanted)
    if not script.is_file():
        names = ", ".join(peer.name for peer in PEERS)
        raise UnknownContestant(
            f"--contestant {wanted}: there is no such file, and no contestant has this name; "
            f"give the path of your script, or one of: {names}"
        )
    return OwnLoop(script)
