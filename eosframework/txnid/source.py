"""Where transactional ids come from: derived from a task's name, or leased out of a pool."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from eosframework.txnid.identity import TransactionalId


class IdSource(Protocol):
    """Gives each task its id: always the same one.

    It is never one that another task has, unless they share a producer.
    """

    def ids(self, tasks: Sequence[TransactionalId]) -> list[TransactionalId]:
        """Return the tasks, each with the id that it writes under from now on.

        Raises:
            StartRefused: there is no id for one of them; none was taken.
            DatabaseUnusable: the source cannot be asked.
        """
        ...

    def preview(self, tasks: Sequence[TransactionalId]) -> list[TransactionalId]:
        """Return what `ids` would return now, and change nothing.

        Raises:
            StartRefused, DatabaseUnusable: as `ids`.
        """
        ...


class DerivedIds:
    """The `IdSource` that needs no memory: an id is its task's name, written out.

    Args:
        partitions_per_producer: how many partitions share an id.
    """

    def __init__(self, partitions_per_producer: int = 1) -> None:
        self._partitions_per_producer = partitions_per_producer

    @property
    def pattern(self) -> str:
        """What stands behind the sub-topology in an id, for people."""
        return "{partition}" if self._partitions_per_producer == 1 else "{first}..{last}"

    def ids(self, tasks: Sequence[TransactionalId]) -> list[TransactionalId]:
        """Return the tasks with the ids that their names make."""
        together = self._partitions_per_producer
        return [replace(task, leased=None, partitions_per_producer=together) for task in tasks]

    def preview(self, tasks: Sequence[TransactionalId]) -> list[TransactionalId]:
        """Return the same as `ids`."""
        return self.ids(tasks)


@dataclass(frozen=True, slots=True)
class PooledId:
    """An id that somebody has put into the pool of an application.

    Args:
        application: whose tasks may have it.
        task: who has it, until it is released; None: it is free.
    """

    id: str
    application: str
    task: TransactionalId | None = None


@dataclass(frozen=True, slots=True)
class Allotted:
    """Which task has which id.

    Args:
        ids: by task, in the order asked for, those without an id left out.
        new: those of them whose id was free.
        missing: tasks for which no id is left.
    """

    ids: tuple[TransactionalId, ...]
    new: tuple[TransactionalId, ...]
    missing: tuple[TransactionalId, ...]


def allot(tasks: Sequence[TransactionalId], pool: Sequence[PooledId]) -> Allotted:
    """Give each task the id that it has, or else the first of its application that is free.

    Args:
        tasks: who needs an id.
        pool: in the order in which ids are given away.
    """
    had = {replace(entry.task, leased=None): entry.id for entry in pool if entry.task is not None}
    free: dict[str, deque[str]] = {}
    for entry in pool:
        if entry.task is None:
            free.setdefault(entry.application, deque()).append(entry.id)
    ids: list[TransactionalId] = []
    new: list[TransactionalId] = []
    missing: list[TransactionalId] = []
    for task in tasks:
        name = replace(task, leased=None)
        if name in had:
            ids.append(replace(name, leased=had[name]))
        elif left := free.get(task.application):
            had[name] = left.popleft()
            ids.append(replace(name, leased=had[name]))
            new.append(ids[-1])
        else:
            missing.append(name)
    return Allotted(tuple(ids), tuple(new), tuple(missing))
