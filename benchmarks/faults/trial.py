"""One trial: a contestant under one fault, fed before, during and after it."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import orjson
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from benchmarks.faults.failures import FaultFailed, NothingProduced
from benchmarks.faults.instances import Instance, run_once
from benchmarks.faults.judge import (
    Outputs,
    Verdict,
    inputs_of,
    is_blocked,
    is_complete,
    judge,
    read,
)
from benchmarks.faults.peers import Peer, Task
from benchmarks.faults.spy import Expected, Sent, Spy, aborts
from benchmarks.inputs import PARTITIONS, create_topics
from benchmarks.measure import CommittedOffsets
from eosframework.config import KafkaSettings
from eosframework.errors import EosError
from eosframework.kafka.inspect.coordinators import TransactionDescription, find_transaction
from eosframework.kafka.inspect.wire import Wire
from tests.support.faults.proxied import ProxiedCluster
from tests.support.faults.proxy import END_TXN, HeldRequest
from tests.support.servers.kafka_admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

KEYS = 8
FED_AT_ONCE = 10
FEED_SECONDS = 0.1
FIRED_SECONDS = 60.0
RESUMED_SECONDS = 300.0
"""For a process that starts again: on a busy machine Spark alone takes minutes."""
AFTER_SECONDS = 1.0
STILL_SECONDS = 60.0
"""Without any progress, after which what is missing is stuck."""
LONGEST_BYTES = 1_048_588
LONGEST_REFUSING_BYTES = 100
"""Less than a batch with an output has, more than one with the marker of an abort."""
QUIET_SECONDS = 6.0
"""The time for which all must be committed before what is missing counts as lost."""


class Feeder:
    """Appends numbers to the input, in a thread; its records go past the proxies.

    A number that could not be appended is in no input, so that nothing waits for it.
    """

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        # As the clients of Java do, so that a key is where every contestant looks for it.
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 500,
            }
        )
        self._topic = topic
        self.appended = 0
        self._numbers = itertools.count()
        self._ended = threading.Event()
        self._flowing = threading.Event()
        self._flowing.set()
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def pause(self) -> None:
        """Append nothing until `resume`."""
        self._flowing.clear()
        time.sleep(2 * FEED_SECONDS)
        self._producer.flush(60)

    def resume(self) -> None:
        self._flowing.set()

    def end(self) -> None:
        """Append nothing more; all that was appended is in the input."""
        self._ended.set()
        self._thread.join()
        if left := self._producer.flush(60):
            raise FaultFailed(f"{left} input records could not be written within 60 s")

    def _feed(self) -> None:
        while not self._ended.wait(FEED_SECONDS):
            if not self._flowing.is_set():
                continue
            for _ in range(FED_AT_ONCE):
                n = next(self._numbers)
                key = b"key-%d" % (n % KEYS)
                value = orjson.dumps({"n": n})
                self._producer.produce(self._topic, value, key, on_delivery=self._count)
            self._producer.poll(0)

    def _count(self, error: object, _: object) -> None:
        self.appended += error is None


@dataclass(frozen=True)
class Outcome:
    """The outcome of a trial."""

    verdict: Verdict
    records: int
    restarts: int
    seconds: float
    log_tail: str


@dataclass
class Trial:
    """A contestant at work.

    Args:
        cluster: its requests pass the proxies of it.
        transaction_seconds: after which brokers abort a transaction.
        start_seconds: within which the contestant must write a first record.
    """

    cluster: ProxiedCluster
    peer: Peer
    application: str
    directory: Path
    chance: random.Random
    session_seconds: float
    transaction_seconds: float
    start_seconds: float
    spy: Spy = field(default_factory=Spy)
    instances: list[Instance] = field(default_factory=list[Instance])

    def run(self, act: Callable[[Trial], None]) -> Outcome:
        """Start the contestant, let the fault happen, and judge.

        Raises:
            FaultFailed: the fault did not fire.
            NothingProduced: the contestant wrote nothing before the fault.
        """
        began = time.monotonic()
        self.directory.mkdir(parents=True)
        create_topics(
            self.cluster.direct, self.input_topic, *self.outputs, replicas=len(self.cluster.proxies)
        )
        self.feeder = Feeder(self.cluster.direct, self.input_topic)
        self._offsets = CommittedOffsets(
            self.cluster.direct, self.application, self.input_topic, PARTITIONS
        )
        self.cluster.holds.watch(self.spy.see)
        try:
            self.start()
            self._wait_until_it_writes()
            act(self)
            time.sleep(AFTER_SECONDS)
            self.feeder.end()
            is_stuck = not self._is_done()
        finally:
            self.cluster.holds.clear()
            for instance in self.instances:
                instance.stop()
            self.cluster.holds.watch(None)
            self._offsets.close()
            with contextlib.suppress(FaultFailed):
                self.feeder.end()
        inputs = inputs_of(read(self.cluster.direct, [self.input_topic])[self.input_topic])
        verdict = judge(self._read(), inputs, self.spy.aborted, is_stuck=is_stuck)
        return Outcome(
            verdict,
            records=len(inputs),
            restarts=sum(instance.starts - 1 for instance in self.instances),
            seconds=time.monotonic() - began,
            log_tail="" if verdict == Verdict() else self.instances[-1].log_tail(),
        )

    @property
    def input_topic(self) -> str:
        return f"{self.application}.in"

    @property
    def outputs(self) -> tuple[str, str]:
        return f"{self.application}.left", f"{self.application}.right"

    @property
    def raise_file(self) -> Path:
        return self.directory / "raise"

    def start(self) -> Instance:
        """Start one more instance."""
        number = len(self.instances) + 1
        log_file = self.directory / f"instance{number}.log"
        directory = self.directory / f"instance{number}"
        directory.mkdir()
        task = Task(
            bootstrap_servers=self.cluster.bootstrap_servers,
            input_topic=self.input_topic,
            outputs=self.outputs,
            group=self.application,
            instance=number,
            directory=directory,
            raise_file=self.raise_file,
            session_seconds=self.session_seconds,
            transaction_seconds=self.transaction_seconds,
            replicas=len(self.cluster.proxies),
        )
        if number == 1 and (before := self.peer.before(task)) is not None:
            run_once(before, log_file)
        instance = Instance(self.peer.command(task), log_file)
        self.instances.append(instance)
        return instance

    def pause(self, low: float, high: float) -> None:
        """Wait for seconds that the seed draws."""
        time.sleep(self.chance.uniform(low, high))

    def committed(self) -> int:
        """Return the number of input records that the group has committed."""
        return self._offsets.total()

    def wait(self, condition: Callable[[], bool], what: str, seconds: float) -> None:
        """Wait until `condition` holds.

        Raises:
            FaultFailed: it did not within `seconds`.
        """
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise FaultFailed(f"{what} did not happen within {seconds:g} s")
            time.sleep(0.05)

    def hold(
        self, api_key: int, where: Callable[[bytes], bool] = lambda _: True, *, all_: bool = False
    ) -> HeldRequest:
        """Hold the next such request; `all_`: all that follow break until they are let pass."""
        return self.cluster.hold(api_key, where=where, repeated=all_)

    def came(self, held: HeldRequest) -> None:
        """Wait until a request was sent that is held.

        Raises:
            FaultFailed: none was.
        """
        self.wait(lambda: held.came, f"a request {held.api_key} to hold", FIRED_SECONDS)

    def next_request(
        self,
        api_key: int,
        where: Callable[[bytes], bool] = lambda _: True,
        seconds: float = FIRED_SECONDS,
    ) -> Sent:
        """Wait for the next such request that passes.

        Raises:
            FaultFailed: none did.
        """
        return self.sent(self.expect(api_key, where), seconds)

    def expect(self, api_key: int, where: Callable[[bytes], bool] = lambda _: True) -> Expected:
        """Wait, from now on, for such a request that passes."""
        return self.spy.expect(lambda sent: sent.api_key == api_key and where(sent.frame))

    def sent(self, expected: Expected, seconds: float = FIRED_SECONDS) -> Sent:
        """Return a request that is waited for.

        Raises:
            FaultFailed: it did not pass.
        """
        if (sent := expected.wait(seconds)) is None:
            raise FaultFailed(f"a request that the fault needs was not sent within {seconds:g} s")
        return sent

    def transaction(self, transactional_id: str) -> TransactionDescription | None:
        """Return what the coordinator of an id says about it; None: there is none now."""
        settings = KafkaSettings(bootstrap_servers=self.cluster.direct, request_timeout_seconds=10)
        try:
            with Wire(settings) as wire:
                return find_transaction(wire, transactional_id)
        except EosError:
            return None

    def provoke_abort(self, seconds: float) -> bool:
        """Let a transaction fail; tell whether its abort was sent within `seconds`.

        The transform fails once, or, for a contestant that then commits what came before, brokers
        refuse an output until then.
        """
        aborted = self.expect(END_TXN, aborts)
        if self.peer.aborts_refused_outputs:
            self._limit_output(LONGEST_REFUSING_BYTES)
            # After a refusal it looks for the record that was refused.
            came = aborted.wait(3 * seconds) is not None
            self._limit_output(LONGEST_BYTES)
            return came
        self.raise_file.touch()
        came = aborted.wait(seconds) is not None
        self.raise_file.unlink(missing_ok=True)
        return came

    def _limit_output(self, longest_bytes: int) -> None:
        """Set how long the batches of the second output may be."""
        resource = ConfigResource(
            ResourceType.TOPIC,
            self.outputs[1],
            incremental_configs=[
                ConfigEntry(
                    "max.message.bytes",
                    str(longest_bytes),
                    incremental_operation=AlterConfigOpType.SET,
                )
            ],
        )
        admin = AdminClient({"bootstrap.servers": self.cluster.direct})
        admin.incremental_alter_configs([resource])[resource].result(60)

    def _wait_until_it_writes(self) -> None:
        deadline = time.monotonic() + self.start_seconds
        while not all(self._read().values()):
            instance = self.instances[0]
            if instance.starts > 3 or time.monotonic() > deadline:
                code = instance.ended_with
                raise NothingProduced(
                    f"{self.peer.name} "
                    + (
                        f"wrote nothing to {' and '.join(self.outputs)} within "
                        f"{self.start_seconds:g} s"
                        if code is None
                        else f"ended with {code} at each of {instance.starts} starts, before any "
                        "fault; a contestant runs until it gets SIGTERM"
                    )
                    + f"; its last lines:\n{instance.log_tail()}"
                )
            time.sleep(0.5)

    def _is_done(self) -> bool:
        """Wait for the end of the input; tell whether it was reached, and readers reach theirs."""
        fed = self.feeder.appended
        before = (-1, -1)
        since = time.monotonic()
        while True:
            outputs = self._read()
            if is_complete(outputs, fed):
                return True
            now = (self.committed(), sum(map(len, outputs.values())))
            if now != before:
                before, since = now, time.monotonic()
            still = time.monotonic() - since
            if now[0] == fed and still > QUIET_SECONDS + self.transaction_seconds:
                return not is_blocked(self.cluster.direct, self.outputs)
            if still > STILL_SECONDS:
                return False
            time.sleep(0.5)

    def _read(self) -> Outputs:
        return read(self.cluster.direct, self.outputs)
