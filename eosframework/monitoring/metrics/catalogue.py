"""Every metric, declared once; the documentation and the exposition are derived from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from eosframework.processing.measurements import HistogramSnapshot

PREFIX = "eosframework_"


class Kind(StrEnum):
    """Metric types of Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Process(StrEnum):
    """Kinds of processes; each kind has its own set of metrics."""

    TRANSFORMS = "transforms"
    TABLES = "tables"
    RELAY = "relay"


WORKERS = (Process.TRANSFORMS, Process.TABLES)
PRODUCERS = (Process.TRANSFORMS, Process.RELAY)
EVERY = tuple(Process)


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    Args:
        name: without the prefix; ends in the unit, and in `_total` after that for a counter.
        what: description in one sentence.
        normal: the normal values.
        otherwise: the next step if the values differ.
        labels: in addition to `application`, which all metrics have.
        exposed_by: the processes that expose the metric.
    """

    name: str
    kind: Kind
    what: str
    normal: str
    otherwise: str
    labels: tuple[str, ...] = ()
    exposed_by: tuple[Process, ...] = EVERY

    @property
    def full_name(self) -> str:
        """The name in Prometheus, with the prefix."""
        return PREFIX + self.name


Value = float | HistogramSnapshot

MetricValues = Mapping[str, Sequence[tuple[tuple[str, ...], Value]]]
"""Label values and value of each known metric, by the metric's name."""


_TRANSFORMS = (Process.TRANSFORMS,)
_TABLES = (Process.TABLES,)
_RELAY = (Process.RELAY,)

_THROUGHPUT = (
    Metric(
        "records_read_total",
        Kind.COUNTER,
        "Input records of committed transactions; records processed again do not count twice.",
        "Rises as fast as the topic is written.",
        "Constant while `lag_records` rises: look at `/readyz`, then at the log.",
        ("topic",),
        WORKERS,
    ),
    Metric(
        "records_written_total",
        Kind.COUNTER,
        "Records written by committed transactions, including changelogs and dead letters.",
        "In a fixed ratio to `records_read_total`, given by the topology.",
        "Another ratio than yesterday: a filter or its input has changed.",
        ("topic",),
        PRODUCERS,
    ),
    Metric(
        "rows_written_total",
        Kind.COUNTER,
        "Rows written to a table; upserts and deletions count as rows.",
        "In a fixed ratio to `records_read_total`.",
        "Another ratio than yesterday: the function that makes rows or its input has changed.",
        ("table",),
        _TABLES,
    ),
    Metric(
        "lag_records",
        Kind.GAUGE,
        "Unprocessed offsets up to the last stable offset, in this process's partitions of a "
        "topic; transaction markers count too, except after the last record.",
        "Near 0, or returning to it after each burst.",
        "Rising for minutes: add workers, up to one for each partition; see "
        "`transaction_seconds` for what is slow.",
        ("topic",),
        WORKERS,
    ),
    Metric(
        "largest_lag_records",
        Kind.GAUGE,
        "The largest lag of a single partition of a topic.",
        "Not far above the mean lag.",
        "Far above it: one key or one task is hot; `eosframework status` names the task.",
        ("topic",),
        WORKERS,
    ),
    Metric(
        "held_back_records",
        Kind.GAUGE,
        "Offsets beyond the last stable offset, which an open transaction hides from readers.",
        "The number that producers write between two of their commits.",
        "Rising without end: a transaction upstream hangs. `eosframework txn hanging` finds it "
        "(docs/howto/blocked-reader.md).",
        ("topic",),
        WORKERS,
    ),
)

_TRANSACTIONS = (
    Metric(
        "transactions_total",
        Kind.COUNTER,
        "Transactions by outcome: committed or aborted.",
        "Commits only; a few aborts where brokers restart.",
        "More than one abort in a hundred: the log names the error, `eosframework explain errors` "
        "explains it.",
        ("outcome",),
        PRODUCERS,
    ),
    Metric(
        "commit_seconds",
        Kind.HISTOGRAM,
        "Duration of a round of commits of all tasks of the process.",
        "10 to 100 ms, more with more tasks.",
        "Above a third of the commit interval: the worker stretches the interval (event "
        "commit_interval_stretched). Look at the brokers' disks and `client_round_trip_seconds`.",
        (),
        PRODUCERS,
    ),
    Metric(
        "transaction_seconds",
        Kind.HISTOGRAM,
        "Duration from a transaction's first record to the end of its commit.",
        "The commit interval plus the duration of the commit.",
        "Near `worker.transaction_timeout_seconds`: the transaction will expire and be repeated. A "
        "function or a broker is slow.",
        (),
        PRODUCERS,
    ),
    Metric(
        "transaction_records",
        Kind.HISTOGRAM,
        "Input records, or messages of an outbox, in one transaction.",
        "The number that arrives in one commit interval.",
        "1 at a time under load: the worker bisects to find a refused record; see the log.",
        (),
        PRODUCERS,
    ),
    Metric(
        "producer_recycles_total",
        Kind.COUNTER,
        "Producers replaced because one of their requests might still be in flight (ADR 1).",
        "0 for hours; some when connections break.",
        "Several a minute: connections break; see `client_disconnects_total`.",
        (),
        PRODUCERS,
    ),
    Metric(
        "fences_total",
        Kind.COUNTER,
        "Tasks or partitions that another process, or an expired transaction, took from this one.",
        "0; one when a machine was suspended and resumed.",
        "Rising: two applications share a name, or transactions outlast their timeout; the log "
        "says which.",
    ),
    Metric(
        "unknown_outcomes_total",
        Kind.COUNTER,
        "Commits whose response was lost, so their outcome was read from Kafka.",
        "0; some when brokers fail. No record was lost or duplicated.",
        "Rising on healthy brokers: the network drops connections.",
        (),
        PRODUCERS,
    ),
    Metric(
        "dead_letters_total",
        Kind.COUNTER,
        "Records or rows that became dead letters; one that an abort repeats counts again.",
        "0.",
        "Look at the dead letters' headers: they name record, step and error.",
        (),
        WORKERS,
    ),
    Metric(
        "retries_total",
        Kind.COUNTER,
        "Failed records sent to a retry topic; one that an abort repeats counts again.",
        "0; some while a service that a function calls is unavailable.",
        "Rising: waiting records have the error in their headers. Fix the cause before the last "
        "delay has passed, after which they become dead letters.",
        (),
        WORKERS,
    ),
    Metric(
        "skipped_records_total",
        Kind.COUNTER,
        "Records or rows that failed and were skipped (`on_error: skip`).",
        "0, or as many as you expect of the data.",
        "Rising faster than before: the input has changed.",
        (),
        WORKERS,
    ),
    Metric(
        "late_records_total",
        Kind.COUNTER,
        "Records that were too late for a window, join or expiry.",
        "0, or a small share.",
        "Rising: producers are later than `grace` allows.",
        ("step", "topic"),
        _TRANSFORMS,
    ),
)

_STATE = (
    Metric(
        "tasks",
        Kind.GAUGE,
        "Tasks, partitions of table sinks, or shards of an outbox in this process, by state.",
        "All `running`.",
        "`fenced`, `recovering` or `unclaimed` for minutes: `/readyz` has the reasons.",
        ("state",),
    ),
    Metric(
        "ready",
        Kind.GAUGE,
        "1 while `/readyz` answers 200.",
        "1.",
        "0: `/readyz` has the reasons.",
    ),
    Metric(
        "turn_age_seconds",
        Kind.GAUGE,
        "Seconds since the main thread's last turn.",
        "Below 1; some seconds while partitions are taken over.",
        "Growing: a broker, a database or a function does not return; `/livez` fails next.",
    ),
    Metric(
        "restore_records",
        Kind.GAUGE,
        "Changelog records that must still be restored before every task runs.",
        "0; falling after a start on a new machine.",
        "Often above 0: stores are lost at each start (a container without a volume). Use a "
        "volume, or keep standby copies (`state.standby_copies`).",
        (),
        _TRANSFORMS,
    ),
    Metric(
        "store_bytes",
        Kind.GAUGE,
        "Size of the stores of this process's tasks, in files and in memory.",
        "Follows the number of keys.",
        "Growing without end: keys are never removed; use a `ttl` or a window.",
        ("store",),
        _TRANSFORMS,
    ),
    Metric(
        "store_keys",
        Kind.GAUGE,
        "Keys in the stores of this process's tasks, estimated.",
        "The number of keys in the data.",
        "As `store_bytes`.",
        ("store",),
        _TRANSFORMS,
    ),
)

_DATABASE = (
    Metric(
        "write_seconds",
        Kind.HISTOGRAM,
        "Duration of a table writer's database transaction, with all its rows and positions.",
        "10 to 200 ms.",
        "Seconds: look for locks and slow indexes in the database.",
        (),
        _TABLES,
    ),
    Metric(
        "write_rows",
        Kind.HISTOGRAM,
        "Rows in one database transaction of a table writer.",
        "The number that arrives in `database.commit_interval_seconds`, up to "
        "`database.batch_rows`.",
        "Always at `database.batch_rows`: the table writer lags; see `lag_records`.",
        (),
        _TABLES,
    ),
    Metric(
        "database_retries_total",
        Kind.COUNTER,
        "Attempts that failed because the database was unavailable, and were repeated.",
        "0; some when it restarts or a standby is promoted.",
        "Rising: the database or the network to it is down; no record is lost.",
        (),
        (Process.TABLES, Process.RELAY),
    ),
    Metric(
        "outbox_refused_total",
        Kind.COUNTER,
        "Messages that Kafka does not accept and that were set aside (`outbox.on_refused`).",
        "0.",
        "Rising: `SELECT * FROM eosframework.outbox_refused` lists them with the reasons; "
        "docs/howto/outbox.md describes how to publish them again.",
        (),
        _RELAY,
    ),
    Metric(
        "outbox_unreadable_total",
        Kind.COUNTER,
        "Entries of the write-ahead log with the outbox's prefix that emit() did not write "
        "(`outbox.source: slot`). They are skipped; one that an abort repeats counts again.",
        "0.",
        "Rising: a role calls pg_logical_emit_message; docs/howto/outbox.md describes how to "
        "prevent that.",
        (),
        _RELAY,
    ),
    Metric(
        "outbox_backlog_messages",
        Kind.GAUGE,
        "Messages in the outbox table that this relay must still send; estimated above 10,000.",
        "Near 0.",
        "Rising: Kafka or the relay is slower than the publishers; raise `outbox.shards`.",
        (),
        _RELAY,
    ),
    Metric(
        "outbox_backlog_seconds",
        Kind.GAUGE,
        "Age of the oldest message in the outbox table that this relay must still send.",
        "Below 1 s.",
        "Rising while `outbox_backlog_messages` is small: a database transaction that published "
        "stays open.",
        (),
        _RELAY,
    ),
    Metric(
        "outbox_backlog_bytes",
        Kind.GAUGE,
        "Bytes of the write-ahead log that the relay must still read (`outbox.source: slot`).",
        "Some megabytes.",
        "Rising: the server keeps this log on its disk until it is read.",
        (),
        _RELAY,
    ),
)

_CLIENTS = (
    Metric(
        "client_round_trip_seconds",
        Kind.GAUGE,
        "99th percentile of the round-trip time of a producer's requests to the slowest broker, in "
        "the last 200 ms with requests (librdkafka).",
        "Milliseconds.",
        "Seconds: that broker's disk or network is slow.",
        ("client",),
        PRODUCERS,
    ),
    Metric(
        "client_disconnects_total",
        Kind.COUNTER,
        "Connections to brokers that broke (librdkafka).",
        "A few an hour; brokers close idle ones.",
        "Several a minute: a broker restarts, or the network drops connections.",
        ("client",),
    ),
    Metric(
        "client_request_timeouts_total",
        Kind.COUNTER,
        "Requests that a broker did not answer in time (librdkafka).",
        "0.",
        "Rising: a broker does not respond.",
        ("client",),
    ),
    Metric(
        "client_queued_bytes",
        Kind.GAUGE,
        "Bytes fetched and not processed (consumer), or produced and not delivered (producer).",
        "Some megabytes under load.",
        "A producer's at its limit (`queue.buffering.max.kbytes`): brokers are slower than the "
        "worker. A consumer's: the worker is slower than the brokers.",
        ("client",),
    ),
    Metric(
        "rebalances_total",
        Kind.COUNTER,
        "Rebalances of the group that this process took part in.",
        "Rises when workers come and go.",
        "Rising by itself: workers lose their session; see `turn_age_seconds`.",
        (),
        WORKERS,
    ),
)

METRICS: tuple[Metric, ...] = (
    Metric(
        "info",
        Kind.GAUGE,
        "Always 1; its labels identify the process.",
        "1.",
        "Missing: the process has ended.",
        ("instance_name", "process", "version"),
        EVERY,
    ),
    *_THROUGHPUT,
    *_TRANSACTIONS,
    *_STATE,
    *_DATABASE,
    *_CLIENTS,
)
