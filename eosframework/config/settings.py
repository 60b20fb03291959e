"""Every setting, declared once: purpose, unit, default, special value.

A value comes from a command-line flag or `--set`, then from an `EOS_…` environment variable
(`EOS_WORKER__COMMIT_INTERVAL_SECONDS`), then from a file in `EOS_SECRETS_DIR`, then from the config
file, then from the default here.
The command line, the documentation and the JSON Schema derive from these models.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from eosframework.config.secrets import PREFIX, is_secret, kafka_properties
from eosframework.config.sections import ConsoleSettings, RegistrySettings, Section

PropertyValue = str | int | float | bool

_ONE_CLUSTER = (
    "a transaction cannot span clusters, so all topics of an application are on the one that "
    "kafka.bootstrap_servers names"
)

_ADDRESS = r"^(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):[0-9]{1,5}$"
"""A host and a port; an IPv6 host in brackets."""

_WILDCARDS = frozenset({"0.0.0.0", "[::]", "[0::0]", "[0:0:0:0:0:0:0:0]"})
"""Hosts that stand for all addresses of a machine."""

FORBIDDEN_PROPERTIES: dict[str, str] = {
    "transactional.id": "each task has its own; see worker.ids",
    "enable.idempotence": "a transactional producer is always idempotent",
    "isolation.level": "inputs are read read_committed, or aborted records would be processed",
    "enable.auto.commit": "offsets are committed inside the transaction",
    "enable.auto.offset.store": "offsets are committed inside the transaction",
    "auto.offset.reset": "set worker.start; if offsets were committed, a lost one is an error",
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
    "oauth_cb": "set kafka.oauth_cb=module:function; or set sasl.oauthbearer.method=oidc with "
    "sasl.oauthbearer.client.id, sasl.oauthbearer.client.secret (a file of EOS_SECRETS_DIR) and "
    "sasl.oauthbearer.token.endpoint.url, and librdkafka gets the tokens by itself",
    "error_cb": "errors of clients are logged, and fatal ones end the worker",
    "stats_cb": "set worker.http_address for metrics",
    "throttle_cb": "set worker.http_address for metrics",
    "log_cb": "set log.level; clients log by it",
    "logger": "set log.level; clients log by it",
    "default.topic.config": "give the properties in it directly under kafka.properties",
}
"""librdkafka properties that take a Python object, each with its replacement."""


class Guarantee(StrEnum):
    """The guarantee for each input record."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


class Start(StrEnum):
    """The start of a partition for which this application has never committed an offset."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Ids(StrEnum):
    """The transactional ids of a worker."""

    WORKER = "worker"
    PARTITION = "partition"
    LEASED = "leased"


class ForeignPartitioner(StrEnum):
    """The reaction at start to keys that were not partitioned with murmur2."""

    REFUSE = "refuse"
    WARN = "warn"


class KafkaSettings(Section):
    """The connection to the Kafka cluster."""

    bootstrap_servers: str = Field(default="127.0.0.1:9092", min_length=1)
    """Brokers for the first connection, as host:port, separated by commas."""

    properties: dict[str, PropertyValue] = Field(default_factory=dict)
    """librdkafka properties for every client (security.protocol, sasl.…, …), also one by one as
    EOS_KAFKA__PROPERTIES__NAME, with _ for a period: …__SSL_CA_LOCATION. Properties that would
    break the guarantee are refused by name. Passwords belong in files of EOS_SECRETS_DIR, for
    example kafka.properties.sasl.password; they are never shown."""

    oauth_cb: str | None = Field(default=None, pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")
    """Function that returns OAUTHBEARER tokens, as module:function: for Amazon MSK with IAM, Azure
    and Google. It gets sasl.oauthbearer.config and returns (token, expiry in seconds since 1970[,
    principal[, extensions]]), as for oauth_cb of confluent_kafka. Every client calls it. None:
    kafka.properties say where tokens come from."""

    assume_transaction_verification: bool = False
    """Start even if a broker's version and transaction.partition.verification.enable cannot be
    read. Only set it if you know that every broker is Kafka 4.0 or later and has the verification
    enabled: otherwise a delayed request can be added to the wrong transaction."""

    request_timeout_seconds: float = Field(default=10.0, gt=0)
    """Seconds after which an unanswered request to a broker counts as failed."""

    start_timeout_seconds: float = Field(default=60.0, ge=0)
    """Seconds for which the start of a worker, a relay or a backfill repeats its checks while
    brokers do not answer; a failed broker is replaced after broker.session.timeout.ms (9 s) and an
    election. A worker that a supervisor restarts (--processes, --on) waits without limit."""

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yield the fields to show, without passwords and keys."""
        shown = {n: "…" if is_secret(n) else value for n, value in self.properties.items()}
        for name, value in super().__repr_args__():
            yield name, shown if name == "properties" else value

    @model_validator(mode="after")
    def _tokens_are_used(self) -> Self:
        if self.oauth_cb is None:
            return self
        given = self.properties
        mechanism = given.get("sasl.mechanisms", given.get("sasl.mechanism", "GSSAPI"))
        if str(mechanism).upper() != "OAUTHBEARER":
            raise ValueError(
                f"oauth_cb={self.oauth_cb} needs the property sasl.mechanisms=OAUTHBEARER, but it "
                f"is {mechanism}; set it, or remove oauth_cb"
            )
        for name, off in (
            ("sasl.oauthbearer.method", "default"),
            ("enable.sasl.oauthbearer.unsecure.jwt", "false"),
        ):
            if str(given.get(name, off)).lower() != off:
                raise ValueError(
                    f"oauth_cb={self.oauth_cb} and property {name}={given[name]} are two sources "
                    f"of tokens; remove one"
                )
        return self

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
    """The processing of records by a worker."""

    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    """exactly_once; at_least_once for clusters without transactions, or with brokers before 4.0."""

    commit_interval_seconds: float = Field(default=0.1, gt=0)
    """Seconds between commits. A commit that takes longer delays the next one."""

    transaction_timeout_seconds: float = Field(default=30.0, gt=0)
    """Seconds after which the broker aborts an unfinished transaction (transaction.timeout.ms). A
    single record must take less, which is judged when its functions return. At most the brokers'
    transaction.max.timeout.ms."""

    session_timeout_seconds: float = Field(default=45.0, gt=0)
    """Seconds without a heartbeat after which a worker loses its partitions. A worker that restarts
    within this time under the same instance name gets them back at once."""

    heartbeat_interval_seconds: float = Field(default=1.0, ge=0.3)
    """Seconds between heartbeats; a worker learns of a rebalance with the next one. A fenced worker
    waits for two heartbeats, which must be longer than librdkafka's retries of a request (500 ms).
    """

    instance: str | None = Field(default=None, pattern="^[A-Za-z0-9_.-]+$")
    """Name of this worker (group.instance.id), stable across restarts, unique within the
    application. None: the host's name and the lowest slot that no other worker on this host uses.
    """

    instance_directory: Path | None = None
    """Directory for the files that hold the names of workers, the same for all workers of a host.
    None: eosframework in the user's state directory."""

    start: Start = Start.EARLIEST
    """Start of a partition without a committed offset: earliest or latest. Tables always start at
    the earliest offset: they need all of their rows."""

    foreign_partitioner: ForeignPartitioner = ForeignPartitioner.REFUSE
    """Reaction at start if sampled keys of co-partitioned topics are not in the partitions that
    murmur2 chooses, as with librdkafka's default partitioner: refuse, or warn if the producers of
    all these topics use the same partitioner on purpose."""

    ids: Ids = Ids.WORKER
    """Transactional ids. worker: one for each worker, after its instance, with one producer for all
    of its partitions. partition: one for each partition, with a producer and a transaction each,
    which is much slower with many partitions. leased: the same, with ids from a pool in the
    database that `eosframework ids add` fills. Workers with different ids fence each other, so the
    setting may be changed worker by worker."""

    receipts: bool = False
    """Add a header, __eos.receipt, to every output and dead letter. It identifies the input record,
    so that `eosframework audit` needs no functions. Results of many records and changelog records
    name their transaction (__eos.transaction), so that `eosframework why` finds the state that an
    output met. Consumers see the header."""

    batch_records: int = Field(default=2000, gt=0)
    """Most records taken from the consumer at once."""

    queue_megabytes: int = Field(default=128, gt=0)
    """Megabytes of records buffered in a worker, until records with earlier times or a commit are
    processed, above which partitions with many buffered records are paused. librdkafka's own buffer
    is not included (kafka.properties.queued.max.messages.kbytes, 16 MB), and a larger single record
    is processed all the same. Open transactions are committed early once the changes of their
    stores take a quarter of it."""

    hot_key_limit: int = Field(default=10_000, gt=0)
    """Most records of the other stream that one record may match in a join of streams, and most
    sliding or session windows that a key may have at once. A record above the limit fails in its
    step, and on_error applies. This bounds the work for one record: n records of a key that match m
    others would have n × m results."""

    reorder_limit: int = Field(default=100_000, gt=0)
    """Most records that a task may hold until stream time has passed them, because a step after a
    repartition topic depends on their order. Beyond it, on_error applies to the oldest."""

    max_task_idle_seconds: float = Field(default=1.0, ge=0)
    """Seconds without a new record after which a source partition that is read to its end counts as
    idle. A task with several source partitions waits so long for an exhausted one before it
    processes the others (max.task.idle.ms of Kafka Streams), and a task whose sources are all idle
    no longer holds the stream time of tasks that read its repartition topics. A higher value makes
    joins and windows exact if producers are late; 0 waits only for records that are already in the
    log.
    """

    watermark_interval_seconds: float = Field(default=0.5, ge=0, le=10)
    """Least seconds between two watermarks of a task: records that announce its stream time to the
    tasks that read its repartition topics. Results that wait for stream time there are sent later
    by about this time."""

    max_event_time_ahead: float | None = Field(default=86_400.0, ge=0)
    """Seconds by which the event time that a function returns may be later than the record's own
    Kafka timestamp. A record with a later one fails (on_error) before it advances stream time, so a
    single wrong time cannot make all later records late. None: no limit."""

    http_address: str | None = Field(default=None, pattern=_ADDRESS)
    """Address of a worker's HTTP server, as host:port, for example 127.0.0.1:8080. It serves
    /metrics, /livez, /readyz, /status, and the content of stores at /state, to every client that
    reaches it. With --processes each process has the next port; port 0 is any free port, which the
    event http_serving reports. None: no server and no metrics."""

    http_advertised_address: str | None = Field(default=None, pattern=_ADDRESS)
    """Address at which other workers and clients reach http_address, as host:port. Workers announce
    it to each other, so that each of them answers for every key of a store. Port 0 is the port of
    http_address; with --processes each process has the next port. None: http_address, or nothing
    if that is a wildcard (0.0.0.0, [::])."""

    http_hosts: tuple[str, ...] = ()
    """Host names with a dot that requests to http_address may use, for example
    worker.shop.example.com, in addition to the address and this machine's name. Requests for other
    names are refused, so that no web page can read the answers through a browser. Addresses,
    localhost and names without a dot need no entry."""

    leave_on_stop: bool = True
    """Leave the consumer group on a graceful stop, so that other workers take over at once. False:
    keep the partitions for this instance's restart until the session times out."""

    stop_deadline_seconds: float = Field(default=20.0, gt=0)
    """Seconds that a graceful stop or a revoked partition may take to finish its transaction. A
    process that is still running so long after SIGTERM exits with code 1; no data is lost."""

    @property
    def has_own_id(self) -> bool:
        """True if all tasks of a worker write under the worker's id."""
        return self.ids is Ids.WORKER and self.guarantee is Guarantee.EXACTLY_ONCE

    def announced_address(self, taken: str) -> str | None:
        """Return the HTTP address to announce; None: nothing says where others reach it.

        Args:
            taken: the address that the worker listens on, with the actual port.
        """
        stated = self.http_advertised_address
        if stated is None:
            return None if taken.rpartition(":")[0] in _WILDCARDS else taken
        host, _, port = stated.rpartition(":")
        return stated if int(port) else f"{host}:{taken.rpartition(':')[2]}"

    @model_validator(mode="after")
    def _addresses_fit(self) -> Self:
        stated = self.http_advertised_address
        if stated is not None and self.http_address is None:
            raise ValueError(
                f"http_advertised_address={stated!r} needs http_address, where the worker listens"
            )
        if stated is not None and stated.rpartition(":")[0] in _WILDCARDS:
            raise ValueError(
                f"http_advertised_address={stated!r} is a wildcard, which no other worker can "
                f"connect to; give this machine's name or address"
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
    """The connection to PostgreSQL, and its timeouts."""

    dsn: SecretStr | None = None
    """Connection string, as postgresql://user:password@host:port/name or as libpq's key=value
    pairs; TLS and other options of libpq belong there, too. None: there is no database. It may
    contain a password, so it is never shown, and belongs in a file database.dsn in EOS_SECRETS_DIR.
    """

    connect_timeout_seconds: int = Field(default=10, ge=2)
    """Seconds after which an attempt to connect counts as failed."""

    statement_timeout_seconds: float = Field(default=30.0, gt=0)
    """Seconds after which the server cancels a statement. A server that does not answer for
    network_timeout_seconds more counts as unavailable."""

    idle_transaction_timeout_seconds: float = Field(default=30.0, gt=0)
    """Seconds after which the server closes a connection that is idle in a transaction, so that a
    process that hangs does not keep its successor from the rows that it locked."""

    network_timeout_seconds: float = Field(default=20.0, ge=2)
    """Seconds without an answer from the peer, or without room for more data there, after which
    both ends of a connection close it."""

    longest_pause_seconds: float = Field(default=5.0, gt=0)
    """Most seconds between two attempts to reach an unavailable database."""

    commit_interval_seconds: float = Field(default=0.2, gt=0)
    """Seconds between transactions that write rows to tables. A longer one delays the next."""

    batch_rows: int = Field(default=10_000, gt=0)
    """Number of rows that are written at once, before the interval is over."""

    keep_rows_seconds: float | None = Field(default=3600.0, ge=0)
    """Seconds for which rows stay in an internal topic after they are in the database: at least the
    lag of a standby that may be promoted, or the age of a backup that may be restored. None:
    forever. A worker counts from its own start, and needs the Delete permission on the topic."""


class OutboxSourceKind(StrEnum):
    """The place where published messages wait for the relay."""

    TABLE = "table"
    SLOT = "slot"


class OutboxRefusal(StrEnum):
    """The policy for a message that Kafka cannot take."""

    SET_ASIDE = "set_aside"
    FAIL = "fail"


class OutboxSettings(Section):
    """The outbox relay, `relay-outbox`, which sends messages from the database to Kafka."""

    name: str = Field(default="outbox", pattern="^[a-z0-9][a-z0-9_.]*$", max_length=200)
    """Name of the relay: of its transactional ids and of its control topic. Relays of the same
    database share it; no two databases may."""

    source: OutboxSourceKind = OutboxSourceKind.TABLE
    """table: messages written with `publish`, in the order of the calls. slot: messages written
    with `emit`, in the order of the commits; needs wal_level=logical."""

    shards: int = Field(default=1, gt=0, le=64)
    """Number of shards into which the outbox is divided by key. Relays share them; each shard has
    its own transactional id."""

    batch_rows: int = Field(default=5000, gt=0)
    """Most messages read from the database at once."""

    batch_megabytes: int = Field(default=8, gt=0)
    """Size of the messages read at once, in megabytes; a single message may be larger."""

    poll_interval_seconds: float = Field(default=0.5, gt=0)
    """Seconds between polls of the outbox when no notification arrives."""

    keep_seconds: float = Field(default=10.0, ge=0)
    """Seconds for which messages stay in the outbox after they were sent."""

    on_refused: OutboxRefusal = OutboxRefusal.SET_ASIDE
    """Treatment of a message that Kafka cannot take: its topic does not exist, is forbidden or has
    a lower size limit, or its headers are malformed. set_aside: it is moved to the table
    eosframework.outbox_refused, and later messages are sent. fail: the relay ends with an error
    that names it, and no later message of its shard is sent."""

    http_address: str | None = Field(default=None, pattern=_ADDRESS)
    """Address of a relay's HTTP server, as host:port: /metrics, /livez, /readyz and /status. Port 0
    is any free port, which the event http_serving reports. None: no server and no metrics."""

    http_hosts: tuple[str, ...] = ()
    """Host names with a dot that requests to http_address may use; see worker.http_hosts."""


class BackfillSettings(Section):
    """The output of a backfill's tasks."""

    commit_interval_seconds: float = Field(default=5.0, gt=0)
    """Seconds between transactions of a task; at most a third of
    worker.transaction_timeout_seconds. A higher value means fewer commits, and more repeated work
    when an executor is lost."""

    chunk_records: int = Field(default=100_000, gt=0)
    """Most records in one transaction. They stay in memory until it is committed."""

    chunk_megabytes: int = Field(default=64, gt=0)
    """Most megabytes of records in one transaction; a batch of Spark's may exceed it."""

    stall_seconds: float = Field(default=25.0, gt=0)
    """Seconds without a heartbeat from a task's attempt, after which a later one (a retry or a
    speculative copy) takes the task over. An attempt that failed reports it, which ends the wait.
    """

    @model_validator(mode="after")
    def _stall_is_longer(self) -> Self:
        if self.stall_seconds < 3 * self.commit_interval_seconds:
            raise ValueError(
                f"stall_seconds={self.stall_seconds:g} must be three times "
                f"commit_interval_seconds={self.commit_interval_seconds:g} or more, or healthy "
                f"attempts would be taken over"
            )
        return self


class StateBackendKind(StrEnum):
    """The storage of a worker's stores."""

    ROCKSDB = "rocksdb"
    MEMORY = "memory"


class StateSettings(Section):
    """The state of a worker's tasks."""

    backend: StateBackendKind = StateBackendKind.ROCKSDB
    """rocksdb: files that survive the process. memory: state is lost with the process, so each
    start restores it from the beginning of the changelogs, and it must fit into memory."""

    directory: Path | None = None
    """Directory for the stores' files, on a local disk; a container needs a volume there, or each
    start restores them. None: eosframework/stores in the user's state directory."""

    cache_bytes: int = Field(default=256 * 2**20, ge=8 * 2**20)
    """Memory for the stores of one process, in bytes: block cache and memtables. The process needs
    more for everything else."""

    standby_copies: int = Field(default=0, ge=0)
    """Standby copies of each task's stores that other workers keep by following the changelogs, so
    that a takeover reads only the tail. 0: none; workers on one machine hand their stores over in
    any case."""


class TopicSettings(Section):
    """The topics that `apply` creates."""

    partitions: int = Field(default=4, gt=0)
    """Partitions of an output or dead-letter topic that `apply` creates."""

    replication_factor: int | None = Field(default=None, gt=0)
    """Replicas of a topic that `apply` creates. None: the cluster's default."""


class TracingSettings(Section):
    """The tracing of a worker's transactions; the standard OTEL_ variables say where it goes."""

    enabled: bool = False
    """Make a span of each transaction, and give outputs a trace context. OTEL_TRACES_SAMPLER,
    OTEL_EXPORTER_OTLP_ENDPOINT and the other standard variables choose the spans and their target.
    """

    links: int = Field(default=64, ge=0, le=128)
    """Most records that a transaction's span links to: the first with a sampled trace context."""


class LogFormat(StrEnum):
    """The format of log events on stderr."""

    AUTO = "auto"
    CONSOLE = "console"
    JSON = "json"


class LogSettings(Section):
    """The log."""

    level: str = Field(default="info", pattern="^(debug|info|warning|error)$")
    """Lowest level to write: debug, info, warning or error."""

    format: LogFormat = LogFormat.AUTO
    """auto: readable text on a terminal, JSON elsewhere."""


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
    console: ConsoleSettings = Field(default_factory=ConsoleSettings)
    log: LogSettings = Field(default_factory=LogSettings)

    def with_instance(
        self, instance: str, http_address: str | None, http_advertised_address: str | None = None
    ) -> Settings:
        """Return the same settings for a worker with this instance name and HTTP addresses."""
        changes = {
            "instance": instance,
            "http_address": http_address,
            "http_advertised_address": http_advertised_address,
        }
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
        """Give flags precedence over the environment; the file comes last (see `load_settings`)."""
        file = FileSource(settings_cls)
        properties = kafka_properties(os.environ)
        if not properties or not isinstance(env_settings, EnvSettingsSource):
            return (init_settings, env_settings, file)
        # Its own rule would take `__` in the name of a property for another level.
        env_settings.env_vars = {
            name: value
            for name, value in env_settings.env_vars.items()
            if not name.upper().startswith(PREFIX)
        }
        own = InitSettingsSource(settings_cls, {"kafka": {"properties": properties}})
        return (init_settings, own, env_settings, file)


class FileSource(PydanticBaseSettingsSource):
    """The values of the config file named in `load_settings`."""

    values: dict[str, Any] = {}  # noqa: RUF012 - set for the length of one load

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        """Return the value of one section."""
        return self.values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return the values of all sections."""
        return self.values
