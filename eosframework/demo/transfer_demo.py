"""The transfer demo from its first line to its verdict.

1. start a real broker and two real databases, and give each bank its tables and accounts
2. start the examiner, which compares the books of both banks until the end
3. start relays and workers of both banks
4. ask for transfers both ways, and meanwhile kill at random moments
5. wait until no transfer is in transit, and stop relays and workers
6. compare the ledgers

With `--together` there are no relays: transfers are requested through a topic, and the workers of a
bank debit its account and send the transfer in one decision.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from queue import Empty, SimpleQueue
from typing import Any
from uuid import UUID

import orjson
from rich.console import Console

from eosframework.config import KafkaSettings
from eosframework.demo.bank import Bank, BankConnection, Books, Reader, Sample, examine, judge
from eosframework.demo.feeds import example_file
from eosframework.demo.services import Background, Kill, deal, kill_points
from eosframework.demo.stage import PARTITIONS, Bars, Demo, Outcome, Plan, Stage, open_stage
from eosframework.errors import DatabaseUnavailable
from eosframework.kafka.client.plain_writes import FedRecord, feed
from eosframework.kafka.consumer.range_reader import follow
from eosframework.records import partitions_of
from eosframework.serialization.references import find
from eosframework.topology.loader import load_app

_TELLERS = 2
"""For each bank, so that transactions of a bank overlap."""

_AWAY_SECONDS = 0.1

_LARGEST_SHARE = 20
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
                amount=chance.randint(1, accounts[sender][debited] // _LARGEST_SHARE),
            ),
        )


class _Tellers(Background):
    """Threads that ask for transfers as they are due.

    Args:
        orders: by due time.
        banks: by name.
    """

    def __init__(self, orders: Iterable[Order], banks: Mapping[str, Bank]) -> None:
        loops = [partial(self._serve, bank) for bank in banks.values() for _ in range(_TELLERS)]
        super().__init__("eos-teller", loops)
        self.confirmed: set[str] = set()
        self.refused: set[str] = set()
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
        return len(self.confirmed) + len(self.refused)

    def end_asking(self) -> None:
        """Ask for no more."""
        self.stop()

    def has_answered(self, debited: int) -> bool:
        """Return whether each transfer that was asked for is debited or refused."""
        return debited >= len(self.confirmed)

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
                self.stopping.wait(_AWAY_SECONDS)
            except self._refusal:
                with self._lock:
                    self.refused.add(str(order.transfer.id))
                return
            else:
                with self._lock:
                    self.confirmed.add(str(order.transfer.id))
                return


class _Requests(Background):
    """Threads that request transfers through topics, and one that reads which were refused.

    Args:
        orders: by due time.
        banks: by name.
        per_second: rate of transfers, of all banks.
        settings: the connection to the broker.
    """

    def __init__(
        self,
        orders: Iterable[Order],
        banks: Mapping[str, Bank],
        per_second: float,
        settings: KafkaSettings,
    ) -> None:
        by_bank: dict[str, list[Order]] = {name: [] for name in banks}
        for order in orders:
            by_bank[order.sender].append(order)
        super().__init__(
            "eos-requests",
            [
                *(partial(self._feed, banks[name], found) for name, found in by_bank.items()),
                partial(self._follow, [bank.refused for bank in banks.values()]),
            ],
        )
        self.refused: set[str] = set()
        self._asked: dict[str, list[str]] = {name: [] for name in banks}
        self._settings = settings
        self._per_second = per_second / len(banks)
        self._has_ended = threading.Event()

    @property
    def answered(self) -> int:
        """Number of transfers that were requested."""
        return sum(map(len, self._asked.values()))

    @property
    def confirmed(self) -> set[str]:
        """The requested ones that were not refused."""
        return {id_ for asked in self._asked.values() for id_ in asked} - self.refused

    def end_asking(self) -> None:
        """Ask for no more."""
        self._has_ended.set()

    def has_answered(self, debited: int) -> bool:
        """Return whether each transfer that was asked for is debited or refused."""
        return debited + len(self.refused) >= self.answered

    def _feed(self, bank: Bank, orders: Sequence[Order]) -> None:
        def requests() -> Iterator[FedRecord]:
            for order in orders:
                if self._has_ended.is_set() or self.stopping.is_set():
                    return
                transfer = order.transfer
                self._asked[bank.name].append(str(transfer.id))
                request = transfer.model_dump_json().encode()
                yield transfer.debited.encode(), request, time.time_ns() // 1_000_000

        feed(self._settings, bank.requests, requests(), records_per_second=self._per_second)

    def _follow(self, topics: Sequence[str]) -> None:
        partitions = partitions_of(dict.fromkeys(topics, PARTITIONS))
        for _, messages in follow(self._settings, partitions, self.stopping.is_set):
            self.refused |= {orjson.loads(message.value() or b"{}")["id"] for message in messages}


_SHARE = 0.2
"""Share of time at work; the rest is left to the banks."""

_SHORTEST_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 0.2
_KEPT_FINDINGS = 20


class _Examiner(Background):
    """Takes the books of the banks in turns; three consecutive ones make a sample.

    Args:
        banks: two readers for this thread only.
        start: opening total of both banks.
    """

    def __init__(self, banks: Sequence[Reader], start: int) -> None:
        super().__init__("eos-examiner", [self._look])
        self.samples = 0
        self.wrong = 0
        self.findings: list[str] = []
        self.latest: Sample | None = None
        self._banks = banks
        self._opening_total = start

    def _look(self) -> None:
        taken: deque[Books] = deque(maxlen=3)
        with ExitStack() as opened:
            for bank in self._banks:
                opened.callback(bank.close)
            for bank in cycle(self._banks):
                if (books := self._books(bank)) is None:
                    return
                began = time.monotonic()
                taken.append(books)
                if len(taken) == 3:
                    first, between, last = taken
                    self._judge(examine(first, between, last, self._opening_total))
                self._rest_from(time.monotonic() - began)

    def _books(self, bank: Reader) -> Books | None:
        """Return a bank's books once its database is available; None: asked to stop."""
        while not self.stopping.is_set():
            began = time.monotonic()
            try:
                books = bank.books()
            except DatabaseUnavailable:
                self.stopping.wait(_AWAY_SECONDS)
                continue
            self._rest_from(time.monotonic() - began)
            return books
        return None

    def _rest_from(self, worked_seconds: float) -> None:
        wanted_seconds = worked_seconds * (1 / _SHARE - 1)
        self.stopping.wait(
            min(max(wanted_seconds, _SHORTEST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
        )

    def _judge(self, sample: Sample) -> None:
        self.samples += 1
        self.wrong += bool(sample.findings)
        self.findings += sample.findings[: _KEPT_FINDINGS - len(self.findings)]
        self.latest = sample


_BANKS = ("bank_a", "bank_b")
_ACCOUNTS = 20
_OPENING_BALANCE = 100_00
_OPENING_SECONDS = 120.0
_CATCH_UP_SECONDS = 60.0
_LOOK_SECONDS = 0.05
_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferPlan(Plan):
    """The parameters of the demo.

    Args:
        transfers: how many to ask for.
        per_second: rate of transfers.
        kills: number of processes to kill.
        together: without outboxes: workers debit accounts and send transfers in one decision.
    """

    transfers: int
    per_second: int
    kills: int
    together: bool


def run_transfers(plan: TransferPlan, console: Console) -> Outcome:
    """Run the demo, report on `console`, and leave no process running, whatever the outcome.

    Raises:
        ComponentFailed: the broker, a database, a relay or a worker ended by itself.
        RunError: transfers stayed in transit.
        KeyboardInterrupt: SIGINT or SIGTERM came; everything has been stopped.
    """
    title = "Money circulates between two banks while their processes are killed"
    with open_stage(console, title, planned_kills=plan.kills, keep=plan.keep) as stage:
        return _TransferDemo(plan, stage).run()


class _TransferDemo(Demo[TransferPlan]):
    def __init__(self, plan: TransferPlan, stage: Stage) -> None:
        super().__init__(plan, stage)
        self._accounts = {
            bank: {f"{bank}.{number:02}": _OPENING_BALANCE for number in range(_ACCOUNTS)}
            for bank in _BANKS
        }
        self._start = sum(sum(accounts.values()) for accounts in self._accounts.values())
        self._kill_points = kill_points(plan.transfers, plan.kills, self._chance)
        self._victims = deal(plan.kills, self._chance)
        self._cluster = stage.start_kafka("kafka")
        self._banks: dict[str, Bank] = {}

    def run(self) -> Outcome:
        make_importable()
        self._banks.update((name, self._bank(name)) for name in _BANKS)
        banks = self._banks.values()
        topics = [bank.topic for bank in banks]
        if self._plan.together:
            topics += [topic for bank in banks for topic in (bank.requests, bank.refused)]
        self._settings = self._stage.create_topics(self._cluster, topics)
        with ExitStack() as cleanup:
            examiner = _Examiner([bank.reader() for bank in banks], self._start)
            examiner.start()
            cleanup.callback(examiner.stop)
            self._story.say("an examiner compares both banks from now on: no cent may be missing")
            self._open()
            tellers = self._tellers()
            cleanup.callback(tellers.stop)
            with self._story.bars(self._plan.transfers, "answered", "debited", "credited") as bars:
                self._transfer(tellers, examiner, bars)
                self._settle(tellers, examiner, bars)
            self._close()
        return self._judge(tellers, examiner)

    def _bank(self, name: str) -> Bank:
        server = self._stage.start_postgres(name)
        has_outbox = not self._plan.together
        bank = Bank(name, self._stage.directory, server, has_outbox=has_outbox)
        self._stage.cleanup.callback(bank.end)
        bank.make_tables(self._accounts[name])
        self._story.say(
            f"{name} has a database of its own, and {_money(_OPENING_BALANCE)} on each of "
            f"{_ACCOUNTS} accounts"
        )
        self._stage.check()
        return bank

    def _open(self) -> None:
        """Start relays and workers, and wait until they have tasks."""
        for bank in self._banks.values():
            bank.open(self._cluster.bootstrap_servers)
        self._stage.wait(
            lambda: all(bank.is_at_work for bank in self._banks.values()),
            self._require_running,
            seconds=_OPENING_SECONDS,
            pause_seconds=_LOOK_SECONDS,
            late=lambda: (
                f"relays and workers were not at work after {_OPENING_SECONDS:g} s; see their logs "
                f"in {self._stage.directory}"
            ),
        )
        who = "workers" if self._plan.together else "relays and workers"
        self._story.say(f"{who} of both banks are at work")

    def _require_running(self) -> None:
        for bank in self._banks.values():
            bank.require_running()

    def _tellers(self) -> _Tellers | _Requests:
        plan = self._plan
        orders = draw_orders(plan.transfers, plan.per_second, self._accounts, self._chance)
        tellers = (
            _Requests(orders, self._banks, plan.per_second, self._settings)
            if plan.together
            else _Tellers(orders, self._banks)
        )
        self._story.say(
            f"{plan.transfers:,} transfers are asked for, {plan.per_second:,} a second; "
            f"{plan.kills} kills are planned (--seed {plan.seed})"
        )
        tellers.start()
        return tellers

    def _transfer(self, tellers: _Tellers | _Requests, examiner: _Examiner, bars: Bars) -> None:
        """Kill until all transfers are answered and all kills done, or a fault is found."""
        plan, stage = self._plan, self._stage
        while tellers.answered < plan.transfers and not examiner.wrong:
            stage.pause(_LOOK_SECONDS)
            self._look(tellers, examiner, bars)
            if stage.kills < plan.kills and tellers.answered >= self._kill_points[stage.kills]:
                self._kill()
        deadline = time.monotonic() + _CATCH_UP_SECONDS
        while stage.kills < plan.kills and not examiner.wrong and time.monotonic() < deadline:
            stage.pause(_LOOK_SECONDS)
            self._look(tellers, examiner, bars)
            self._kill()

    def _kill(self) -> None:
        """Kill the next victim if it is at work."""
        bank = self._banks[_BANKS[self._stage.kills % 2]]
        kinds: dict[str, Callable[[], Kill | None]] = {
            "worker": partial(bank.kill_worker, self._chance),
            "relay": partial(bank.kill_worker, self._chance)
            if self._plan.together
            else bank.kill_relay,
            "database": bank.kill_database,
        }
        self._stage.record_kill(kinds[self._victims[self._stage.kills]]())

    def _look(self, tellers: _Tellers | _Requests, examiner: _Examiner, bars: Bars) -> None:
        tellers.require_running()
        examiner.require_running()
        self._require_running()
        if (sample := examiner.latest) is not None:
            bars.show(tellers.answered, sample.debited, sample.credited)

    def _settle(self, tellers: _Tellers | _Requests, examiner: _Examiner, bars: Bars) -> None:
        """Wait until every debited transfer is credited."""
        if examiner.wrong:
            self._story.say("the examiner found something: no more is asked for", style="bold red")
        tellers.end_asking()
        samples = examiner.samples + 3  # samples begun after the last request

        def on_the_way() -> int | None:
            return None if examiner.latest is None else len(examiner.latest.on_the_way)

        def has_settled() -> bool:
            latest = examiner.latest
            return (
                latest is not None
                and examiner.samples >= samples
                and tellers.has_answered(latest.debited)
                and not latest.on_the_way
            )

        self._stage.wait(
            has_settled,
            lambda: self._look(tellers, examiner, bars),
            seconds=_CATCH_UP_SECONDS,
            pause_seconds=_LOOK_SECONDS,
            late=lambda: (
                f"{on_the_way() or 0:,} transfers were still on the way {_CATCH_UP_SECONDS:g} s "
                f"after the last request; see the logs in {self._stage.directory}"
            ),
        )

    def _close(self) -> None:
        for bank in self._banks.values():
            bank.close()
        who = "workers" if self._plan.together else "relays and workers"
        self._story.say(f"nothing is on the way; {who} were asked to stop, and did")

    def _judge(self, tellers: _Tellers | _Requests, examiner: _Examiner) -> Outcome:
        self._stage.check()
        first, second = (bank.ledgers() for bank in self._banks.values())
        opening = {k: v for accounts in self._accounts.values() for k, v in accounts.items()}
        verdict = judge((first, second), opening, tellers.confirmed, tellers.refused)
        counts = {
            "transfers": verdict.transfers,
            "refused": len(tellers.refused),
            **{kind: len(names) for kind, names in verdict.wrong().items()},
            "money_at_start": self._start,
            "money_at_end": verdict.money,
            "samples": examiner.samples,
            "wrong_samples": examiner.wrong,
        }
        self._story.say("the ledgers of both banks were compared, line by line")
        for name, count in counts.items():
            shown = _money(count) if name.startswith("money") else f"{count:,}"
            self._story.plain(f"          {name:<14}{shown:>12}")
        for kind, names in verdict.wrong().items():
            if names:
                more = ", …" if len(names) > _NAMED else ""
                self._story.plain(f"          {kind}: {', '.join(names[:_NAMED])}{more}")
        for finding in examiner.findings:
            self._story.plain(f"          the examiner: {finding}")
        return self._stage.conclude(
            counts,
            is_right=verdict.clean and verdict.money == self._start and not examiner.wrong,
            deaths_seen=sum(bank.deaths_seen() for bank in self._banks.values()),
            good=f"{self._stage.kills} kills, and in each of {examiner.samples:,} looks at both "
            f"banks all the money was there, to the cent",
            bad="It does NOT add up",
        )


def _money(cents: int) -> str:
    return f"{cents / 100:,.2f}"
