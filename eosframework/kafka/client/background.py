"""Background work on clients: closing discarded ones and polling idle ones.

All threads are daemons, so the end of the process waits for none of them.
"""

from __future__ import annotations

import threading
import warnings
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakSet

from confluent_kafka import KafkaException, Producer

_DRAIN_INTERVAL_SECONDS = 1.0

# A discarded producer has been fenced, so a failed abort of it needs no warning.
warnings.filterwarnings("ignore", "Producer abort_transaction failed", RuntimeWarning)


def discard(producer: Producer) -> threading.Thread:
    """Close an unused producer on a thread of its own, and return that thread.

    `Producer.close` waits for an unreachable broker without a limit, and without the GIL. Queued
    records are dropped first: their transaction cannot commit.
    """
    thread = threading.Thread(target=_close, args=(producer,), name="eos-discard", daemon=True)
    thread.start()
    return thread


def discard_admin(client: object) -> None:
    """Release an admin client on a thread of its own, which waits for its pending requests."""
    threading.Thread(target=_let_go, args=(client,), name="eos-discard", daemon=True).start()


def _let_go(_client: object) -> None:
    """Hold the last reference to the client, which is destroyed when this returns."""


def _close(producer: Producer) -> None:
    # Its errors concern an outdated epoch: the producer has been fenced.
    with suppress(KafkaException, RuntimeError, SystemError):
        producer.purge()
    with suppress(KafkaException, RuntimeError, SystemError):
        producer.close()


class Drainable(Protocol):
    """A client whose event queue grows while its owner does not poll."""

    def drain_while_idle(self) -> None:
        """Serve queued events, unless the owner is using the client."""
        ...


class _Drain:
    def __init__(self) -> None:
        self._clients: WeakSet[Any] = WeakSet()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, client: Drainable) -> None:
        with self._lock:
            self._clients.add(client)
            # 1. `_run` finds no client and is about to end  2. a client is added. `_run` forgets
            # its thread under the same lock, so here it either still serves or is started anew.
            # After a fork the thread is known and not alive.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="eos-drain", daemon=True)
                self._thread.start()

    def remove(self, client: Drainable) -> None:
        with self._lock:
            self._clients.discard(client)

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(_DRAIN_INTERVAL_SECONDS):
            with self._lock:
                clients: list[Drainable] = list(self._clients)
                if not clients:
                    self._thread = None
                    return
            # Outside the lock: a client that is removed meanwhile is served once more, and a
            # slow one does not hold up `add` and `remove`.
            for client in clients:
                client.drain_while_idle()
            clients.clear()


DRAIN = _Drain()
"""Polls idle producers, so that their connection log does not pile up in their queue."""
