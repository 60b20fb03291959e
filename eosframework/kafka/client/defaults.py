"""librdkafka properties: our defaults, and refusal of those that break the guarantee."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from eosframework.errors import ConfigurationError
from eosframework.kafka.client.connection_log import (
    DEBUG_CONTEXT,
    DEBUG_LEVEL,
    INFO_LEVEL,
    ConnectionLog,
)
from eosframework.process.client_log import CLIENT_LOGGER

Properties = dict[str, Any]
"""A confluent_kafka configuration."""

_LOG = logging.getLogger(CLIENT_LOGGER)

_ALIASES = {
    "metadata.broker.list": "bootstrap.servers",
    "request.required.acks": "acks",
    "delivery.timeout.ms": "message.timeout.ms",
    "queue.buffering.max.ms": "linger.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "compression.codec": "compression.type",
}
"""Second names of properties; with both in one configuration the order would decide."""

_TIMEOUT = "transaction.timeout.ms"

_FAILOVER: Properties = {
    "socket.timeout.ms": 10_000,
    "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.refresh.interval.ms": 3_000,
    "metadata.max.age.ms": 900_000,
}
"""Properties that make clients follow partitions and coordinators to other brokers soon.

- socket.timeout.ms: an unanswered request fails after this time.
- reconnect.backoff.max.ms: at the default of 10 s a client misses a coordinator that is back.
- topic.metadata.refresh.interval.ms: a broker that hangs closes no connection, so each client would
  find out by a request of its own that times out; at the default of 5 minutes they did so one after
  the other. Metadata without the broker ends the requests that wait for it.
- metadata.max.age.ms: its default, which would otherwise follow the one above.
"""

PRODUCER_DEFAULTS: Properties = {
    **_FAILOVER,
    _TIMEOUT: 30_000,
    "retry.backoff.ms": 10,
    "reconnect.backoff.max.ms": 1_000,
    "metadata.recovery.strategy": "none",
    "partitioner": "murmur2_random",
    "linger.ms": 5,
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 65_536,
}
"""- transaction.timeout.ms: an abandoned transaction blocks readers for this time.
- retry.backoff.ms: at the default of 100 back-to-back transactions take 100 ms each.
- reconnect.backoff.max.ms: at the default of 10000 the second connection that breaks within ten
  seconds was replaced after up to 8 s; at 1000 within a second or so.
- metadata.recovery.strategy: see the rule below; a worker starts another client instead.
- partitioner: the one of Java's producers; librdkafka's own default is CRC32.
- linger.ms: does not delay a commit, which flushes.
"""

CONSUMER_DEFAULTS: Properties = {
    "auto.offset.reset": "error",
    **_FAILOVER,
    "partition.assignment.strategy": "range",
    "fetch.queue.backoff.ms": 5,
    "queued.max.messages.kbytes": 16_384,
    "queued.min.messages": 20_000,
    "fetch.message.max.bytes": 1_048_576,
}
"""- fetch.queue.backoff.ms: at the default of 1000 a consumer that keeps up starves.
- queued.max.messages.kbytes: bounds a partition's prefetch, so that a backlog takes no memory.
"""


def _is_true(value: Any) -> bool:
    return str(value).lower() in ("true", "1")


def _is_false(value: Any) -> bool:
    return str(value).lower() in ("false", "0")


_Rule = tuple[Callable[[Any], bool], str]

_PRODUCER_RULES: dict[str, _Rule] = {
    "enable.idempotence": (_is_true, "a transactional producer is always idempotent"),
    "acks": (lambda value: str(value) in ("all", "-1"), "transactions need acks=all"),
    "socket.max.fails": (
        lambda value: str(value) == "1",
        "an unanswered request must end its connection, or its repetition shows nowhere",
    ),
    "metadata.recovery.strategy": (
        lambda value: value == "none",
        "to bootstrap again, librdkafka gives its brokers up, and with them the counts of their "
        "broken connections; a send_offsets_to_transaction may then never return",
    ),
    "test.mock.num.brokers": (
        lambda _: False,
        "the mock broker shows aborted records and does not fence",
    ),
}

_CONSUMER_RULES: dict[str, _Rule] = {
    "isolation.level": (
        lambda value: value == "read_committed",
        "with anything else records of aborted transactions are read",
    ),
    "enable.auto.commit": (_is_false, "offsets are committed with the outputs, not by time"),
    "test.mock.num.brokers": (lambda _: False, "the mock broker shows aborted records"),
}


def producer_properties(given: Mapping[str, Any]) -> Properties:
    """Return `given` completed for a transactional producer.

    Raises:
        ConfigurationError: names the property that would break the guarantee.
    """
    given = _canonical(given)
    _refuse(given, _PRODUCER_RULES)
    if not given.get("transactional.id"):
        raise ConfigurationError(
            "a TransactionalProducer needs the property transactional.id: a name that stays the "
            "same for the same input partition, so that a successor fences this producer"
        )
    properties = {**PRODUCER_DEFAULTS, "enable.idempotence": True, "logger": _LOG, **given}
    properties.setdefault("message.timeout.ms", _number(properties, _TIMEOUT) * 4 // 5)
    return properties


def idempotent_properties(given: Mapping[str, Any]) -> Properties:
    """Return `given` completed for a producer without transactions.

    Only failed deliveries are reported: a callback per record costs more than it is worth.
    """
    given = _canonical(given)
    _refuse(given, _PRODUCER_RULES)
    defaults = {name: value for name, value in PRODUCER_DEFAULTS.items() if name != _TIMEOUT}
    fixed = {"enable.idempotence": True, "delivery.report.only.error": True}
    return {**defaults, "logger": _LOG, **given, **fixed}


def with_connection_log(properties: Properties) -> tuple[Properties, ConnectionLog]:
    """Return the properties with the log that straggler detection reads.

    The user's own logger receives the same records as before.
    """
    debug = str(properties.get("debug", ""))
    level = DEBUG_LEVEL if debug else _number(properties, "log_level", INFO_LEVEL)
    log = ConnectionLog(properties["logger"], _forwarded_from(level))
    contexts = f"{debug},{DEBUG_CONTEXT}" if debug else DEBUG_CONTEXT
    return {**properties, "logger": log, "debug": contexts, "log_level": DEBUG_LEVEL}, log


def _forwarded_from(level: int) -> int:
    """Return the lowest `logging` level of the records that librdkafka logs at its `level`."""
    for least, own in ((DEBUG_LEVEL, logging.DEBUG), (5, logging.INFO), (4, logging.WARNING)):
        if level >= least:
            return own
    return logging.ERROR


def consumer_properties(given: Mapping[str, Any]) -> Properties:
    """Return `given` completed for a `read_committed` consumer.

    Raises:
        ConfigurationError: names the property that would break the guarantee.
    """
    given = _canonical(given)
    _refuse(given, _CONSUMER_RULES)
    defaults = dict(CONSUMER_DEFAULTS)
    if str(given.get("group.protocol", "classic")).lower() != "classic":
        del defaults["partition.assignment.strategy"]
    forced = {"isolation.level": "read_committed", "enable.auto.commit": False}
    return {**defaults, "logger": _LOG, **given, **forced}


def admin_properties(given: Mapping[str, Any]) -> Properties:
    """Return the properties of a client that determine how to reach the cluster."""
    prefixes = ("bootstrap.", "security.", "sasl.", "ssl.", "socket.", "broker.", "client.")
    names = ("oauth_cb", "enable.sasl.oauthbearer.unsecure.jwt", "retry.backoff.ms", "logger")
    return {
        name: value
        for name, value in _canonical(given).items()
        if name.startswith(prefixes) or name in names
    }


def _canonical(given: Mapping[str, Any]) -> Properties:
    return {_ALIASES.get(name, name): value for name, value in given.items()}


def _refuse(given: Mapping[str, Any], rules: Mapping[str, _Rule]) -> None:
    for name, (is_allowed, reason) in rules.items():
        if name in given and not is_allowed(given[name]):
            raise ConfigurationError(
                f"property {name}={given[name]!r} would break the guarantee: {reason}. Remove it"
            )


def _number(properties: Mapping[str, Any], name: str, default: int = 0) -> int:
    value = properties.get(name, default)
    try:
        return int(value)
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"property {name}={value!r} is not a whole number of milliseconds"
        ) from None
