"""What must never hold up a caller: closing discarded clients, and draining idle ones.

Every thread here is a daemon: at the end of the process none of them is waited for.
"""

from __future__ import annotations

import threading
import warnings
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakSet

from confluent_kafka import KafkaException, Producer

_DRAIN_INTERVAL_SECONDS = 1.0

# What a closed producer could not do any more has been fenced, so nobody need be warned of it.
warnings.filterwarnings("ignore", "Producer abort_transaction failed", RuntimeWarning)


def discard(producer: Producer) -> threading.Thread:
    """Close a producer that nobody uses any more, on a thread of its own.

    `Producer.close` waits for an unreachable broker for as long as that stays so. It waits
    without the GIL. What is still queued is dropped first: its transaction cannot commit.
    """
    thread = threading.Thread(target=_close, args=(producer,), name="eos-discard", daemon=True)
    thread.start()
    return thread


def discard_admin(client: object) -> None:
    """Give up an admin client on a thread of its own, which waits for what it still asks."""
    threading.Thread(target=_let_go, args=(client,), name="eos-discard", daemon=True).start()


def _let_go(_client: object) -> None:
    """The client ends with the last reference to it, which is this one."""


def _close(producer: Producer) -> None:
    # Its errors concern an epoch that is over: whatever it could still do has been fenced.
    with suppress(KafkaException, RuntimeError, SystemError):
        producer.purge()
    with suppress(KafkaException, RuntimeError, SystemError):
        producer.close()


class Drainable(Protocol):
    """A client whose event queue grows while its owner does not poll."""

    def drain_while_idle(self) -> None:
        """Serve what is queued, unless the owner is using the client."""
        ...


class _Drain:
    def __init__(self) -> None:
        self._clients: WeakSet[Any] = WeakSet()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, client: Drainable) -> None:
        with self._lock:
            self._clients.add(client)
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
            for client in clients:
                client.drain_while_idle()
            clients.clear()


DRAIN = _Drain()
"""Polls idle producers, so that what they log of their connections does not pile up."""
