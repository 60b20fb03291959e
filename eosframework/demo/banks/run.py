"""The transfer demo from its first line to its verdict.

1. start a real broker and two real databases, and give each bank its tables and accounts
2. start the examiner, which compares the books of both banks until the end
3. start relays and workers of both banks
4. ask for transfers both ways, and meanwhile kill at random moments
5. wait until no transfer is in transit, and stop relays and workers
6. compare the ledgers
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from rich.console import Console

from eosframework.demo.banks.bank import Bank
from eosframework.demo.banks.examiner import Examiner
from eosframework.demo.banks.tellers import Tellers, draw_orders, make_importable
from eosframework.demo.banks.verdict import Verdict, judge
from eosframework.demo.kills import Kill, deal, kill_points
from eosframework.demo.stage import Stage, open_stage
from eosframework.demo.story import Bars, Story
from eosframework.errors import RunError

BANKS = ("bank_a", "bank_b")
ACCOUNTS = 20
OPENING_BALANCE = 100_00
OPENING_SECONDS = 120.0
CATCH_UP_SECONDS = 60.0
LOOK_SECONDS = 0.05
NAMED = 5


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of the demo.

    Args:
        transfers: how many to ask for.
        per_second: rate of transfers.
        kills: number of processes to kill.
        seed: decides sender, receiver and amount of transfers, and the kills.
        keep: leave broker and databases running.
    """

    transfers: int
    per_second: int
    kills: int
    seed: int
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the demo."""

    verdict: Verdict
    start: int
    refused: int
    samples: int
    wrong_samples: int
    planned_kills: int
    kills: int
    deaths_seen: int
    seconds: float

    @property
    def good(self) -> bool:
        """True if the total held at every moment, and each transfer took effect once."""
        return self.adds_up and self.proves_enough

    @property
    def adds_up(self) -> bool:
        """True without any finding."""
        return self.verdict.clean and self.verdict.money == self.start and not self.wrong_samples

    @property
    def proves_enough(self) -> bool:
        """True if all planned kills were done, and the examiner took samples."""
        return self.planned_kills == self.kills == self.deaths_seen and self.samples > 0

    def counts(self) -> dict[str, int]:
        """Return the counts by name."""
        return {
            "transfers": self.verdict.transfers,
            "refused": self.refused,
            **{kind: len(names) for kind, names in self.verdict.wrong().items()},
            "money_at_start": self.start,
            "money_at_end": self.verdict.money,
            "samples": self.samples,
            "wrong_samples": self.wrong_samples,
        }

    def as_data(self) -> dict[str, int | float]:
        """Return the last line of the demo."""
        return {**self.counts(), "kills": self.kills, "seconds": round(self.seconds, 1)}


def run_transfers(plan: Plan, console: Console) -> Outcome:
    """Run the demo, report on `console`, and leave no process running, whatever the outcome.

    Raises:
        ComponentFailed: the broker, a database, a relay or a worker ended by itself.
        RunError: transfers stayed in transit.
        KeyboardInterrupt: SIGINT or SIGTERM came; everything has been stopped.
    """
    story = Story(console)
    title = "Money circulates between two banks while their processes are killed"
    with open_stage(story, title, keep=plan.keep) as stage:
        return _Demo(plan, stage).run()


class _Demo:
    def __init__(self, plan: Plan, stage: Stage) -> None:
        self._plan = plan
        self._stage = stage
        self._story = stage.story
        self._chance = random.Random(plan.seed)
        self._accounts = {
            bank: {f"{bank}.{number:02}": OPENING_BALANCE for number in range(ACCOUNTS)}
            for bank in BANKS
        }
        self._start = sum(sum(accounts.values()) for accounts in self._accounts.values())
        self._kill_points = kill_points(plan.transfers, plan.kills, self._chance)
        self._victims = deal(plan.kills, self._chance)
        self._kills = 0
        self._banks: dict[str, Bank] = {}

    def run(self) -> Outcome:
        make_importable()
        self._banks.update((name, self._bank(name)) for name in BANKS)
        banks = self._banks.values()
        self._stage.create_topics([bank.topic for bank in banks])
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
        keep = self._plan.keep
        bank = Bank(name, self._stage.directory, detached=keep)
        if keep:
            self._stage.cleanup.callback(_say_how_to_go_on, self._story, bank)
        self._stage.cleanup.callback(bank.end, keep=keep)
        bank.make_tables(self._accounts[name])
        self._story.say(
            f"{name} has a database of its own, and {_money(OPENING_BALANCE)} on each of "
            f"{ACCOUNTS} accounts"
        )
        self._stage.stopping.check()
        return bank

    def _open(self) -> None:
        """Start relays and workers, and wait until they have tasks."""
        for bank in self._banks.values():
            bank.open(self._stage.cluster.bootstrap_servers)
        deadline = time.monotonic() + OPENING_SECONDS
        while not all(bank.is_at_work for bank in self._banks.values()):
            if time.monotonic() > deadline:
                raise RunError(
                    f"relays and workers were not at work after {OPENING_SECONDS:g} s; see their "
                    f"logs in {self._stage.directory} (--keep leaves it there)"
                )
            time.sleep(LOOK_SECONDS)
            self._stage.stopping.check()
            for bank in self._banks.values():
                bank.require_running()
        self._story.say("relays and workers of both banks are at work")

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
        plan = self._plan
        while tellers.answered < plan.transfers and not examiner.wrong:
            self._look(tellers, examiner, bars)
            if self._kills < plan.kills and tellers.answered >= self._kill_points[self._kills]:
                self._kill()
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while self._kills < plan.kills and not examiner.wrong and time.monotonic() < deadline:
            self._look(tellers, examiner, bars)
            self._kill()

    def _kill(self) -> None:
        """Kill the next victim if it is at work."""
        bank = self._banks[BANKS[self._kills % 2]]
        kinds: dict[str, Callable[[], Kill | None]] = {
            "worker": lambda: bank.kill_worker(self._chance),
            "relay": bank.kill_relay,
            "database": bank.kill_database,
        }
        if (kill := kinds[self._victims[self._kills]]()) is not None:
            self._kills += 1
            self._story.say(f"kill {self._kills} of {self._plan.kills}: {kill}", style="red")

    def _look(self, tellers: Tellers, examiner: Examiner, bars: Bars) -> None:
        time.sleep(LOOK_SECONDS)
        self._stage.stopping.check()
        tellers.require_running()
        examiner.require_running()
        for bank in self._banks.values():
            bank.require_running()
        if (sample := examiner.latest) is not None:
            bars.show(tellers.answered, sample.debited, sample.credited)

    def _settle(self, tellers: Tellers, examiner: Examiner, bars: Bars) -> None:
        """Wait until every debited transfer is credited."""
        if examiner.wrong:
            self._story.say("the examiner found something: no more is asked for", style="bold red")
        tellers.stop()
        deadline = time.monotonic() + CATCH_UP_SECONDS
        samples = examiner.samples + 3  # samples begun after the last debit
        while examiner.samples < samples or examiner.latest is None or examiner.latest.on_the_way:
            if time.monotonic() > deadline:
                count = len(examiner.latest.on_the_way) if examiner.latest else 0
                raise RunError(
                    f"{count:,} transfers were still on the way {CATCH_UP_SECONDS:g} s after the "
                    f"last debit; see the logs in {self._stage.directory} (--keep leaves it there)"
                )
            self._look(tellers, examiner, bars)

    def _close(self) -> None:
        for bank in self._banks.values():
            bank.close()
        self._story.say("nothing is on the way; relays and workers were asked to stop, and did")

    def _judge(self, tellers: Tellers, examiner: Examiner) -> Outcome:
        self._stage.stopping.check()
        first, second = (bank.ledgers() for bank in self._banks.values())
        opening = {k: v for accounts in self._accounts.values() for k, v in accounts.items()}
        outcome = Outcome(
            verdict=judge((first, second), opening, tellers.confirmed),
            start=self._start,
            refused=tellers.refused,
            samples=examiner.samples,
            wrong_samples=examiner.wrong,
            planned_kills=self._plan.kills,
            kills=self._kills,
            deaths_seen=sum(bank.deaths_seen() for bank in self._banks.values()),
            seconds=self._story.seconds,
        )
        self._say_verdict(outcome, examiner.findings)
        return outcome

    def _say_verdict(self, outcome: Outcome, findings: list[str]) -> None:
        self._story.say("the ledgers of both banks were compared, line by line")
        for name, count in outcome.counts().items():
            shown = _money(count) if name.startswith("money") else f"{count:,}"
            self._story.plain(f"          {name:<14}{shown:>12}")
        for kind, names in outcome.verdict.wrong().items():
            if names:
                more = ", …" if len(names) > NAMED else ""
                self._story.plain(f"          {kind}: {', '.join(names[:NAMED])}{more}")
        for finding in findings:
            self._story.plain(f"          the examiner: {finding}")
        if not outcome.proves_enough:
            self._story.say(
                f"{outcome.planned_kills} kills were planned, {outcome.kills} done and "
                f"{outcome.deaths_seen} seen: this run proves too little"
            )
        if outcome.good:
            self._story.say(
                f"{outcome.kills} kills, and in each of {outcome.samples:,} looks at both banks "
                f"all the money was there, to the cent",
                style="green",
            )
        elif not outcome.adds_up:
            self._story.say("It does NOT add up", style="bold red")


def _money(cents: int) -> str:
    return f"{cents / 100:,.2f}"


def _say_how_to_go_on(story: Story, bank: Bank) -> None:
    story.plain(f"the database of {bank.name} stays up; where it is, and how to stop it:")
    story.plain(f"  eosframework database status --data-dir {bank.server.data_dir}")
    story.plain(f"  eosframework database down --data-dir {bank.server.data_dir}")
