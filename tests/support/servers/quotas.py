"""Quotas of clients, set through the brokers' admin API; confluent_kafka lacks the request."""

from __future__ import annotations

from kafka.protocol.admin.client_quotas import (  # pyright: ignore[reportMissingTypeStubs]
    AlterClientQuotasRequest,
)

from eosframework.config import KafkaSettings
from eosframework.kafka.inspect.wire import Wire

PRODUCED = "producer_byte_rate"
FETCHED = "consumer_byte_rate"


def set_quota(
    bootstrap_servers: str, client_id: str, bytes_per_second: int, key: str = PRODUCED
) -> None:
    """Limit the bytes that all clients with an id may produce or fetch together."""
    Entry = AlterClientQuotasRequest.EntryData
    entry = Entry(
        entity=[Entry.EntityData(entity_type="client-id", entity_name=client_id)],
        ops=[Entry.OpData(key=key, value=float(bytes_per_second), remove=False)],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
    with Wire(KafkaSettings(bootstrap_servers=bootstrap_servers)) as wire:
        answer = wire.send(request)
    assert all(entry.error_code == 0 for entry in answer.entries), answer
