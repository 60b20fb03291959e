"""Errors of admin requests that brokers answer in time, but not with what was asked for."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from eosframework.config import KafkaSettings
from eosframework.errors import ClusterUnreachable
from eosframework.kafka.admin.requests import AdminRequests, is_transient
from eosframework.kafka.taxonomy import table

TRANSIENT = [code for code in table().failures if is_transient(KafkaError(code))]


@pytest.mark.parametrize("code", sorted(TRANSIENT), ids=lambda code: KafkaError(code).name())
def test_a_cluster_that_stays_in_motion_is_told_in_one_message(code: int) -> None:
    settings = KafkaSettings(bootstrap_servers="127.0.0.1:9", request_timeout_seconds=0.2)
    asked: list[float] = []

    def call(timeout: float) -> dict[str, Future[Any]]:
        asked.append(timeout)
        answer: Future[Any] = Future()
        answer.set_exception(KafkaException(KafkaError(code)))
        return {"shop": answer}

    with pytest.raises(ClusterUnreachable, match=r"about shop within 0\.2 s") as error:
        AdminRequests(settings)._request_each(call)
    assert KafkaError(code).name() in str(error.value)
    assert len(asked) > 1


def test_brokers_whose_disk_or_quota_is_full_are_asked_again() -> None:
    assert {KafkaError.KAFKA_STORAGE_ERROR, KafkaError.THROTTLING_QUOTA_EXCEEDED} < {*TRANSIENT}
    assert KafkaError.UNKNOWN_TOPIC_OR_PART not in TRANSIENT
    assert KafkaError.TOPIC_AUTHORIZATION_FAILED not in TRANSIENT
