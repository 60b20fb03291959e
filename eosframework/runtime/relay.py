"""Composition root of `relay-outbox`: settings become a relay between a database and a cluster."""

from __future__ import annotations

import gc
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from eosframework.application.control_topic import Registry
from eosframework.application.needed_access import registry_access
from eosframework.application.relay_log import KafkaSentLog, RegistryPositions
from eosframework.application.relay_topics import RelayTopics
from eosframework.config import OutboxSourceKind, Settings
from eosframework.errors import DatabaseAway
from eosframework.kafka.admin.acls import naming_what_is_needed
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.client.statistics import ClientStatistics
from eosframework.kafka.producer.producer_pool import KafkaOutputs
from eosframework.kafka.worker_clients import NOTHING_KNOWN, producer_client
from eosframework.outbox.reconciliation import Reconciler
from eosframework.outbox.relay import Relay, RelayOptions, relay_id
from eosframework.outbox.relay_views import RelayCounts
from eosframework.postgres import Database, migrate
from eosframework.postgres.grants import RELAY_GRANTS, require_grants
from eosframework.postgres.outbox.outbox_slot import SlotSource
from eosframework.postgres.outbox.outbox_table import TableSource
from eosframework.process.signals import requests
from eosframework.process.watchdog import Watchdog
from eosframework.txnid import control_topic

if TYPE_CHECKING:
    from eosframework.runtime.http import AskedRelay

QUEUE_KILOBYTES = 32_768
"""Messages that wait for brokers, at most, so that a backlog takes no more memory than this."""

LINGER_MS = 5


def run_relay(settings: Settings, *, until_caught_up: bool) -> RelayCounts:
    """Relay in this process until it is caught up or asked to stop.

    Raises:
        UserError: nothing was started.
        RunError: relaying cannot go on; what was complete is committed.
        InstanceFenced: another relay uses the same name for another database.
    """
    admin = ClusterAdmin(settings.kafka)
    source = _source(settings)
    _refuse_second_name(source)
    _require_registry(settings, admin)
    outbox = settings.outbox
    options = RelayOptions(
        name=outbox.name,
        shards=outbox.shards,
        batch_rows=outbox.batch_rows,
        commit_interval_seconds=settings.worker.commit_interval_seconds,
        poll_interval_seconds=outbox.poll_interval_seconds,
        keep_seconds=outbox.keep_seconds,
        on_refused=outbox.on_refused,
    )
    events = structlog.get_logger("eosframework.relay")
    with requests(events) as request, _watchdog(settings) as watchdog, _asked(settings) as asked:

        def on_turn() -> None:
            watchdog.turn()
            if asked is not None:
                asked.turn(relay.view)

        relay = Relay(
            source,
            _outputs(settings, asked.statistics if asked else None),
            _positions(settings, admin),
            RelayTopics(settings.kafka, admin, _producer(settings)),
            options,
            on_turn=on_turn,
            measured=asked is not None,
        )
        request.goes_to(relay.stop)
        _collect_rarely()
        return relay.run(until_caught_up=until_caught_up)


@contextmanager
def reconciler(settings: Settings) -> Generator[Reconciler]:
    """Connect what compares the outbox with Kafka, for the length of the block.

    Raises:
        UserError: the database or the cluster cannot be used.
    """
    admin = ClusterAdmin(settings.kafka)
    source = _source(settings)
    _require_registry(settings, admin)
    outputs = _outputs(settings)
    source.connect()
    try:
        yield Reconciler(
            settings.outbox.name,
            settings.outbox.shards,
            source,
            outputs,
            _positions(settings, admin),
            KafkaSentLog(settings.kafka, admin),
            RelayTopics(settings.kafka, admin, _producer(settings)),
            on_refused=settings.outbox.on_refused,
            wait=time.sleep,
            ids_of_rival=partial(_ids_of_rival, settings, admin, source),
        )
    finally:
        outputs.stop()
        source.close()


def _refuse_second_name(source: TableSource | SlotSource) -> None:
    """Raise before a topic is made for a relay that is not to be; it looks again when it begins."""
    with suppress(DatabaseAway), closing(source):
        source.connect()
        source.refuse_second_name()


def _ids_of_rival(
    settings: Settings,
    admin: ClusterAdmin,
    source: TableSource | SlotSource,
    name: str,
    shards: int,
) -> list[str]:
    """Return the ids of a relay of another name, if it relayed this database.

    A database that was restored from a dump of another one knows that one's relay, which may run.
    """
    topic = control_topic(name)
    if not admin.describe_topics([topic])[topic].exists:
        return []
    renamed = settings.model_copy(
        update={"outbox": settings.outbox.model_copy(update={"name": name, "shards": shards})}
    )
    positions = _positions(renamed, admin).decided()
    was = {(p.origin.system_identifier, p.origin.database) for p in positions.values()}
    here = (source.origin.system_identifier, source.origin.database)
    if positions and here not in was:
        return []
    return [relay_id(name, number) for number in range(shards)]


def _source(settings: Settings) -> TableSource | SlotSource:
    database = Database(
        settings.database, application_name=f"eosframework relay {settings.outbox.name}"
    )
    database.require()
    outbox = settings.outbox
    session: dict[str, Any] = {
        "batch_bytes": outbox.batch_megabytes * 2**20,
        "name": outbox.name,
        "shards": outbox.shards,
        # No call to a broker lasts longer than a transaction, and there is at most one such call,
        # with its recovery, between two questions to the database.
        "idle_seconds": 2 * settings.worker.transaction_timeout_seconds + 5,
        "prepare": lambda: _prepare(settings, database),
    }
    if outbox.source is OutboxSourceKind.SLOT:
        return SlotSource(database, **session)
    message_bytes = int(_producer(settings)["message.max.bytes"])
    return TableSource(database, message_bytes=message_bytes, **session)


def _prepare(settings: Settings, database: Database) -> None:
    if settings.outbox.source is OutboxSourceKind.TABLE:
        require_grants(database, RELAY_GRANTS)
    migrate(database)


def _producer(settings: Settings) -> dict[str, Any]:
    """Return properties of the relay's producers; the queue holds the largest message."""
    properties = producer_client(settings, NOTHING_KNOWN)
    properties["linger.ms"] = settings.kafka.properties.get("linger.ms", LINGER_MS)
    largest_kilobytes = -(-int(properties["message.max.bytes"]) // 1024)
    properties.setdefault("queue.buffering.max.kbytes", max(QUEUE_KILOBYTES, largest_kilobytes))
    return properties


def _outputs(settings: Settings, statistics: ClientStatistics | None = None) -> KafkaOutputs:
    return KafkaOutputs(
        _producer(settings),
        transaction_timeout_seconds=settings.worker.transaction_timeout_seconds,
        request_timeout_seconds=settings.kafka.request_timeout_seconds,
        assume_transaction_verification=settings.kafka.assume_transaction_verification,
        statistics=statistics,
    )


def _positions(settings: Settings, admin: ClusterAdmin) -> RegistryPositions:
    return RegistryPositions(
        settings.outbox.name,
        settings.kafka,
        admin,
        shards=settings.outbox.shards,
        settle_seconds=settings.worker.transaction_timeout_seconds
        + settings.kafka.request_timeout_seconds,
    )


def _require_registry(settings: Settings, admin: ClusterAdmin) -> None:
    """Make sure that there is a registry and that it may be used."""
    name, factor = settings.outbox.name, settings.topics.replication_factor
    registry = Registry(name, settings.kafka, admin, replication_factor=factor)
    with naming_what_is_needed([registry_access(name)]):
        registry.ensure()
        registry.require_access()


@contextmanager
def _asked(settings: Settings) -> Generator[AskedRelay | None]:
    """Answer over HTTP, if that is wanted."""
    address = settings.outbox.http_address
    if address is None:
        yield None
        return
    # Whoever is not asked needs no server.
    from eosframework.runtime.http import asked_relay

    with asked_relay(address, settings, _turn_seconds(settings)) as asked:
        yield asked


def _watchdog(settings: Settings) -> Watchdog:
    return Watchdog(
        turn_seconds=_turn_seconds(settings), stop_seconds=settings.worker.stop_deadline_seconds
    )


def _turn_seconds(settings: Settings) -> float:
    """Return the most that a turn takes.

    It may take shards over, commit, replace producers and read positions.
    """
    database = settings.database
    return (
        10 * settings.worker.transaction_timeout_seconds
        + 4 * settings.kafka.request_timeout_seconds
        + 4 * (database.statement_timeout_seconds + database.network_timeout_seconds)
    )


def _collect_rarely() -> None:
    """Let the garbage collector look once in a while: a batch makes thousands of tuples at once."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
