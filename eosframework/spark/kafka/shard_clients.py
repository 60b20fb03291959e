"""The Kafka clients that a Python worker of an executor keeps from one batch of a sink to the next.

A connection costs more than the rows of a small batch. Producers are not kept: a worker writes
another shard each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from eosframework.config import Settings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import SizeLimits
from eosframework.kafka.producer.producer_pool import ProducerPool
from eosframework.kafka.worker_clients import producer_client, producer_pool

MOST_SINKS = 4
"""Sinks whose clients are kept; more of them in one session open theirs again for each task."""

QUEUE = "queue.buffering.max.messages"

QUEUED_RECORDS = 50_000
"""Records that wait in a shard's producer. Twice as many, as in a worker, take 20 MB more in each
Python worker, which is kept full by rows that are there already."""


@dataclass(frozen=True, slots=True)
class ClientsKey:
    """The settings of a sink's clients.

    Args:
        application: owner of the sink.
        sink: its name.
        settings: of the application.
        limits: of the topics that it writes.
        topics: these topics, as far as they are known.
    """

    application: str
    sink: str
    settings: Settings
    limits: SizeLimits
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShardClients:
    """The clients of one sink in this process.

    Args:
        key: their settings.
        admin: an admin client.
        outputs: opens and closes the producers.
    """

    key: ClientsKey
    admin: ClusterAdmin
    outputs: ProducerPool

    @classmethod
    def of(cls, key: ClientsKey) -> Self:
        """Return clients with some settings."""
        client = producer_client(key.settings, key.limits)
        if QUEUE not in key.settings.kafka.properties:
            client[QUEUE] = QUEUED_RECORDS
        outputs = producer_pool(key.settings, client, key.topics)
        return cls(key, ClusterAdmin(key.settings.kafka), outputs)

    def close(self) -> None:
        """Close the producers."""
        self.outputs.stop()


_CLIENTS: list[ShardClients] = []
"""Of this Python worker, the last used ones at the end."""


def clients_of(key: ClientsKey) -> ShardClients:
    """Return the clients of a sink in this Python worker; those with other settings are closed."""
    name = key.application, key.sink
    same = [one for one in _CLIENTS if (one.key.application, one.key.sink) == name]
    for one in same:
        _CLIENTS.remove(one)
        if one.key != key:
            one.close()
    found = next((one for one in same if one.key == key), None)
    if found is None:
        found = ShardClients.of(key)
    _CLIENTS.append(found)
    while len(_CLIENTS) > MOST_SINKS:
        _CLIENTS.pop(0).close()
    return found
