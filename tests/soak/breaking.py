"""Carries a schedule out: breaks at its times, mends after theirs, and keeps a log of both."""

from __future__ import annotations

import heapq
import itertools
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException

from eosframework.embedded.node import Node
from tests.soak.foreign import ForeignTransaction
from tests.soak.schedule import ASLEEP, EACH_MINUTE, REQUESTS, Fault, Way
from tests.soak.workers import Workers
from tests.support.faults.proxied import ProxiedCluster
from tests.support.faults.proxy import HeldRequest

WAIT_FOR_REQUEST_SECONDS = 5.0

RETRY_SECONDS = 0.5

_COMES_LATER = {way for way, _, _ in EACH_MINUTE}


class Late(HeldRequest):
    """A request that is held until it is late; one that has not come in time is let pass."""

    def __init__(self, api_key: int) -> None:
        super().__init__(api_key)
        self._given_up = False

    def give_up(self) -> None:
        """Let it pass if it comes yet."""
        self._given_up = True

    def takes(self, api_key: int, frame: bytes, broker: tuple[str, int]) -> bool:
        return not self._given_up and super().takes(api_key, frame, broker)


class Swallowed(Late):
    """A request that arrives, and whose response is lost with its connection."""

    def takes(self, api_key: int, frame: bytes, broker: tuple[str, int]) -> bool:
        taken = super().takes(api_key, frame, broker)
        if taken:
            # A broker that is away has not got the request: then it is as if it had been lost.
            with suppress(OSError):
                self.deliver(WAIT_FOR_REQUEST_SECONDS)
        return taken


class Breaker:
    """Breaks and mends workers, requests, connections and brokers.

    Args:
        say: takes one line for each thing that happened.
        hang: opens a transaction in the application's changelog.
        fence: runs an operator's commands while no worker runs.
        late: does something to the application that starts at the end; False: it is busy.
    """

    def __init__(
        self,
        faults: Sequence[Fault],
        cluster: ProxiedCluster,
        workers: Workers,
        say: Callable[[str], None],
        hang: Callable[[], ForeignTransaction],
        fence: Callable[[], object],
        late: Callable[[str], bool],
    ) -> None:
        self.fired: list[Fault] = []
        self._cluster = cluster
        self._workers = workers
        self._say = say
        self._hang = hang
        self._fence = fence
        self._late = late
        self.complaints: list[str] = []
        self._mending = threading.Event()
        self._mending_broker = threading.Lock()
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._aside_threads: list[threading.Thread] = []
        self._broken_nodes: set[int] = set()
        self._still_hanging: list[ForeignTransaction] = []
        self._started = 0.0
        for fault in faults:
            self._at(fault.at_seconds, lambda fault=fault: self._break(fault))

    def run(self, seconds: float, each_turn: Callable[[], object]) -> None:
        """Carry out what is due until `seconds` passed, calling `each_turn` ten times a second."""
        pause = threading.Event()
        self._started = time.monotonic()
        while (now := self._now()) < seconds:
            while self._due and self._due[0][0] <= now:
                heapq.heappop(self._due)[2]()
            each_turn()
            next_due = self._due[0][0] if self._due else seconds
            pause.wait(max(min(next_due - self._now(), 0.1), 0.001))

    def mend_everything(self) -> None:
        """Bring back whatever is broken, and let everything arrive that is held."""
        self._mending.set()
        self._cluster.holds.clear()
        self._due.clear()
        # An operator's command waits for the brokers.
        for node in self._cluster.cluster.nodes:
            self._mend_broker(node)
        for thread in self._aside_threads:
            thread.join()
        for transaction in self._still_hanging:
            transaction.end_by_command()
        self._workers.come_back()
        for number in range(len(self._workers)):
            self._workers.resume(number)

    def _now(self) -> float:
        return time.monotonic() - self._started

    def _at(self, moment: float, action: Callable[[], object]) -> None:
        heapq.heappush(self._due, (moment, next(self._order), action))

    def _later(self, seconds: float, action: Callable[[], object]) -> None:
        self._at(self._now() + seconds, action)

    def _tell(self, what: object) -> None:
        self._say(f"{self._now():7.2f} {what}")

    def _break(self, fault: Fault) -> None:
        if fault.way in (Way.HOLD, Way.SWALLOW):
            self._break_request(fault)
            return
        aside = {
            Way.HANG: self._hang_in_changelog,
            Way.LATE: self._change_late,
            Way.OFFLINE: self._operate,
        }
        if fault.way is Way.OFFLINE and not self._workers.go_offline(fault.target == ASLEEP):
            self._record(fault, fired=False)
        elif fault.way in aside:
            self._aside(lambda: aside[fault.way](fault))
        else:
            self._record(fault, fired=self._break_process(fault))

    def _record(self, fault: Fault, *, fired: bool) -> None:
        """Keep what fired; what each minute has comes later if it is not possible now."""
        if fired:
            self.fired.append(fault)
        elif fault.way in _COMES_LATER:
            self._later(RETRY_SECONDS, lambda: self._break(fault))
            return
        self._tell(fault if fired else f"{fault}: not possible now")

    def _break_process(self, fault: Fault) -> bool:
        number: Any = fault.target
        match fault.way:
            case Way.KILL:
                return self._workers.kill(number, fault.for_seconds)
            case Way.KILL_CHILD:
                return self._workers.kill_child(number)
            case Way.STOP:
                self._later(fault.for_seconds, lambda: self._resume(number))
                return self._workers.stop(number)
            case Way.LEAVE:
                return self._workers.leave(number, fault.for_seconds)
            case Way.TWIN:
                return self._workers.twin(number)
            case Way.DAMAGE:
                rng = random.Random(f"{fault.at_seconds} damage")
                done = self._workers.damage(number, fault.for_seconds, rng)
                if done is not None:
                    self._tell(f"        {done}")
                return done is not None
            case Way.BREAK:
                self._cluster.proxies[number].break_connections()
                return True
            case _:
                return self._break_broker(fault, number)

    def _resume(self, number: int) -> None:
        self._workers.resume(number)
        self._tell(f"worker {number} continues")

    def _break_broker(self, fault: Fault, number: int) -> bool:
        """One broker at a time: of three, two are needed."""
        if self._broken_nodes:
            return False
        node = next(node for node in self._cluster.cluster.nodes if node.id == number)
        self._broken_nodes.add(number)
        if fault.way is Way.KILL_BROKER:
            node.kill()
        else:
            node.suspend()
        self._later(fault.for_seconds, lambda: self._aside(lambda: self._mend_broker(node)))
        return True

    def _mend_broker(self, node: Node) -> None:
        with self._mending_broker:
            if node.id in self._broken_nodes:
                node.resume()
                node.start()
                self._broken_nodes.discard(node.id)
                self._tell(f"broker {node.id} is back")

    def _aside(self, action: Callable[[], object]) -> None:
        """Do what takes a while on a thread of its own; the schedule goes on."""
        thread = threading.Thread(target=action, daemon=True)
        self._aside_threads.append(thread)
        thread.start()

    def _change_late(self, fault: Fault) -> None:
        """Start, kill, stop or reset the application that starts at the end."""
        try:
            done = self._late(str(fault.target))
        except AssertionError as error:
            self.complaints.append(f"{fault}: {error}")
            return
        self._record(fault, fired=done)

    def _operate(self, fault: Fault) -> None:
        """Run commands while all workers are away, and let them come back."""
        try:
            self._fence()
            self._record(fault, fired=True)
        except AssertionError as error:
            self.complaints.append(f"{fault}: {error}")
        finally:
            self._later(0.0, self._workers.come_back)

    def _hang_in_changelog(self, fault: Fault) -> None:
        """Leave a transaction open while workers restore; then abort it in one of two ways."""
        number: Any = fault.target
        try:
            transaction = self._hang()
        except (AssertionError, KafkaException) as error:
            self._tell(f"{fault}: {error}")
            self._record(fault, fired=False)
            return
        # Workers are the affair of the schedule's own thread.
        self._later(0.0, lambda: self._workers.kill(number, 0.0))
        self._record(fault, fired=True)
        self._mending.wait(fault.for_seconds)
        end = transaction.end_by_command if round(fault.at_seconds) % 2 else transaction.end
        try:
            end()
        except (AssertionError, KafkaException) as error:
            self._tell(f"{transaction.transactional_id} is not aborted yet: {error}")
            self._still_hanging.append(transaction)
        else:
            self._tell(f"{transaction.transactional_id} is aborted")

    def _break_request(self, fault: Fault) -> None:
        key = REQUESTS[str(fault.target)]
        kind = Late if fault.way is Way.HOLD else Swallowed
        held = kind(key)
        self._cluster.holds.add(held)
        self._aside(lambda: self._follow(fault, held))

    def _follow(self, fault: Fault, held: Late) -> None:
        """Wait for the request, and deliver it when it is late enough."""
        try:
            held.wait(WAIT_FOR_REQUEST_SECONDS)
        except AssertionError:
            held.give_up()
            self._tell(f"{fault}: none came")
            return
        self.fired.append(fault)
        if fault.way is Way.SWALLOW:
            self._tell(fault)
            return
        threading.Event().wait(fault.for_seconds)
        try:
            errors = ", ".join(sorted(held.deliver(WAIT_FOR_REQUEST_SECONDS))) or "no error"
        except OSError as error:
            errors = f"did not arrive ({error})"
        self._tell(f"{fault}: {errors}")
