"""Every metric, declared once; the documentation and what is told derive from here."""

from __future__ import annotations

from eosframework.monitoring.metrics.metric import EVERY, PRODUCERS, WORKERS, Kind, Metric, Process

_TRANSFORMS = (Process.TRANSFORMS,)
_TABLES = (Process.TABLES,)
_RELAY = (Process.RELAY,)

_THROUGHPUT = (
    Metric(
        "records_read_total",
        Kind.COUNTER,
        "Input records whose transaction was committed; repetitions do not count.",
        "Rises as fast as the topic is written.",
        "Standing still while `lag_records` rises: look at `/readyz`, then at the log.",
        ("topic",),
        WORKERS,
    ),
    Metric(
        "records_written_total",
        Kind.COUNTER,
        "Records written by committed transactions, changelogs and dead letters among them.",
        "In a fixed ratio to `records_read_total`, as the topology has it.",
        "Another ratio than yesterday: a filter or its input has changed.",
        ("topic",),
        PRODUCERS,
    ),
    Metric(
        "rows_written_total",
        Kind.COUNTER,
        "Rows written into a table; upserts and deletions count as rows.",
        "In a fixed ratio to `records_read_total`.",
        "Another ratio than yesterday: the function that makes rows or its input has changed.",
        ("table",),
        _TABLES,
    ),
    Metric(
        "lag_records",
        Kind.GAUGE,
        "Offsets up to the last stable one that are still to be processed, over this process's "
        "partitions of a topic; markers of transactions count as well, except behind the "
        "last record.",
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
        "Offsets behind the last stable one: somebody's open transaction keeps them from readers.",
        "What producers write between two of their commits.",
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
        "Transactions by how they ended: committed or aborted.",
        "Commits only; a few aborts where brokers restart.",
        "More than one abort in a hundred: the log names the error, `eosframework explain errors` "
        "explains it.",
        ("outcome",),
        PRODUCERS,
    ),
    Metric(
        "commit_seconds",
        Kind.HISTOGRAM,
        "Seconds that a round of commits took, over all tasks of the process.",
        "10 to 100 ms, more with more tasks.",
        "Above a third of the commit interval: the interval is stretched (event "
        "commit_interval_stretched). Look at the brokers' disks and `client_round_trip_seconds`.",
        (),
        PRODUCERS,
    ),
    Metric(
        "transaction_seconds",
        Kind.HISTOGRAM,
        "Seconds from a transaction's first record to the end of its commit.",
        "About the commit interval, and what the commit takes.",
        "Near `worker.transaction_timeout_seconds`: it will expire and be repeated. A function is "
        "slow, or a broker.",
        (),
        PRODUCERS,
    ),
    Metric(
        "transaction_records",
        Kind.HISTOGRAM,
        "Input records, or messages of an outbox, in one transaction.",
        "What comes in one commit interval.",
        "1 at a time under load: a refused record is being searched for; see the log.",
        (),
        PRODUCERS,
    ),
    Metric(
        "producer_recycles_total",
        Kind.COUNTER,
        "Producers replaced because a request of theirs might still be on its way (ADR 1).",
        "0 for hours; some when connections break.",
        "Several a minute: connections break; see `client_disconnects_total`.",
        (),
        PRODUCERS,
    ),
    Metric(
        "fences_total",
        Kind.COUNTER,
        "How often another process, or an expiry, took a task or partition from this one.",
        "0; one when a machine stood still and came back.",
        "Rising: two applications share a name, or transactions outlast their timeout; the log "
        "says which.",
    ),
    Metric(
        "unknown_outcomes_total",
        Kind.COUNTER,
        "Commits whose answer got lost, and of which it was found out whether they were done.",
        "0; some when brokers fail. Nothing was lost or doubled.",
        "Rising on healthy brokers: the network between drops connections.",
        (),
        PRODUCERS,
    ),
    Metric(
        "dead_letters_total",
        Kind.COUNTER,
        "Records or rows that failed and were put aside; one that an abort repeats counts again.",
        "0.",
        "Look at the dead letters' headers: they name record, step and error.",
        (),
        WORKERS,
    ),
    Metric(
        "retries_total",
        Kind.COUNTER,
        "Records that failed and were sent to wait for another attempt; one that an abort repeats "
        "counts again.",
        "0; some while what a function calls is away.",
        "What waits has the error in its headers. Without an end in sight, mend the cause before "
        "the last delay has passed: then they are dead letters.",
        (),
        WORKERS,
    ),
    Metric(
        "skipped_records_total",
        Kind.COUNTER,
        "Records or rows that failed and were left out, as `on_error: skip` says.",
        "0, or what you expect of the data.",
        "Rising faster than before: the input has changed.",
        (),
        WORKERS,
    ),
    Metric(
        "late_records_total",
        Kind.COUNTER,
        "Records that came too late for a window, join or expiry.",
        "0, or a small share.",
        "Rising: producers are later than `grace` allows.",
        (),
        _TRANSFORMS,
    ),
)

_STATE = (
    Metric(
        "tasks",
        Kind.GAUGE,
        "Tasks, partitions of tables, or shards of an outbox that this process has, by state.",
        "All `running`.",
        "`fenced`, `recovering` or `unclaimed` for minutes: `/readyz` says why.",
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
        "Seconds since the main thread last went round.",
        "Below 1; some seconds while partitions are taken over.",
        "Growing: a broker, a database or a function does not return; `/livez` fails next.",
    ),
    Metric(
        "restore_records",
        Kind.GAUGE,
        "Records of changelogs that are still to be read before every task runs.",
        "0, and falling after a start on a new machine.",
        "Often above 0: stores do not survive (a container without a volume); or keep standby "
        "copies (`state.standby_copies`).",
        (),
        _TRANSFORMS,
    ),
    Metric(
        "store_bytes",
        Kind.GAUGE,
        "Size of the stores of this process's tasks, in files and in memory.",
        "Follows the number of keys.",
        "Growing without end: keys are never removed; give them a `ttl` or a window.",
        ("store",),
        _TRANSFORMS,
    ),
    Metric(
        "store_keys",
        Kind.GAUGE,
        "Keys in the stores of this process's tasks, estimated.",
        "What the data has.",
        "As `store_bytes`.",
        ("store",),
        _TRANSFORMS,
    ),
)

_DATABASE = (
    Metric(
        "write_seconds",
        Kind.HISTOGRAM,
        "Seconds that a write into tables took: all rows and positions of a transaction.",
        "10 to 200 ms.",
        "Seconds: look for locks and slow indexes in the database.",
        (),
        _TABLES,
    ),
    Metric(
        "write_rows",
        Kind.HISTOGRAM,
        "Rows in one write.",
        "What comes in `database.commit_interval_seconds`, up to `database.batch_rows`.",
        "Always at `database.batch_rows`: the tables are behind; see `lag_records`.",
        (),
        _TABLES,
    ),
    Metric(
        "database_retries_total",
        Kind.COUNTER,
        "How often a database did not answer and was asked again.",
        "0; some when it restarts or a standby is promoted.",
        "Rising: the database or the way to it is down; nothing is lost meanwhile.",
        (),
        (Process.TABLES, Process.RELAY),
    ),
    Metric(
        "outbox_refused_total",
        Kind.COUNTER,
        "Messages that Kafka cannot take and that were set aside (`outbox.on_refused`).",
        "0.",
        "Rising: `SELECT * FROM eosframework.outbox_refused` names them and the reasons; "
        "docs/howto/outbox.md tells how to publish them again.",
        (),
        _RELAY,
    ),
    Metric(
        "outbox_unreadable_total",
        Kind.COUNTER,
        "Entries of the database's log under the outbox's name that emit() did not write "
        "(`outbox.source: slot`). They are passed over; one that an abort repeats counts again.",
        "0.",
        "Rising: a role calls pg_logical_emit_message; docs/howto/outbox.md tells how to end that.",
        (),
        _RELAY,
    ),
    Metric(
        "outbox_backlog_messages",
        Kind.GAUGE,
        "Messages in the outbox table that this relay has still to send; estimated above 10,000.",
        "Near 0.",
        "Rising: Kafka or the relay is slower than those who publish; raise `outbox.shards`.",
        (),
        _RELAY,
    ),
    Metric(
        "outbox_backlog_seconds",
        Kind.GAUGE,
        "Age of the oldest message in the outbox table that this relay has still to send.",
        "Below 1 s.",
        "Rising while `outbox_backlog_messages` is small: a transaction in the database that "
        "published stays open.",
        (),
        _RELAY,
    ),
    Metric(
        "outbox_backlog_bytes",
        Kind.GAUGE,
        "Bytes of the database's log that the relay has still to read (`outbox.source: slot`).",
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
        "Round trip of the slowest 1% of a producer's requests to the slowest broker, by the last "
        "200 ms in which there were any (librdkafka).",
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
        "Several a minute: a broker restarts, or something between drops connections.",
        ("client",),
    ),
    Metric(
        "client_request_timeouts_total",
        Kind.COUNTER,
        "Requests that a broker did not answer in time (librdkafka).",
        "0.",
        "Rising: a broker stands still.",
        ("client",),
    ),
    Metric(
        "client_queued_bytes",
        Kind.GAUGE,
        "Bytes fetched and not taken (consumer), or produced and not delivered (producer).",
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
        "Always 1; its labels say what this process is.",
        "1.",
        "Missing: the process is gone.",
        ("instance_name", "process", "version"),
        EVERY,
    ),
    *_THROUGHPUT,
    *_TRANSACTIONS,
    *_STATE,
    *_DATABASE,
    *_CLIENTS,
)
