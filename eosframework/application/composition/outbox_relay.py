"""Composition root of `relay-outbox`: builds the outbox relay and the reconciliation."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

import structlog

from eosframework.application.composition.context import Observed
from eosframework.application.control_topic import ControlTopic
from eosframework.application.journal import KafkaJournal
from eosframework.application.needed_access import control_topic_access, naming_needed_access
from eosframework.application.output_limits import RelayDestinations
from eosframework.application.start_wait import waiting_for_brokers
from eosframework.application.topic_watch import TopicWatch
from eosframework.application.watched_cluster import WatchedTopics
from eosframework.config import KafkaSettings, OutboxSourceKind, Settings
from eosframework.errors import DatabaseUnavailable
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.kafka.worker_clients import NOTHING_KNOWN, producer_client, producer_pool
from eosframework.postgres.database import Database, migrate
from eosframework.postgres.database.grants import RELAY_GRANTS, require_grants
from eosframework.postgres.database.outbox.outbox_slot import SlotSource
from eosframework.postgres.database.outbox.outbox_table import TableSource
from eosframework.postgres.outbox.reconciliation import Reconciler
from eosframework.postgres.outbox.relay import Relay, RelayOptions, RelayView
from eosframework.postgres.outbox.relay_position import ID_HEADER, RelayCounts, SentMessages
from eosframework.postgres.outbox.sharding import relay_id, shard_claim
from eosframework.process.memory import exclude_what_is_there, keep_little, returned_memory
from eosframework.process.signals import stop_requests
from eosframework.process.watchdog import PROBE_SECONDS, Watchdog
from eosframework.records import TopicPartition, partitions_of
from eosframework.transactions.ports import Message
from eosframework.txnid import control_topic

QUEUE_KILOBYTES = 32_768
"""Size of a producer's queue, which limits the memory that a backlog uses."""

LINGER_MS = 5


def run_relay(settings: Settings, *, until_caught_up: bool) -> RelayCounts:
    """Run an outbox relay in this process until it is caught up or asked to stop.

    Raises:
        UserError: nothing was started.
        RunError: the relay cannot continue; complete transactions are committed.
        InstanceFenced: another relay uses the same name for another database.
    """
    keep_little()
    admin = ClusterAdmin(settings.kafka)
    source = _source(settings)
    _refuse_second_name(source)
    start_seconds = settings.kafka.start_timeout_seconds
    waiting_for_brokers(lambda: _require_control_topic(settings, admin), start_seconds)
    outbox = settings.outbox
    options = RelayOptions(
        name=outbox.name,
        shards=outbox.shards,
        batch_rows=outbox.batch_rows,
        commit_interval_seconds=settings.worker.commit_interval_seconds,
        poll_interval_seconds=outbox.poll_interval_seconds,
        keep_seconds=outbox.keep_seconds,
        transaction_timeout_seconds=settings.worker.transaction_timeout_seconds,
        start_timeout_seconds=start_seconds,
        on_refused=outbox.on_refused,
    )
    events = structlog.get_logger("eosframework.relay")
    with (
        stop_requests(events) as request,
        _watchdog(settings) as watchdog,
        _observed(settings, watchdog) as observed,
        returned_memory(),
    ):
        watch = TopicWatch({}, {}, WatchedTopics(admin))

        def on_turn() -> None:
            watchdog.turn()
            watch.turn(dict)
            if observed is not None:
                observed.turn(relay.view)

        relay = Relay(
            source,
            producer_pool(
                settings,
                _producer(settings),
                statistics=observed.statistics if observed else None,
            ),
            _journal(settings.outbox.name, settings, admin),
            RelayDestinations(settings.kafka, admin, _producer(settings), seen=watch.add),
            options,
            on_turn=on_turn,
            on_wait=watchdog.turn,
            measured=observed is not None,
        )
        request.forward_to(relay.stop)
        exclude_what_is_there()
        counts = relay.run(until_caught_up=until_caught_up)
        watch.confirm(dict)
        return counts


@contextmanager
def reconciler(settings: Settings) -> Generator[Reconciler]:
    """Yield a reconciler that is connected to the database and the cluster.

    Raises:
        UserError: the database or the cluster cannot be used.
    """
    admin = ClusterAdmin(settings.kafka)
    source = _source(settings)
    _require_control_topic(settings, admin)
    outputs = producer_pool(settings, _producer(settings))
    source.connect()
    try:
        yield Reconciler(
            settings.outbox.name,
            settings.outbox.shards,
            source,
            outputs,
            _journal(settings.outbox.name, settings, admin),
            KafkaSentLog(settings.kafka, admin),
            RelayDestinations(settings.kafka, admin, _producer(settings)),
            on_refused=settings.outbox.on_refused,
            wait=time.sleep,
            ids_of_rival=partial(_ids_of_rival, settings, admin, source),
        )
    finally:
        outputs.stop()
        source.close()


def _refuse_second_name(source: TableSource | SlotSource) -> None:
    """Refuse a second relay name before its topic is created; the relay checks again later."""
    with suppress(DatabaseUnavailable), closing(source):
        source.connect()
        source.refuse_second_name()


def _ids_of_rival(
    settings: Settings,
    admin: ClusterAdmin,
    source: TableSource | SlotSource,
    name: str,
    shards: int,
) -> list[str]:
    """Return the transactional ids of a relay of another name, if it belongs to this database.

    A database that was restored from a dump contains the name of the dumped database's relay,
    which may be running and must not be fenced.
    """
    topic = control_topic(name)
    if not admin.describe_topics([topic])[topic].exists:
        return []
    claims = [shard_claim(name, number) for number in range(shards)]
    entries = _journal(name, settings, admin).decided([claim.key for claim in claims])
    positions = [found for claim in claims if (found := claim.of(entries)) is not None]
    was = {(found.origin.system_identifier, found.origin.database) for found in positions}
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
        # No call to a broker takes longer than a transaction, and there is at most one such call,
        # with its recovery, between two queries.
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
    """Return properties of the relay's producers; the queue has room for the largest message."""
    properties = producer_client(settings, NOTHING_KNOWN)
    properties["linger.ms"] = settings.kafka.properties.get("linger.ms", LINGER_MS)
    largest_kilobytes = -(-int(properties["message.max.bytes"]) // 1024)
    properties.setdefault("queue.buffering.max.kbytes", max(QUEUE_KILOBYTES, largest_kilobytes))
    return properties


def _journal(name: str, settings: Settings, admin: ClusterAdmin) -> KafkaJournal:
    return KafkaJournal(
        name,
        settings.kafka,
        admin,
        settle_seconds=settings.worker.transaction_timeout_seconds
        + settings.kafka.request_timeout_seconds,
    )


def _require_control_topic(settings: Settings, admin: ClusterAdmin) -> None:
    """Create the control topic if it is missing, and check the relay's access to it."""
    name, factor = settings.outbox.name, settings.topics.replication_factor
    registry = ControlTopic(name, settings.kafka, admin, replication_factor=factor)
    with naming_needed_access([control_topic_access(name)]):
        registry.ensure()
        registry.require_access()


def _observed(
    settings: Settings, watchdog: Watchdog
) -> AbstractContextManager[Observed[RelayView] | None]:
    """Run the HTTP server during the block, if an address is configured."""
    if settings.outbox.http_address is None:
        return nullcontext()
    # Import the server only if it is used.
    from eosframework.application.composition.http import observed_relay

    return observed_relay(settings, watchdog)


def _watchdog(settings: Settings) -> Watchdog:
    return Watchdog(
        turn_seconds=_turn_seconds(settings),
        stop_seconds=settings.worker.stop_deadline_seconds,
        probe_seconds=0.0 if settings.outbox.http_address is None else PROBE_SECONDS,
    )


def _turn_seconds(settings: Settings) -> float:
    """Return an upper bound for a turn, which may take over, commit, recycle and read positions."""
    database = settings.database
    return (
        10 * settings.worker.transaction_timeout_seconds
        + 4 * settings.kafka.request_timeout_seconds
        + 4 * (database.statement_timeout_seconds + database.network_timeout_seconds)
    )


class KafkaSentLog:
    """The `SentLog` of a cluster."""

    def __init__(self, settings: KafkaSettings, admin: ClusterAdmin) -> None:
        self._settings = settings
        self._admin = admin

    def sent(self, since_by_topic: Mapping[str, int]) -> SentMessages:
        """Return the message ids in each topic from a time on.

        Raises:
            ClusterUnreachable: no broker answered in time.
        """
        facts = self._admin.describe_topics(since_by_topic)
        policies = self._admin.topic_setting(since_by_topic, "cleanup.policy")
        ids: set[str] = set()
        removed_before: dict[str, int] = {}
        for topic, since in since_by_topic.items():
            count = facts[topic].partitions if facts[topic].exists else 0
            partitions = partitions_of({topic: count})
            starts = self._admin.offsets_at(partitions, since)
            bounds = self._admin.log_bounds(partitions)
            for partition in partitions:
                start = starts[partition]
                first, end = bounds[partition]
                oldest = None
                for message in self._messages(partition, end if start is None else start, end):
                    ids.update(_ids(message))
                    oldest = message.timestamp()[1] if oldest is None else oldest
                if first > 0 and (start == first or first == end):
                    moment = round(time.time() * 1000) if oldest is None else oldest
                    removed_before[topic] = max(moment, removed_before.get(topic, 0))
            if "compact" in (policies.get(topic) or ""):
                removed_before[topic] = round(time.time() * 1000)
        return SentMessages(frozenset(ids), removed_before)

    def _messages(self, partition: TopicPartition, start: int, end: int) -> Iterator[Message]:
        for _, messages in read_ranges(self._settings, {partition: (start, end)}):
            yield from messages


def _ids(message: Any) -> list[str]:
    return [
        value.decode(errors="replace")
        for name, value in message.headers() or ()
        if name == ID_HEADER and value is not None
    ]
