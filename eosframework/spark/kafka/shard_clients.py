"""The Kafka clients that a Python worker keeps from one task of a sink to the next.

Spark runs many short tasks in one Python worker. A connection, or the init of an id, costs one of a
micro-batch more than its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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
    """The clients of one sink in this Python worker.

    Args:
        key: their settings.
        admin: an admin client.
        outputs: opens and closes the producers.
    """

    key: ClientsKey
    admin: ClusterAdmin
    outputs: ProducerPool
    _kept: dict[int, tuple[str, TransactionalOutput]] = field(default_factory=dict, init=False)

    def keep(self, shard: int, writer: str, output: TransactionalOutput) -> None:
        """Keep the producer of a shard.

        Args:
            shard: number of the shard.
            writer: name of the attempt that completed the shard with it.
            output: the producer, without an open transaction.
        """
        self._kept[shard] = writer, output

    def take(self, shard: int, writer: str | None) -> TransactionalOutput | None:
        """Return the kept producer of a shard, if no other attempt has completed it since.

        Args:
            shard: number of the shard.
            writer: name of the attempt that completed it last; None: it is not known.
        """
        found = self._kept.pop(shard, None)
        if found is None:
            return None
        if found[0] == writer:
            return found[1]
        self.outputs.close([found[1]])
        return None

    def close(self) -> None:
        """Close the producers."""
        found: Sequence[TransactionalOutput] = [output for _, output in self._kept.values()]
        self._kept.clear()
        self.outputs.close(found)
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
        settings = key.settings
        outputs = producers(settings, key.limits, key.topics)
        found = ShardClients(key, ClusterAdmin(settings.kafka), outputs)
    _CLIENTS.append(found)
    while len(_CLIENTS) > MOST_SINKS:
        _CLIENTS.pop(0).close()
    return found
