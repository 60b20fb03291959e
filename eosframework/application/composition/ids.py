"""Composition of transactional ids: their source, and their leases in the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from eosframework.config import Ids, Settings
from eosframework.txnid import DerivedIds, IdSource, TransactionalId

if TYPE_CHECKING:
    from eosframework.application.context import ApplicationContext
    from eosframework.postgres.database.leased_ids import LeasedIds


def id_source(settings: Settings) -> IdSource:
    """Return the source of tasks' transactional ids.

    Raises:
        ConfigurationError: ids are leased, and no database is configured.
    """
    if settings.worker.ids is Ids.LEASED:
        return leased_ids(settings)
    return DerivedIds()


def leased_ids(settings: Settings) -> LeasedIds:
    """Return the pools of ids in the database, independent of `worker.ids`.

    Raises:
        ConfigurationError: no database is configured.
    """
    # Import the database driver only for leased ids.
    from eosframework.postgres.database import Database
    from eosframework.postgres.database.leased_ids import LeasedIds

    return LeasedIds(Database(settings.database, application_name="eosframework ids"))


def known_leases(settings: Settings) -> Mapping[str, TransactionalId]:
    """Return the tasks by leased id; empty if ids are derived.

    Raises:
        ConfigurationError: ids are leased, and no database is configured.
        DatabaseUnusable: the database cannot be queried.
    """
    return leased_ids(settings).leases() if settings.worker.ids is Ids.LEASED else {}


def leases_of(application: str, settings: Settings) -> dict[str, list[str]] | None:
    """Return the leased ids of an application by sub-topology; None: its ids are derived.

    Raises:
        ConfigurationError: ids are leased, and no database is configured.
        DatabaseUnusable: the database cannot be queried.
    """
    if settings.worker.ids is not Ids.LEASED:
        return None
    leases: dict[str, list[str]] = {}
    for id_, task in sorted(known_leases(settings).items(), key=lambda item: item[1].partition):
        if task.application == application:
            leases.setdefault(task.sub_topology, []).append(id_)
    return leases


def release_ids(context: ApplicationContext, ids: Sequence[str]) -> list[TransactionalId]:
    """Release leased ids of a stopped application (LR1 to LR6 of `application.leases`).

    Returns:
        The tasks that had the ids.

    Raises:
        ConfigurationError: an id is not leased to this application; none was released.
        StartRefused: the application runs; none was released.
        DatabaseUnusable: the database cannot be queried; none was released.
        TransactionError: an id could not be inited; none was released.
    """
    # Import Kafka clients only here: listing leases needs none.
    from eosframework.application.leases import release
    from eosframework.kafka.worker_clients import producers

    outputs = producers(context.settings)
    try:
        leased = leased_ids(context.settings)
        with leased.releasing(context.graph.application, ids) as released:
            release(released, context, outputs)
    finally:
        outputs.stop()
    return released
