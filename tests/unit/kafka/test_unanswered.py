"""The error of an unreachable cluster names the address that was tried and who named it."""

from __future__ import annotations

import pytest

from eosframework.kafka.client.unanswered import resolve_failure, unreachable

SERVERS = "kafka-1:9092, kafka-2:9092"


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (
            "kafka-7.invalid:9092/1: Failed to resolve 'kafka-7.invalid:9092': Name or service "
            "not known (after 0ms in state CONNECT, 3 identical error(s) suppressed)",
            "a broker at kafka-1:9092, kafka-2:9092 answered, and named kafka-7.invalid:9092 as "
            "the address of broker 1, which does not resolve on this machine (Name or service not "
            "known). Correct advertised.listeners of broker 1, or make the name known here (DNS, "
            "/etc/hosts)",
        ),
        (
            "sasl_ssl://localhost:9092/3: Connect to ipv4#127.0.0.1:9092 failed: Connection "
            "refused (after 0ms in state CONNECT)",
            "a broker at kafka-1:9092, kafka-2:9092 answered, and named localhost:9092 as the "
            "address of broker 3, which cannot be connected to (Connect to ipv4#127.0.0.1:9092 "
            "failed: Connection refused). Start broker 3, or correct its advertised.listeners to "
            "an address that this machine reaches",
        ),
        (
            "kafka-2:9092/bootstrap: Failed to resolve 'kafka-2:9092': No address (after 1ms in "
            "state CONNECT)",
            "kafka-2:9092 of kafka.bootstrap_servers (kafka-1:9092, kafka-2:9092) does not resolve "
            "on this machine (No address); correct it, or make the name known here (DNS, "
            "/etc/hosts)",
        ),
        (
            "kafka-1:9092/1: Connect to ipv4#10.0.0.1:9092 failed: Connection refused",
            "no broker at kafka-1:9092, kafka-2:9092 answered within 3 s (last error: "
            "kafka-1:9092/1: Connect to ipv4#10.0.0.1:9092 failed: Connection refused); start one "
            "(`eosframework broker up`), or correct kafka.bootstrap_servers",
        ),
        (
            "",
            "no broker at kafka-1:9092, kafka-2:9092 answered within 3 s; start one "
            "(`eosframework broker up`), or correct kafka.bootstrap_servers",
        ),
    ],
)
def test_the_address_that_failed_is_named_with_what_to_correct(failure: str, expected: str) -> None:
    assert str(unreachable(SERVERS, 3, failure)) == expected


def test_kafka_pythons_failed_lookup_reads_as_librdkafkas() -> None:
    told = str(unreachable(SERVERS, 3, resolve_failure("kafka-7:9092", "1", "unknown")))
    assert "named kafka-7:9092 as the address of broker 1" in told
