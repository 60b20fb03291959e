"""Every setting, declared once: purpose, unit, default, special value.

A value comes from a command-line flag or `--set`, then from an `EOS_…` environment variable
(`EOS_WORKER__COMMIT_INTERVAL_SECONDS`), then from a file in `EOS_SECRETS_DIR`, then from the config
file, then from the default here.
The command line, the documentation and the JSON Schema derive from these models.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from eosframework.config.schema_registry import RegistrySettings
from eosframework.config.secrets import is_secret
from eosframework.config.section import Section
from eosframework.config.tracing import TracingSettings

PropertyValue = str | int | float | bool

_ONE_CLUSTER = (
    "a transaction cannot span clusters, so all topics of an application are on the one that "
    "kafka.bootstrap_servers names"
)

_ADDRESS = r"^(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):[0-9]{1,5}$"
"""A host and a port; an IPv6 host in brackets."""

FORBIDDEN_PROPERTIES: dict[str, str] = {
    "transactional.id": "each task has its own; see worker.ids",
    "enable.idempotence": "a transactional producer is always idempotent",
    "isolation.level": "inputs are read read_committed, or aborted records would be processed",
    "enable.auto.commit": "offsets are committed inside the transaction",
    "enable.auto.offset.store": "offsets are committed inside the transaction",
    "auto.offset.reset": "set worker.start; where progress exists a lost position is an error",
    "acks": "transactions need acks=all",
    "max.in.flight": "the idempotent producer needs its own value",
    "max.in.flight.requests.per.connection": "the idempotent producer needs its own value",
    "group.id": "it is the application's name",
    "group.instance.id": "set worker.instance",
    "session.timeout.ms": "set worker.session_timeout_seconds",
    "heartbeat.interval.ms": "set worker.heartbeat_interval_seconds",
    "group.protocol": "the protocol was chosen by measurement (docs/adr/0003)",
    "partition.assignment.strategy": "source topics of a task must be assigned together",
    "transaction.timeout.ms": "set worker.transaction_timeout_seconds",
    "enable.partition.eof": "the worker needs it to know when an input is read to its end",
    "partitioner": "keys must land where Java's producers put them: murmur2_random",
    "statistics.interval.ms": "clients have statistics where metrics are served",
    "bootstrap.servers": _ONE_CLUSTER,
    "metadata.broker.list": _ONE_CLUSTER,
    "test.mock.num.brokers": "the mock broker shows aborted records and does not fence",
    "dr_cb": "delivery failures are reported by the commit",
    "dr_msg_cb": "delivery failures are reported by the commit",
    "delivery.report.only.error": "delivery failures are reported by the commit",
}
"""librdkafka properties that would break the guarantee, each with the reason."""

FUNCTION_PROPERTIES = {
    "oauth_cb": "set sasl.oauthbearer.method=oidc with sasl.oauthbearer.client.id, "
    "sasl.oauthbearer.client.secret (a file of EOS_SECRETS_DIR) and "
    "sasl.oauthbearer.token.endpoint.url, and librdkafka gets the tokens by itself",
    "error_cb": "errors of clients are logged, and end what they make impossible",
    "stats_cb": "set worker.http_address for metrics",
    "throttle_cb": "set worker.http_address for metrics",
    "log_cb": "set log.level; clients log by it",
    "logger": "set log.level; clients log by it",
    "default.topic.config": "give the properties in it directly under kafka.properties",
}
"""librdkafka properties that take a Python object, each with what to set instead."""


class Guarantee(StrEnum):
    """What holds for each input record."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


class Start(StrEnum):
    """Where a partition starts that this application has never committed."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Ids(StrEnum):
    """Where the transactional ids of tasks come from."""

    DERIVED = "derived"
    LEASED = "leased"


class ForeignPartitioner(StrEnum):
    """What a start does where keys of co-partitioned topics are not where murmur2 puts them."""

    REFUSE = "refuse"
    WARN = "warn"


class KafkaSettings(Section):
    """How to reach the cluster."""

    bootstrap_servers: str = Field(default="127.0.0.1:9092", min_length=1)
    """Brokers to ask first, as host:port, separated by commas."""

    properties: dict[str, PropertyValue] = Field(default_factory=dict)
    """librdkafka properties passed through to every client (security.protocol, sasl.…, …).
    Those that would break the guarantee are refused by name. Passwords belong into files of
    EOS_SECRETS_DIR, for example kafka.properties.sasl.password; they are never shown."""

    assume_transaction_verification: bool = False
    """Start although a broker's version and transaction.partition.verification.enable cannot be
    read. Only set it when you know that every broker is Kafka 4.0 or later and has it on: otherwise
    a delayed frame can tear a transaction."""

    request_timeout_seconds: float = Field(default=10.0, gt=0)
    """Seconds after which an unanswered call to a broker counts as failed."""

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yield what is shown: no password, no key."""
        shown = {n: "…" if is_secret(n) else value for n, value in self.properties.items()}
        for name, value in super().__repr_args__():
            yield name, shown if name == "properties" else value

    @model_validator(mode="after")
    def _refuse_what_breaks_the_guarantee(self) -> Self:
        for name, value in self.properties.items():
            if reason := FORBIDDEN_PROPERTIES.get(name):
                raise ValueError(
                    f"property {name}={value!r} would break the guarantee: {reason}. Remove it"
                )
            if instead := FUNCTION_PROPERTIES.get(name):
                raise ValueError(
                    f"property {name} takes a Python object, which configuration cannot give. "
                    f"Remove it; instead, {instead}"
                )
        return self


class WorkerSettings(Section):
    """How a worker processes."""

    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    """exactly_once, or at_least_once for comparison."""

    commit_interval_seconds: float = Field(default=0.1, gt=0)
    """Seconds between rounds of commits. A round that takes long stretches it."""

    transaction_timeout_seconds: float = Field(default=30.0, gt=0)
    """Seconds after which the broker aborts a transaction that was not finished.
    A single record must take less. At most the brokers' transaction.max.timeout.ms."""

    session_timeout_seconds: float = Field(default=45.0, gt=0)
    """Seconds without a heartbeat after which a worker that does not come back loses its
    partitions. A restarted worker with the same instance name takes them back at once."""

    heartbeat_interval_seconds: float = Field(default=1.0, ge=0.3)
    """Seconds between heartbeats; a rebalance is noticed at the next one. A fenced worker waits
    for two of them, which has to be longer than librdkafka repeats a request (500 ms)."""

    instance: str | None = Field(default=None, pattern="^[A-Za-z0-9_.-]+$")
    """Name of this worker, stable across restarts, unique within the application.
    None: the host's name and the lowest slot that no other worker on this host has."""

    start: Start = Start.EARLIEST
    """Where a partition starts that was never committed: earliest or latest. Tables start at the
    earliest: they need all of their rows."""

    foreign_partitioner: ForeignPartitioner = ForeignPartitioner.REFUSE
    """What a start does where a sample of the keys of topics that are joined, or kept together, is
    not where murmur2 puts them, as with librdkafka's default partitioner: refuse, or warn where
    producers place keys on purpose, alike in all of these topics."""

    ids: Ids = Ids.DERIVED
    """Transactional ids. derived: from application, sub-topology and partition. leased: from a pool
    in the database that `eosframework ids add` fills, each for one partition until released."""

    partitions_per_producer: int = Field(default=1, ge=1)
    """How many partitions of a sub-topology share a producer, its transactional id and the fate of
    its transactions. More makes fewer commits and threads where there are very many partitions. All
    workers of an application need the same; it is changed while none runs."""

    receipts: bool = False
    """Give every output and dead letter a header, __eos.receipt, that tells which input record it
    comes from, so that `eosframework audit` needs no functions. Downstream keeps the header."""

    batch_records: int = Field(default=2000, gt=0)
    """Records taken from the consumer at once, at most."""

    queue_megabytes: int = Field(default=128, gt=0)
    """Megabytes of records that wait in a worker, for others with earlier times or for a commit,
    before partitions of which much waits are fetched no further. What librdkafka fetches ahead
    comes on top (kafka.properties.queued.max.messages.kbytes, 16 MB), and a record that is larger
    is processed all the same. Open transactions are committed early once the changes of their
    stores take a quarter of it."""

    hot_key_limit: int = Field(default=10_000, gt=0)
    """The most records of the other stream that one record may meet in a join of streams, and the
    most sliding or session windows that a key may have at once. A record beyond it fails in its
    step and goes the way of on_error. So the work of one record stays bounded, where n records of a
    key meet m others and would give n × m results."""

    commit_turns: int = Field(default=1, ge=1, le=2)
    """1: all tasks of a worker commit at once. 2: where work is waiting, one half of them works
    while the other half commits; that pays where commits take long, as with brokers that are far
    away, and costs throughput where brokers use the same processors."""

    max_task_idle_seconds: float = Field(default=0.0, ge=0)
    """Seconds that a task with several source partitions waits for one that is read to its end,
    before it goes on with the others. More makes joins and windows exact where producers write
    late; 0 waits only for what is already there."""

    max_event_time_ahead: float | None = Field(default=86_400.0, ge=0)
    """Seconds by which the event time that a function gives a record may lie ahead of the record's
    own Kafka timestamp. A record with a later one fails (on_error) before it moves stream time, so
    a single wrong time cannot make all later records late. None: no limit."""

    http_address: str | None = Field(default=None, pattern=_ADDRESS)
    """Where a worker answers over HTTP, as host:port, for example 127.0.0.1:8080: /metrics, /livez,
    /readyz, /status, and /state with what its stores hold, for anybody who reaches it. Of several
    --processes each has the next port; port 0 is any free one, which the event http_serving tells.
    None: nowhere, and nothing is measured."""

    http_hosts: tuple[str, ...] = ()
    """Names with a dot by which clients may ask for http_address, for example
    worker.shop.example.com, besides those of the address and of this machine. A request for another
    name is refused, so that no web page can read the answers through a browser. Addresses,
    localhost and names without a dot need no entry."""

    leave_on_stop: bool = True
    """On a graceful stop give the partitions to other workers at once. False: keep them for
    this instance's restart until the session times out."""

    stop_deadline_seconds: float = Field(default=20.0, gt=0)
    """Seconds a graceful stop or a revoked partition may take to finish its transaction. A process
    that has not ended so long after SIGTERM ends with exit code 2; that loses nothing."""

    @model_validator(mode="after")
    def _partitions_can_share(self) -> Self:
        if self.partitions_per_producer > 1 and (
            self.ids is Ids.LEASED or self.guarantee is Guarantee.AT_LEAST_ONCE
        ):
            raise ValueError(
                f"partitions_per_producer={self.partitions_per_producer} needs ids=derived and "
                f"guarantee=exactly_once: a leased id is for one partition, and without "
                f"transactions there is nothing to share; set it to 1"
            )
        return self

    @model_validator(mode="after")
    def _intervals_fit(self) -> Self:
        if self.commit_interval_seconds * 3 > self.transaction_timeout_seconds:
            raise ValueError(
                f"commit_interval_seconds={self.commit_interval_seconds:g} leaves a transaction "
                f"no reserve within transaction_timeout_seconds="
                f"{self.transaction_timeout_seconds:g}; set it to a third of that or less"
            )
        if self.heartbeat_interval_seconds * 3 > self.session_timeout_seconds:
            raise ValueError(
                f"heartbeat_interval_seconds={self.heartbeat_interval_seconds:g} must be a third "
                f"of session_timeout_seconds={self.session_timeout_seconds:g} or less"
            )
        return self


class DatabaseSettings(Section):
    """How to reach PostgreSQL, and how long to wait for it."""

    dsn: SecretStr | None = None
    """Where the database is, as postgresql://user:password@host:port/name or as libpq's
    key=value pairs; TLS and other options of libpq belong there too. None: there is none.
    It may hold a password, so it is never shown, and belongs into a file database.dsn in
    EOS_SECRETS_DIR."""

    connect_timeout_seconds: int = Field(default=10, ge=2)
    """Seconds after which an attempt to connect counts as failed."""

    statement_timeout_seconds: float = Field(default=30.0, gt=0)
    """Seconds after which the server gives a statement up. A server that says nothing for
    network_timeout_seconds more counts as lost."""

    idle_transaction_timeout_seconds: float = Field(default=30.0, gt=0)
    """Seconds after which the server ends a connection that stands still inside a transaction.
    So a process that stands still does not keep its successor from the rows it had locked."""

    network_timeout_seconds: float = Field(default=20.0, ge=2)
    """Seconds without an answer from the other machine, or without room for more data there,
    after which both ends of a connection count it as lost."""

    longest_pause_seconds: float = Field(default=5.0, gt=0)
    """Longest pause between two attempts to reach a database that is away, in seconds."""

    commit_interval_seconds: float = Field(default=0.2, gt=0)
    """Seconds between transactions that write rows to tables. One that takes long stretches it."""

    batch_rows: int = Field(default=10_000, gt=0)
    """Rows that are written without waiting for the interval."""

    keep_rows_seconds: float | None = Field(default=3600.0, ge=0)
    """Seconds for which rows stay in a topic of the application's own after the database has them:
    as far as a standby may lag that is promoted, or a backup be behind that is restored. None: for
    ever. A worker counts from its own start, and needs Delete on the topic."""


class OutboxSourceKind(StrEnum):
    """Where published messages wait for the relay."""

    TABLE = "table"
    SLOT = "slot"


class OutboxRefusal(StrEnum):
    """The policy for a message that Kafka cannot take."""

    SET_ASIDE = "set_aside"
    FAIL = "fail"


class OutboxSettings(Section):
    """How `relay-outbox` carries messages from the database to Kafka."""

    name: str = Field(default="outbox", pattern="^[a-z0-9][a-z0-9_.]*$", max_length=200)
    """Name of the relay: of its transactional ids and of its registry topic. Relays of the same
    database share it; no two databases may."""

    source: OutboxSourceKind = OutboxSourceKind.TABLE
    """table: what `publish` wrote, in the order of the calls. slot: what `emit` wrote, in the order
    of the commits; needs wal_level=logical."""

    shards: int = Field(default=1, gt=0, le=64)
    """Into how many parts the outbox is divided by key. Relays share them; each part has a
    transactional id of its own."""

    batch_rows: int = Field(default=5000, gt=0)
    """Messages read from the database at once, at most."""

    batch_megabytes: int = Field(default=8, gt=0)
    """Size of the messages read at once, in megabytes; a single message may be larger."""

    poll_interval_seconds: float = Field(default=0.5, gt=0)
    """Seconds after which the outbox is looked at although nobody said that there is more."""

    keep_seconds: float = Field(default=10.0, ge=0)
    """Seconds for which messages stay in the outbox after they were sent."""

    on_refused: OutboxRefusal = OutboxRefusal.SET_ASIDE
    """What happens to a message that Kafka cannot take: its topic does not exist, is forbidden or
    too small for it, or its headers are malformed. set_aside: it is kept in the table
    eosframework.outbox_refused, and the messages behind it are sent. fail: the relay ends with an
    error that names it, and nothing behind it in its shard is sent."""

    http_address: str | None = Field(default=None, pattern=_ADDRESS)
    """Where a relay answers over HTTP, as host:port: /metrics, /livez, /readyz and /status. Port 0
    is any free one, which the event http_serving tells. None: nowhere, and nothing is measured."""

    http_hosts: tuple[str, ...] = ()
    """Names with a dot by which clients may ask for http_address; see worker.http_hosts."""


class BackfillSettings(Section):
    """How tasks of a backfill write."""

    commit_interval_seconds: float = Field(default=5.0, gt=0)
    """Seconds between transactions of a task; at most a third of
    worker.transaction_timeout_seconds. More commits less often, and repeats more when an executor
    is lost."""

    chunk_records: int = Field(default=100_000, gt=0)
    """Records that one transaction takes at most. They stay in memory until it is committed."""

    chunk_megabytes: int = Field(default=64, gt=0)
    """Size of the records that one transaction takes, in megabytes; a batch of Spark's may exceed
    it."""

    stall_seconds: float = Field(default=25.0, gt=0)
    """Seconds without a sign of life from a task's attempt, after which a later one takes the task
    over: a retry or a speculative copy. An attempt that failed says so and is not waited for."""

    @model_validator(mode="after")
    def _stall_is_longer(self) -> Self:
        if self.stall_seconds < 3 * self.commit_interval_seconds:
            raise ValueError(
                f"stall_seconds={self.stall_seconds:g} must be three times "
                f"commit_interval_seconds={self.commit_interval_seconds:g} or more, or attempts "
                f"that are well would be taken over"
            )
        return self


class StateBackendKind(StrEnum):
    """What keeps the stores of a worker."""

    ROCKSDB = "rocksdb"
    MEMORY = "memory"


class StateSettings(Section):
    """Where a worker keeps what its tasks remember."""

    backend: StateBackendKind = StateBackendKind.ROCKSDB
    """rocksdb: files that survive the process. memory: nothing survives it, so each start reads the
    changelogs from their beginning, and everything has to fit."""

    directory: Path | None = None
    """Where the stores' files are, on a local disk; a container needs a volume there, or each
    start rebuilds them. None: eosframework/stores in the user's state directory."""

    cache_bytes: int = Field(default=256 * 2**20, ge=8 * 2**20)
    """Memory for the stores of one process, in bytes: what was read and what is not in files
    yet. The process needs more for everything else."""

    standby_copies: int = Field(default=0, ge=0)
    """Copies of each task's stores that other workers keep by following the changelogs, so that a
    takeover reads only the tail. 0: none; workers of one machine hand their stores on as it is."""


class TopicSettings(Section):
    """How `apply` creates topics that are missing."""

    partitions: int = Field(default=4, gt=0)
    """Partitions of an output or dead-letter topic that `apply` creates."""

    replication_factor: int | None = Field(default=None, gt=0)
    """Replicas of a topic that `apply` creates. None: the cluster's default."""


class LogFormat(StrEnum):
    """How log events are written to stderr."""

    AUTO = "auto"
    CONSOLE = "console"
    JSON = "json"


class LogSettings(Section):
    """What is logged."""

    level: str = Field(default="info", pattern="^(debug|info|warning|error)$")
    """Lowest level written: debug, info, warning or error."""

    format: LogFormat = LogFormat.AUTO
    """auto: for people on a terminal, JSON elsewhere."""


class Settings(BaseSettings):
    """All settings of a worker."""

    model_config = SettingsConfigDict(
        env_prefix="EOS_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    worker: WorkerSettings = Field(default_factory=WorkerSettings)
    database: DatabaseSettings = Field(default_factory=DatabaseSettings)
    outbox: OutboxSettings = Field(default_factory=OutboxSettings)
    backfill: BackfillSettings = Field(default_factory=BackfillSettings)
    state: StateSettings = Field(default_factory=StateSettings)
    topics: TopicSettings = Field(default_factory=TopicSettings)
    schema_registry: RegistrySettings = Field(default_factory=RegistrySettings)
    tracing: TracingSettings = Field(default_factory=TracingSettings)
    log: LogSettings = Field(default_factory=LogSettings)

    def with_instance(self, instance: str, http_address: str | None) -> Settings:
        """Return the same settings for a worker of this name, which answers at this address."""
        changes = {"instance": instance, "http_address": http_address}
        return self.model_copy(update={"worker": self.worker.model_copy(update=changes)})

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags come before the environment; the file comes last (see `load_settings`)."""
        return (init_settings, env_settings, FileSource(settings_cls))


class FileSource(PydanticBaseSettingsSource):
    """The values of the config file named in `load_settings`."""

    values: dict[str, Any] = {}  # noqa: RUF012 - set for the length of one load

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        """Return the value of one section."""
        return self.values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return the values of all sections."""
        return self.values
