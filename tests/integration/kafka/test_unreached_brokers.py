"""Connections of the inspecting client that do not come about leave no socket behind."""

from __future__ import annotations

import gc
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest

from eosframework.config import KafkaSettings
from eosframework.errors import ClusterUnreachable
from eosframework.kafka.inspect.wire import Wire


@contextmanager
def silent() -> Iterator[int]:
    """A server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@contextmanager
def refusing() -> Iterator[int]:
    """A port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    yield port


@contextmanager
def full() -> Iterator[int]:
    """A server whose queue is full, so that connecting to it never ends."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, ExitStack() as queue:
        for _ in range(4):
            waiting = queue.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield server.getsockname()[1]


@pytest.mark.parametrize("server", [silent, refusing, full])
def test_a_broker_that_cannot_be_reached_leaves_no_socket_open(
    server: Callable[[], AbstractContextManager[int]],
) -> None:
    gc.collect()  # what earlier tests left
    with server() as port, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        with pytest.raises(ClusterUnreachable):
            Wire(KafkaSettings(bootstrap_servers=f"127.0.0.1:{port}", request_timeout_seconds=0.5))
        gc.collect()
    assert [str(each.message) for each in warned if each.category is ResourceWarning] == []
