"""The transfer demo from its first line to its verdict.

1. start a real broker and two real databases, and give each bank its tables and accounts
2. start the examiner, which compares the books of both banks until the end
3. start relays and workers of both banks
4. ask for transfers both ways, and meanwhile kill at random moments
5. wait until no transfer is in transit, and stop relays and workers
6. compare the ledgers
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from rich.console import Console

from eosframework.demo.banks.bank import Bank
from eosframework.demo.banks.examiner import Examiner
from eosframework.demo.banks.ledgers import judge
from eosframework.demo.banks.tellers import Tellers, draw_orders, make_importable
from eosframework.demo.kills import Kill, deal, kill_points
from eosframework.demo.stage import Demo, Outcome, Plan, Stage, open_stage
from eosframework.demo.story import Bars

BANKS = ("bank_a", "bank_b")
ACCOUNTS = 20
OPENING_BALANCE = 100_00
OPENING_SECONDS = 120.0
CATCH_UP_SECONDS = 60.0
LOOK_SECONDS = 0.05
NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferPlan(Plan):
    """The parameters of the demo.

    Args:
        transfers: how many to ask for.
        per_second: rate of transfers.
        kills: number of processes to kill.
    """

    transfers: int
    per_second: int
    kills: int


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
            bank: {f"{bank}.{number:02}": OPENING_BALANCE for number in range(ACCOUNTS)}
            for bank in BANKS
        }
        self._start = sum(sum(accounts.values()) for accounts in self._accounts.values())
        self._kill_points = kill_points(plan.transfers, plan.kills, self._chance)
        self._victims = deal(plan.kills, self._chance)
        self._cluster = stage.start_kafka("kafka")
        self._banks: dict[str, Bank] = {}

    def run(self) -> Outcome:
        make_importable()
        self._banks.update((name, self._bank(name)) for name in BANKS)
        banks = self._banks.values()
        self._stage.create_topics(self._cluster, [bank.topic for bank in banks])
        with ExitStack() as cleanup:
            examiner = Examiner([bank.reader() for bank in banks], self._start)
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
        bank = Bank(name, self._stage.directory, self._stage.start_postgres(name))
        self._stage.cleanup.callback(bank.end)
        bank.make_tables(self._accounts[name])
        self._story.say(
            f"{name} has a database of its own, and {_money(OPENING_BALANCE)} on each of "
            f"{ACCOUNTS} accounts"
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
            seconds=OPENING_SECONDS,
            pause_seconds=LOOK_SECONDS,
            late=lambda: (
                f"relays and workers were not at work after {OPENING_SECONDS:g} s; see their logs "
                f"in {self._stage.directory}"
            ),
        )
        self._story.say("relays and workers of both banks are at work")

    def _require_running(self) -> None:
        for bank in self._banks.values():
            bank.require_running()

    def _tellers(self) -> Tellers:
        plan = self._plan
        orders = draw_orders(plan.transfers, plan.per_second, self._accounts, self._chance)
        tellers = Tellers(orders, self._banks)
        self._story.say(
            f"{plan.transfers:,} transfers are asked for, {plan.per_second:,} a second; "
            f"{plan.kills} kills are planned (--seed {plan.seed})"
        )
        tellers.start()
        return tellers

    def _transfer(self, tellers: Tellers, examiner: Examiner, bars: Bars) -> None:
        """Kill until all transfers are answered and all kills done, or a fault is found."""
        plan, stage = self._plan, self._stage
        while tellers.answered < plan.transfers and not examiner.wrong:
            stage.pause(LOOK_SECONDS)
            self._look(tellers, examiner, bars)
            if stage.kills < plan.kills and tellers.answered >= self._kill_points[stage.kills]:
                self._kill()
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while stage.kills < plan.kills and not examiner.wrong and time.monotonic() < deadline:
            stage.pause(LOOK_SECONDS)
            self._look(tellers, examiner, bars)
            self._kill()

    def _kill(self) -> None:
        """Kill the next victim if it is at work."""
        bank = self._banks[BANKS[self._stage.kills % 2]]
        kinds: dict[str, Callable[[], Kill | None]] = {
            "worker": lambda: bank.kill_worker(self._chance),
            "relay": bank.kill_relay,
            "database": bank.kill_database,
        }
        self._stage.record_kill(kinds[self._victims[self._stage.kills]]())

    def _look(self, tellers: Tellers, examiner: Examiner, bars: Bars) -> None:
        tellers.require_running()
        examiner.require_running()
        self._require_running()
        if (sample := examiner.latest) is not None:
            bars.show(tellers.answered, sample.debited, sample.credited)

    def _settle(self, tellers: Tellers, examiner: Examiner, bars: Bars) -> None:
        """Wait until every debited transfer is credited."""
        if examiner.wrong:
            self._story.say("the examiner found something: no more is asked for", style="bold red")
        tellers.stop()
        samples = examiner.samples + 3  # samples begun after the last debit

        def on_the_way() -> int | None:
            return None if examiner.latest is None else len(examiner.latest.on_the_way)

        self._stage.wait(
            lambda: examiner.samples >= samples and on_the_way() == 0,
            lambda: self._look(tellers, examiner, bars),
            seconds=CATCH_UP_SECONDS,
            pause_seconds=LOOK_SECONDS,
            late=lambda: (
                f"{on_the_way() or 0:,} transfers were still on the way {CATCH_UP_SECONDS:g} s "
                f"after the last debit; see the logs in {self._stage.directory}"
            ),
        )

    def _close(self) -> None:
        for bank in self._banks.values():
            bank.close()
        self._story.say("nothing is on the way; relays and workers were asked to stop, and did")

    def _judge(self, tellers: Tellers, examiner: Examiner) -> Outcome:
        self._stage.check()
        first, second = (bank.ledgers() for bank in self._banks.values())
        opening = {k: v for accounts in self._accounts.values() for k, v in accounts.items()}
        verdict = judge((first, second), opening, tellers.confirmed)
        counts = {
            "transfers": verdict.transfers,
            "refused": tellers.refused,
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
                more = ", …" if len(names) > NAMED else ""
                self._story.plain(f"          {kind}: {', '.join(names[:NAMED])}{more}")
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
