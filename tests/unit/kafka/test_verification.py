"""Brokers are judged by their settings: do they protect from delayed requests?"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest

from eosframework.errors import ClusterUnreachable, StartRefused
from eosframework.kafka.admin import verification
from eosframework.kafka.admin.verification import require_answered, require_verified

Settings = Mapping[str, str | None]

KAFKA_4: Settings = {
    "transaction.partition.verification.enable": "true",
    "group.coordinator.rebalance.protocols": "classic,consumer",
}
"""Settings of 4.0.1 and 4.3.1."""

KAFKA_3_9: Settings = {**KAFKA_4, "inter.broker.protocol.version": "3.9-IV0"}
KAFKA_3_5: Settings = {"inter.broker.protocol.version": "3.5-IV2"}
SWITCHED_OFF: Settings = {**KAFKA_4, "transaction.partition.verification.enable": "false"}
FEW: Settings = {"transaction.partition.verification.enable": "true"}
"""Settings of a service that omits most of them."""

_names = itertools.count()


@pytest.fixture
def cluster() -> str:
    """Bootstrap servers that no other test has; what was found holds for the whole process."""
    return f"cluster{next(_names)}:9092"


@pytest.mark.parametrize("assume", [False, True])
def test_brokers_of_kafka_4_that_verify_are_taken(cluster: str, assume: bool) -> None:
    require_verified(cluster, {1: KAFKA_4, 2: KAFKA_4}, assume=assume)


@pytest.mark.parametrize("assume", [False, True])
@pytest.mark.parametrize(
    ("settings", "found", "expected", "remedy"),
    [
        (KAFKA_3_9, "inter.broker.protocol.version=3.9-IV0", "Kafka 4.0 or later", "upgrade"),
        (KAFKA_3_5, "no setting transaction.partition", "Kafka 4.0 or later", "upgrade"),
        (SWITCHED_OFF, "verification.enable=false", "expected true", "set transaction"),
    ],
    ids=["3.9", "3.5", "off"],
)
@pytest.mark.parametrize("others", [KAFKA_4, None], ids=["among good ones", "others unread"])
def test_one_broker_that_does_not_is_refused_whatever_the_others_are(
    cluster: str,
    settings: Settings,
    found: str,
    expected: str,
    remedy: str,
    others: Settings | None,
    assume: bool,
) -> None:
    with pytest.raises(StartRefused) as refusal:
        require_verified(cluster, {1: others, 2: settings, 3: others}, assume=assume)
    told = str(refusal.value)
    for part in (cluster, "broker 2", found, expected, remedy):
        assert part in told


@pytest.mark.parametrize(
    ("brokers", "named", "error"),
    [
        ({1: KAFKA_4, 2: None}, "broker 2 of", ClusterUnreachable),
        ({1: None, 2: None}, "broker 1, 2 of", StartRefused),
        ({1: KAFKA_4, 2: FEW}, "broker 2 of", StartRefused),
    ],
    ids=["one", "all", "few settings"],
)
def test_what_cannot_be_read_is_unknown_and_refused_unless_assumed(
    cluster: str, brokers: Mapping[int, Settings | None], named: str, error: type[Exception]
) -> None:
    with pytest.raises(error, match=named) as refusal:
        require_verified(cluster, brokers)
    for part in ("cannot be read", "4.0", "DescribeConfigs", "assume_transaction_verification"):
        assert part in str(refusal.value)
    require_verified(cluster, brokers, assume=True)


def test_a_broker_that_was_read_before_may_be_away(cluster: str) -> None:
    require_verified(cluster, {1: KAFKA_4, 2: KAFKA_4})
    require_verified(cluster, {1: KAFKA_4, 2: None})
    with pytest.raises(ClusterUnreachable, match="broker 3 of"):
        require_verified(cluster, {1: KAFKA_4, 2: None, 3: None})


def test_brokers_that_were_read_before_and_may_not_be_read_now_are_refused(cluster: str) -> None:
    require_verified(cluster, {1: KAFKA_4, 2: KAFKA_4})
    with pytest.raises(StartRefused, match="Grant DescribeConfigs on the cluster"):
        require_verified(cluster, {1: None, 2: None})


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ([{1: KAFKA_4, 2: None}, {1: KAFKA_4}], 2),
        ([{1: KAFKA_4, 2: None}, {1: KAFKA_4, 2: None}, {1: KAFKA_4, 2: KAFKA_4}], 3),
    ],
    ids=["it leaves", "it answers"],
)
def test_a_broker_that_does_not_answer_is_asked_again_until_it_leaves_or_answers(
    cluster: str,
    answers: Sequence[Mapping[int, Settings | None]],
    asked: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verification, "RETRY_SECONDS", 0)
    left = list(answers)
    require_answered(cluster, left.pop(0), lambda: dict(left.pop(0)), assume=False)
    assert len(answers) - len(left) == asked


def test_a_broker_that_neither_leaves_nor_answers_is_refused_after_a_while(
    cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "RETRY_SECONDS", 0)
    silent: Mapping[int, Settings | None] = {1: KAFKA_4, 2: None}
    with pytest.raises(ClusterUnreachable, match="broker 2 of"):
        require_answered(cluster, silent, lambda: silent, assume=False, within_seconds=0.01)


def test_who_may_read_no_broker_is_not_asked_again(cluster: str) -> None:
    def ask() -> Mapping[int, Settings | None]:
        raise AssertionError("denied once is denied")

    with pytest.raises(StartRefused, match="DescribeConfigs"):
        require_answered(cluster, {1: None, 2: None}, ask, assume=False)
