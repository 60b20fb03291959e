"""Tellers: threads that ask the banks for transfers, and retry each until it is answered."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any
from uuid import UUID

from eosframework.demo.background import Background
from eosframework.demo.banks.bank import Bank, BankConnection
from eosframework.demo.files import example_file
from eosframework.errors import DatabaseUnavailable
from eosframework.serialization.references import find
from eosframework.topology.loader import load_app

TELLERS = 2
"""For each bank, so that transactions of a bank overlap."""

AWAY_SECONDS = 0.1

LARGEST_SHARE = 20
"""A transfer takes at most this fraction (1/n) of its account's opening balance."""


def make_importable() -> None:
    """Make the example's modules importable, as its topologies do."""
    load_app(str(example_file("transfer", "bank_a.yaml")))


@dataclass(frozen=True, slots=True)
class Order:
    """A requested transfer.

    Args:
        sender: name of the bank whose account it debits.
        due_seconds: after the start.
    """

    sender: str
    due_seconds: float
    transfer: Any


def draw_orders(
    count: int, per_second: float, accounts: Mapping[str, Mapping[str, int]], chance: random.Random
) -> Iterator[Order]:
    """Draw transfers between random accounts of two banks; a few exceed the balance.

    Args:
        count: number of transfers.
        per_second: rate at which they are due.
        accounts: opening balances, by bank.
        chance: random generator.
    """
    kind = find("transfers:Transfer")
    banks = list(accounts)
    for number in range(count):
        sender, receiver = chance.sample(banks, 2)
        debited = chance.choice(list(accounts[sender]))
        yield Order(
            sender,
            number / per_second,
            kind(
                id=UUID(int=chance.getrandbits(128), version=4),
                debited=debited,
                credited=chance.choice(list(accounts[receiver])),
                amount=chance.randint(1, accounts[sender][debited] // LARGEST_SHARE),
            ),
        )


class Tellers(Background):
    """Threads that ask for transfers as they are due.

    Args:
        orders: by due time.
        banks: by name.
    """

    def __init__(self, orders: Iterable[Order], banks: Mapping[str, Bank]) -> None:
        loops = [partial(self._serve, bank) for bank in banks.values() for _ in range(TELLERS)]
        super().__init__("eos-teller", loops)
        self.confirmed: set[str] = set()
        self.refused = 0
        self._send: Callable[..., None] = find("transfers:send")
        self._refusal: type[Exception] = find("transfers:Refused")
        self._queues: dict[str, SimpleQueue[Order]] = {name: SimpleQueue() for name in banks}
        for order in orders:
            self._queues[order.sender].put(order)
        self._lock = threading.Lock()
        self._began = 0.0

    @property
    def answered(self) -> int:
        """Number of transfers made or refused."""
        return len(self.confirmed) + self.refused

    def start(self) -> None:
        """Start the threads."""
        self._began = time.monotonic()
        super().start()

    def _serve(self, bank: Bank) -> None:
        with suppress(Empty), closing(BankConnection(bank.database)) as connection:
            while not self.stopping.is_set():
                self._ask(connection, bank.topic, self._queues[bank.name].get_nowait())

    def _ask(self, connection: BankConnection, topic: str, order: Order) -> None:
        """Ask until there is an answer; the transfer's id makes retries idempotent."""
        self.stopping.wait(max(self._began + order.due_seconds - time.monotonic(), 0))
        while not self.stopping.is_set():
            try:
                send = partial(self._send, topic=topic, transfer=order.transfer)
                connection.use("send a transfer", send)
            except DatabaseUnavailable:
                self.stopping.wait(AWAY_SECONDS)
            except self._refusal:
                with self._lock:
                    self.refused += 1
                return
            else:
                with self._lock:
                    self.confirmed.add(str(order.transfer.id))
                return
