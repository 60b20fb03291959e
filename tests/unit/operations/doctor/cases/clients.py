"""What checks of a worker's own settings and its machine find."""

from __future__ import annotations

from datetime import timedelta

from eosframework.config import Settings
from eosframework.kafka.inspect.probes import Clock
from eosframework.operations.doctor.findings import Seen
from tests.unit.operations.doctor.case import Case, E, N, W
from tests.unit.operations.doctor.made_up import snapshot, with_properties, with_worker

CASES = [
    Case(
        "guarantee",
        W,
        lambda: with_worker(guarantee="at_least_once"),
        "at_least_once",
        "worker.guarantee=exactly_once",
    ),
    Case(
        "decision-time",
        W,
        lambda: snapshot(database_seconds=Seen(0.02)),
        "160 ms or more, and the commit interval is 100 ms",
        "move the database nearer",
    ),
    Case(
        "refused-properties",
        E,
        lambda: snapshot(refused_properties=("librdkafka has no property 'x'",)),
        "no property 'x'",
        "remove",
    ),
    Case(
        "ignored-properties",
        W,
        lambda: with_properties(max_poll_interval_ms=9000),
        "9000; a worker uses 300000",
        "remove it from kafka.properties",
    ),
    Case(
        "delivery-timeout",
        E,
        lambda: with_properties(message_timeout_ms=60_000),
        "message.timeout.ms=60000, transaction.timeout.ms=30000",
        "remove message.timeout.ms",
    ),
    Case(
        "request-timeout",
        E,
        lambda: with_properties(socket_timeout_ms=60_000),
        "socket.timeout.ms=60000",
        "remove socket.timeout.ms",
    ),
    Case(
        "room-to-repeat",
        N,
        lambda: with_worker(transaction_timeout_seconds=10),
        "socket.timeout.ms=10000, message.timeout.ms=8000",
        "kafka.properties.socket.timeout.ms=4000",
    ),
    Case(
        "poll-interval",
        W,
        lambda: with_worker(transaction_timeout_seconds=600),
        "max.poll.interval.ms=300000",
        "worker.transaction_timeout_seconds=150",
    ),
    Case(
        "transaction-rate",
        N,
        lambda: with_worker(commit_interval_seconds=0.002, ids="partition"),
        "up to 1,000 transactions a second",
        "worker.ids=worker",
    ),
    Case(
        "heartbeats",
        W,
        lambda: snapshot(consumer={**snapshot().consumer, "heartbeat.interval.ms": 20_000}),
        "heartbeat.interval.ms=20000",
        "worker.heartbeat_interval_seconds=15",
    ),
    Case(
        "instance-name",
        N,
        lambda: snapshot(Settings()),
        "derived from this host's name",
        "--set worker.instance=NAME",
    ),
    Case(
        "clock",
        W,
        lambda: snapshot(clock=Seen(Clock(timedelta(seconds=9), timedelta(seconds=1)))),
        "9.0 s behind the controller's",
        "NTP",
    ),
    Case(
        "clock",
        N,
        lambda: snapshot(clock=Seen(Clock(timedelta(seconds=9), timedelta(seconds=6)))),
        "took 12.0 s",
        "NTP",
    ),
    Case("readers", N, snapshot, "do not report the isolation.level", "read_committed"),
]
