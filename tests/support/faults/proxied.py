"""Real brokers, one or three, whose clients see only the proxies in front of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from eosframework.embedded import KafkaCluster, start_kafka
from eosframework.embedded.data_directory import is_free
from eosframework.embedded.jars import KAFKA_VERSION
from tests.support.faults.proxy import FrameProxy, HeldRequest, Holds

_CHANCE = random.SystemRandom()
"""Test processes that seed `random` alike would choose the same ports."""


@dataclass(frozen=True)
class ProxiedCluster:
    """Brokers with two listeners each, one of them behind a proxy.

    Args:
        proxies: by the id of their node.
        holds: shared by the proxies.
    """

    cluster: KafkaCluster
    proxies: Mapping[int, FrameProxy]
    holds: Holds

    @property
    def bootstrap_servers(self) -> str:
        """The proxies: a client that starts there never sees a broker's own address."""
        return ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies.values())

    @property
    def direct(self) -> str:
        """The brokers themselves."""
        return self.cluster.bootstrap_servers

    def hold(
        self,
        api_key: int,
        containing: bytes = b"",
        *,
        repeated: bool = False,
        where: Callable[[bytes], bool] = lambda _: True,
        node_id: int | None = None,
    ) -> HeldRequest:
        """Hold the next such request, and break its connection.

        Args:
            api_key: the kind of request.
            containing: bytes of its frame, such as a transactional.id or a record's value.
            repeated: hold its repetitions off as well, until they are let pass.
            where: what else its frame must be; of any node's only.
            node_id: only on its way to this node, such as a coordinator; None: to any.
        """
        if node_id is not None:
            return self.proxies[node_id].hold(api_key, containing, repeated=repeated)
        return self.holds.add(HeldRequest(api_key, containing, repeated=repeated, where=where))


@contextmanager
def proxied_kafka(
    directory: Path,
    *,
    nodes: int,
    properties: Mapping[str, str],
    version: str = KAFKA_VERSION,
) -> Iterator[ProxiedCluster]:
    """Start brokers of a version behind proxies, and end them with the block."""
    behind, front = _port_ranges(nodes)
    listeners = {
        "listeners": f"PLAINTEXT://127.0.0.1:{{port}},PROXIED://127.0.0.1:{behind}{{node_id}},"
        "CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:{port},"
        f"PROXIED://127.0.0.1:{front}{{node_id}}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,"
        "CONTROLLER:PLAINTEXT",
    }
    holds = Holds()
    with ExitStack() as stack:
        proxies = {
            node: stack.enter_context(
                FrameProxy(int(f"{behind}{node}"), int(f"{front}{node}"), holds)
            )
            for node in range(1, nodes + 1)
        }
        cluster = start_kafka(
            directory,
            kafka=version,
            nodes=nodes,
            fast_start=True,
            heap_megabytes=256,
            properties={**properties, **listeners},
        )
        stack.callback(cluster.kill)
        yield ProxiedCluster(cluster, proxies, holds)


def _port_ranges(nodes: int) -> tuple[int, int]:
    """Return two numbers that make free ports when a node's id is appended."""
    # As for brokers' own ports: from 32768 on they may belong to outgoing connections.
    found = [
        tens
        for tens in _CHANCE.sample(range(1_500, 3_200), k=200)
        if all(is_free(int(f"{tens}{node}")) for node in range(1, nodes + 1))
    ]
    return found[0], found[1]
