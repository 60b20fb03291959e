"""The sources of transactional ids: derived from a task's name, or leased from a pool."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from eosframework.txnid.identity import TransactionalId


class IdSource(Protocol):
    """Gives each task an id, always the same one, which no other task has."""

    def ids(self, tasks: Sequence[TransactionalId]) -> list[TransactionalId]:
        """Return the tasks, each with the id that it writes under from now on.

        Raises:
            StartRefused: there is no id for one of them; none was leased.
            DatabaseUnusable: the database with the pool is unavailable.
        """
        ...

    def preview(self, tasks: Sequence[TransactionalId]) -> list[TransactionalId]:
        """Return the result that `ids` would have now, without leasing an id.

        Raises:
            StartRefused, DatabaseUnusable: as `ids`.
        """
        ...


class DerivedIds:
    """The `IdSource` without storage: an id is its task's name, as text."""

    def ids(self, tasks: Sequence[TransactionalId]) -> list[TransactionalId]:
        """Return the tasks with the ids derived from their names."""
        return [replace(task, leased=None) for task in tasks]

    def preview(self, tasks: Sequence[TransactionalId]) -> list[TransactionalId]:
        """Return the same as `ids`."""
        return self.ids(tasks)


@dataclass(frozen=True, slots=True)
class PooledId:
    """An id in the pool of an application.

    Args:
        application: whose tasks may lease it.
        task: its holder, until it is released; None: it is free.
    """

    id: str
    application: str
    task: TransactionalId | None = None


@dataclass(frozen=True, slots=True)
class Allotted:
    """The result of allotting ids to tasks.

    Args:
        ids: by task, in the order of the request, without the tasks that got none.
        new: those of them whose id was free before.
        missing: tasks for which no id is left.
    """

    ids: tuple[TransactionalId, ...]
    new: tuple[TransactionalId, ...]
    missing: tuple[TransactionalId, ...]


def allot(tasks: Sequence[TransactionalId], pool: Sequence[PooledId]) -> Allotted:
    """Return for each task the id that it holds, or else the first free one of its application.

    Args:
        tasks: that need an id.
        pool: in the order in which ids are leased.
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
