"""Functions that hold or slow a task of Spark down where a test says so.

They stand in topologies and so travel to executors; their directory is EOS_TEST_GATES. A gate that
is armed holds the first processes that come to it, as many as it is told, until it is released.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path

ROW = 10_002
"""The number at which rows are held: in partition 2 of 4, behind more than one chunk."""

TOTAL = 600
"""The total at which a task of totals is held."""


class Gates:
    """What a test does with the gates `rows` and `totals`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()

    def arm(self, name: str, processes: int = 1) -> None:
        written = self.directory / f"{name}.arming"
        written.write_text(str(processes))
        written.rename(self.directory / f"{name}.armed")

    def held(self, name: str, place: int = 0) -> int | None:
        """The process that came to a gate, the first one or a later; None: none did yet."""
        fired = self.directory / f"{name}.fired{place}"
        return int(fired.read_text().split()[0]) if fired.exists() else None

    def passed(self, name: str) -> bool:
        """Whether a held process went on."""
        return (self.directory / f"{name}.passed").exists()

    def release(self, name: str) -> None:
        (self.directory / f"{name}.release").touch()

    def slow_down(self, name: str, seconds: float) -> None:
        """Let each row of partition 2, or each total of a copy of the held task, take so long."""
        written = self.directory / f"{name}.new"
        written.write_text(str(seconds))
        written.rename(self.directory / f"{name}.slow")

    def hurry(self, name: str) -> None:
        """Slow down no longer."""
        (self.directory / f"{name}.slow").unlink()


def pass_rows(value: dict[str, int]) -> dict[str, int]:
    """Hand a row on."""
    directory = Path(os.environ["EOS_TEST_GATES"])
    if value["n"] == ROW:
        _stand(directory, "rows")
    if value["n"] % 4 == ROW % 4:
        _dawdle(directory, "rows")
    return value


def pass_total(total: int) -> int:
    """Hand a total on."""
    directory = Path(os.environ["EOS_TEST_GATES"])
    if total == TOTAL:
        _stand(directory, "totals")
    if _is_copy(directory):
        _dawdle(directory, "totals")
    return total


def _stand(directory: Path, name: str) -> None:
    """Wait at a gate, if it is armed and not as many as it holds were there before."""
    if not _has_come(directory, name):
        return
    while not (directory / f"{name}.release").exists():
        time.sleep(0.01)
    (directory / f"{name}.passed").touch()


def _has_come(directory: Path, name: str) -> bool:
    """Take the first free place at a gate; return whether there was one."""
    armed = directory / f"{name}.armed"
    places = int(armed.read_text()) if armed.exists() else 0
    free = [f for n in range(places) if not (f := directory / f"{name}.fired{n}").exists()]
    if not free:
        return False
    mine = directory / f"{name}.{os.getpid()}"
    mine.write_text(f"{os.getpid()} {_partition()}")
    try:
        for place in free:
            with suppress(FileExistsError):
                os.link(mine, place)
                return True
        return False
    finally:
        mine.unlink()


def _is_copy(directory: Path) -> bool:
    """Whether this is the task that is held, in another process."""
    try:
        process, partition = (directory / "totals.fired0").read_text().split()
    except FileNotFoundError:
        return False
    return process != str(os.getpid()) and partition == str(_partition())


def _partition() -> int:
    """Which of its stage's partitions Spark runs here."""
    context = import_module("pyspark").TaskContext.get()
    return context.partitionId()


def _dawdle(directory: Path, name: str) -> None:
    try:
        seconds = (directory / f"{name}.slow").read_text()
    except FileNotFoundError:
        return
    time.sleep(float(seconds))
