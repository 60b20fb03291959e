"""The Kafka clients that a process keeps from one batch of a sink to the next.

A connection, or the init of an id, costs more than the rows of a micro-batch. A driver that writes
small batches itself keeps the producers of shards as well; a Python worker of an executor, which
writes another shard each time, keeps none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from eosframework.config import Settings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import SizeLimits
from eosframework.kafka.producer.producer_pool import ProducerPool
from eosframework.kafka.worker_clients import producers
from eosframework.processing.ports import TransactionalOutput

MOST_SINKS = 4
"""Sinks whose clients are kept; more of them in one session open theirs again for each task."""


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


@dataclass(slots=True)
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
    _kept: dict[int, TransactionalOutput] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, key: ClientsKey) -> Self:
        """Return clients with some settings."""
        outputs = producers(key.settings, key.limits, key.topics)
        return cls(key, ClusterAdmin(key.settings.kafka), outputs)

    def keep(self, shard: int, output: TransactionalOutput) -> None:
        """Keep the producer of a shard.

        Args:
            shard: number of the shard.
            output: the producer, without an open transaction.
        """
        self._kept[shard] = output

    def take(self, shards: Iterable[int]) -> dict[int, TransactionalOutput]:
        """Return the kept producers of shards."""
        return {shard: self._kept.pop(shard) for shard in shards if shard in self._kept}

    def close(self) -> None:
        """Close the producers."""
        kept = list(self._kept.values())
        self._kept.clear()
        self.outputs.close(kept)
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
