"""What this system tells about connections that no list of sockets shows any more."""

from __future__ import annotations

import socket

from eosframework.kafka.watch import ConnectionWatch


def test_a_connection_that_is_gone_before_the_next_look_is_counted() -> None:
    watch = ConnectionWatch()
    first = watch.look()
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()
    assert watch.look().opened > first.opened
