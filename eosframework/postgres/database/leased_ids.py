"""Transactional ids leased from a table, for users who cannot choose their ids.

A lease is for one task and lasts until it is released. Leasing and releasing lock the ids of the
application, so they are serialized.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

from eosframework.errors import ConfigurationError, StartRefused
from eosframework.postgres.database.connection import Connection, Database, load_queries
from eosframework.postgres.database.error_classes import as_unusable, commit
from eosframework.postgres.database.migration import migrate
from eosframework.txnid import Allotted, PooledId, TransactionalId, allot

LONGEST_ID = 249
"""In characters. Kafka accepts more, but a longer one was probably pasted by mistake."""

_queries: Any = load_queries("leased_ids.sql")


class LeasedIds:
    """An `IdSource` over the table `eosframework.transactional_ids`.

    Args:
        database: with the table.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def ids(self, tasks: Sequence[TransactionalId]) -> list[TransactionalId]:
        """Return the tasks with their ids; a task without an id gets one permanently.

        Raises:
            StartRefused: the pool is too small; says how many are missing. None was leased.
            DatabaseUnusable: the database is unavailable.
        """
        if not tasks:
            return []
        doing = f"lease transactional ids from {self._database.display}"
        with self._database.session(doing) as connection:
            allotted = self._allot(connection, tasks, locked=True)
            if allotted.new:
                _queries.lease(
                    connection,
                    ids=[str(task) for task in allotted.new],
                    sub_topologies=[task.sub_topology for task in allotted.new],
                    partitions=[task.partition for task in allotted.new],
                )
            commit(connection, doing)
        return list(allotted.ids)

    def preview(self, tasks: Sequence[TransactionalId]) -> list[TransactionalId]:
        """Return the result that `ids` would have now, and change nothing.

        Raises:
            StartRefused, DatabaseUnusable: as `ids`.
        """
        if not tasks:
            return []
        with self._database.session(f"read {self._database.display}") as connection:
            return list(self._allot(connection, tasks, locked=False).ids)

    def pool(self, application: str) -> list[PooledId]:
        """Return the ids of an application, in the order in which they are leased.

        Raises:
            DatabaseUnusable: the database is unavailable.
        """
        with self._database.session(f"read {self._database.display}") as connection:
            return _pool(connection, [application], locked=False)

    def leases(self) -> dict[str, TransactionalId]:
        """Return every leased id, of all applications.

        Raises:
            DatabaseUnusable: the database is unavailable.
        """
        with self._database.session(f"read {self._database.display}") as connection:
            if not _queries.has_pools(connection):
                return {}
            return {row[0]: _task(row) for row in list(_queries.leases(connection))}

    def add(self, application: str, ids: Sequence[str]) -> list[str]:
        """Put ids into the pool of an application; creates the table if it is missing.

        Returns:
            The ids that were not in the pool before.

        Raises:
            ConfigurationError: an id is invalid, or is in another application's pool; none was
                added.
            DatabaseUnusable: the database is unavailable.
        """
        for id_ in ids:
            refuse_bad_id(application, id_)
        doing = f"add transactional ids to {self._database.display}"
        with as_unusable():
            migrate(self._database)
        with self._database.session(doing) as connection:
            rows = list(_queries.add(connection, application=application, ids=sorted(set(ids))))
            for id_, owner, _ in rows:
                if owner != application:
                    raise ConfigurationError(
                        f"transactional id {id_!r} is in the pool of application {owner!r}, and "
                        f"an id is for one application only; give {application!r} another one"
                    )
            commit(connection, doing)
        new = {id_ for id_, _, is_new in rows if is_new}
        return [id_ for id_ in dict.fromkeys(ids) if id_ in new]

    @contextmanager
    def releasing(self, application: str, ids: Sequence[str]) -> Generator[list[TransactionalId]]:
        """Release the leases of ids when the block ends without an error.

        Until then no process leases or releases ids of the application.

        Raises:
            ConfigurationError: an id is not in the pool, or is not leased.
            DatabaseUnusable: the database is unavailable; nothing was released.
        """
        doing = f"release transactional ids in {self._database.display}"
        with self._database.session(doing) as connection:
            pool = {entry.id: entry for entry in _pool(connection, [application], locked=True)}
            tasks: list[TransactionalId] = []
            for id_ in dict.fromkeys(ids):
                entry = pool.get(id_)
                if entry is None or entry.task is None:
                    state = "is free already" if entry else "is not in it"
                    raise ConfigurationError(
                        f"transactional id {id_!r} cannot be released from the pool of "
                        f"application {application!r}: it {state}; `eosframework ids list APP` "
                        f"shows the leases"
                    )
                tasks.append(entry.task)
            yield tasks
            _queries.release(connection, ids=[str(task) for task in tasks])
            commit(connection, doing)

    def _allot(
        self, connection: Connection, tasks: Sequence[TransactionalId], *, locked: bool
    ) -> Allotted:
        applications = sorted({task.application for task in tasks})
        pool = _pool(connection, applications, locked=locked)
        allotted = allot(tasks, pool)
        if allotted.missing:
            first = allotted.missing[0]
            raise StartRefused(
                f"worker.ids is leased, and the pool of application {first.application!r} in "
                f"{self._database.display} has no id left for {len(allotted.missing)} of "
                f"{len(tasks)} tasks (the first is {first.sub_topology}[{first.partition}]); have "
                f"ids made that this principal may Write and Describe, and add as many: "
                f"eosframework ids add APP ID..."
            )
        return allotted


def refuse_bad_id(application: str, id_: str) -> None:
    """Refuse an id that cannot be in a pool.

    Raises:
        ConfigurationError: it is empty, too long, not printable, or one that is derived.
    """
    if not id_ or len(id_) > LONGEST_ID or not id_.isprintable() or id_ != id_.strip():
        raise ConfigurationError(
            f"transactional id {id_!r} cannot be used; expected 1 to {LONGEST_ID} printable "
            f"characters, no space at either end"
        )
    try:
        derived = TransactionalId.parse(id_)
    except ConfigurationError:
        return
    if derived.application == application:
        raise ConfigurationError(
            f"transactional id {id_!r} is the one that application {application!r} derives for "
            f"partition {derived.partition} of a sub-topology {derived.sub_topology!r}, so two of "
            f"its tasks could come to share it; add one of another form, for example "
            f"{application.upper()}-TX-{derived.partition:02}, or use worker.ids=worker"
        )


def _pool(connection: Connection, applications: Iterable[str], *, locked: bool) -> list[PooledId]:
    if not _queries.has_pools(connection):
        return []
    read = _queries.locked_pool if locked else _queries.pool
    return [
        PooledId(row[0], row[1], None if row[2] is None else _task(row))
        for row in list(read(connection, applications=list(applications)))
    ]


def _task(row: tuple[str, str, str, int]) -> TransactionalId:
    id_, application, sub_topology, partition = row
    return TransactionalId(application, sub_topology, partition, leased=id_)
