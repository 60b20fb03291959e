"""The error of requests that no broker answered, by the last failed connection."""

from __future__ import annotations

import re

from confluent_kafka import KafkaError

from eosframework.errors import ClusterUnreachable, ConnectionRefused
from eosframework.process.client_log import BOOTSTRAP, COORDINATOR, FailedConnection

UNANSWERED = {
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError._RESOLVE,  # noqa: SLF001
    KafkaError._NOENT,  # noqa: SLF001
    KafkaError.REQUEST_TIMED_OUT,
}
"""Codes without an answer of a broker; _NOENT: librdkafka knows no leader of a partition."""

_UNRESOLVED = re.compile(r"Failed to resolve '.*?': (?P<reason>.*)")


def resolve_failure(address: str, broker: str, reason: str) -> str:
    """Return the text of an address that has no host, in librdkafka's form."""
    return str(FailedConnection(address, broker, f"Failed to resolve '{address}': {reason}"))


def unreachable(
    servers: str, seconds: float, failure: str = "", *, refused: bool = False
) -> ClusterUnreachable:
    """Return the error of a request that no broker answered.

    An address that a broker named, as opposed to one in the settings, is named with the broker's
    number: its advertised.listeners are to be corrected, not the settings.

    Args:
        servers: the brokers to connect to first.
        seconds: the time that was waited.
        failure: of the last connection, in librdkafka's form; empty if none is known.
        refused: the brokers answered, and refused the connection.
    """
    if refused:
        return ConnectionRefused(
            f"the brokers at {servers} refused the connection{_last(failure)}; correct the "
            f"security.protocol, sasl and ssl entries of kafka.properties"
        )
    if (failed := FailedConnection.parse(failure)) is not None:
        is_named = failed.broker != BOOTSTRAP and failed.address not in _split(servers)
        unresolved = _UNRESOLVED.match(failed.reason)
        if is_named or unresolved is not None:
            named = _named_by_a_broker if is_named else _named_in_the_settings
            return ClusterUnreachable(named(servers, failed, unresolved))
    return ClusterUnreachable(
        f"no broker at {servers} answered within {seconds:g} s{_last(failure)}; "
        f"start one (`eosframework broker up`), or correct kafka.bootstrap_servers"
    )


def _named_by_a_broker(
    servers: str, failed: FailedConnection, unresolved: re.Match[str] | None
) -> str:
    broker = "the coordinator" if failed.broker == COORDINATOR else f"broker {failed.broker}"
    problem = (
        f"cannot be connected to ({failed.reason}). Start {broker}, or correct its "
        f"advertised.listeners to an address that this machine reaches"
    )
    if unresolved is not None:
        problem = (
            f"does not resolve on this machine ({unresolved['reason']}). Correct "
            f"advertised.listeners of {broker}, or make the name known here (DNS, "
            f"/etc/hosts)"
        )
    return (
        f"a broker at {servers} answered, and named {failed.address} as the address of {broker}, "
        f"which {problem}"
    )


def _named_in_the_settings(
    servers: str, failed: FailedConnection, unresolved: re.Match[str] | None
) -> str:
    reason = unresolved["reason"] if unresolved else failed.reason
    return (
        f"{failed.address} of kafka.bootstrap_servers ({servers}) does not resolve on this machine "
        f"({reason}); correct it, or make the name known here (DNS, /etc/hosts)"
    )


def _split(servers: str) -> list[str]:
    return [server.strip() for server in servers.split(",")]


def _last(failure: str) -> str:
    return f" (last error: {failure})" if failure else ""
