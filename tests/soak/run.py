"""One soak: brokers behind proxies, workers, a feeder, readers, a schedule, and the verdict."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaError, Producer

from tests.soak.breaking import Breaker
from tests.soak.checker import Anomaly, check
from tests.soak.effects import SIDES, STORE, TOPOLOGY, key_of
from tests.soak.foreign import ForeignTransaction
from tests.soak.history import History, Seen
from tests.soak.hostile import HostileProducer
from tests.soak.latecomer import Latecomer
from tests.soak.operating import Operator
from tests.soak.recording import (
    QUIET,
    Background,
    OffsetPoller,
    Reader,
    ends_of,
    open_transactional_ids,
    read_dead_letters,
    read_journals,
    read_numbers,
)
from tests.soak.resources import ResourceRecorder, judge
from tests.soak.schedule import WORKERS, Fault, producers
from tests.soak.segments import offsets_in, outputs_in
from tests.soak.workers import SETTINGS, Workers
from tests.support.applications.pipeline import Pipeline, wait_until
from tests.support.faults.proxied import ProxiedCluster, proxied_kafka

PARTITIONS = 5
RESOURCES = "resources.csv"
"""Name of the file with the memory, descriptors and threads of each worker."""
CATCH_UP_SECONDS = 600.0
STOP_SECONDS = 180.0
BROKER = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
LASTING_SESSION = {"broker.session.timeout.ms": "120000"}
"""A single broker that stands still must not be declared dead by the controller beside it."""


@dataclass(frozen=True)
class Settings:
    """What to run.

    Args:
        schedule: makes the faults of a seed for so many seconds.
        seconds: how long things are broken; bringing everything back comes on top.
        records_per_second: that the feeder writes.
        unprotected: switch the straggler protection off.
        hostile_percent: of the feeder's records that are hostile.
        producers: setting of the workers, by the seed.
    """

    seed: int
    seconds: float
    schedule: Callable[[int, float], Sequence[Fault]]
    nodes: int = 1
    records_per_second: int = 200
    unprotected: bool = False
    hostile_percent: float = 2.0
    producers: Callable[[int], str] = producers

    @property
    def chosen_producers(self) -> str:
        """The setting of the workers' producers."""
        return self.producers(self.seed)

    @property
    def command(self) -> str:
        """What runs the same schedule of all faults again."""
        return (
            f"make soak MINUTES={self.seconds / 60:g} SEED={self.seed} NODES={self.nodes} "
            f"HOSTILE={self.hostile_percent:g}"
        )


@dataclass(frozen=True)
class Result:
    """What a soak found.

    Args:
        complaints: what is wrong although the history may be right: a worker that does not get
            on, or that ends in a way it must not.
    """

    anomalies: Sequence[Anomaly]
    complaints: Sequence[str]
    fired: Sequence[Fault]
    exit_codes: Sequence[int]
    inputs: int
    outputs: int
    dead: int
    catch_up_seconds: float
    resources: str = ""

    @property
    def clean(self) -> bool:
        return not self.anomalies and not self.complaints

    def __str__(self) -> str:
        ways = Counter(str(fault.way) for fault in self.fired)
        lines = [
            f"{self.inputs} inputs, {self.outputs} outputs, {self.dead} dead letters, the last "
            f"{self.catch_up_seconds:.0f} s behind the last fault, {len(self.fired)} faults: "
            + ", ".join(f"{way} {count}" for way, count in sorted(ways.items())),
            "workers that ended meanwhile, by exit code: "
            + (", ".join(f"{c}: {n}" for c, n in Counter(self.exit_codes).items()) or "none"),
            self.resources,
            *self.complaints,
        ]
        for kind, count in Counter(anomaly.kind for anomaly in self.anomalies).items():
            lines.append(f"{count} x {kind}, such as")
            lines += [f"  {a.what}" for a in self.anomalies if a.kind is kind][:5]
        return "\n".join([*lines, "clean" if self.clean else "NOT CLEAN"])


def soak(settings: Settings, directory: Path, say: Callable[[str], None]) -> Result:
    """Run one soak.

    Args:
        directory: for the brokers' data, the workers' logs and their journals.
        say: takes one line for each thing that happens.
    """
    properties = BROKER if settings.nodes > 1 else {**BROKER, **LASTING_SESSION}
    with proxied_kafka(directory / "kafka", nodes=settings.nodes, properties=properties) as cluster:
        return _Soak(settings, cluster, directory, say).run()


class Feeder(Background):
    """Writes numbers into the input, each under its key."""

    def __init__(
        self,
        pipeline: Pipeline,
        records_per_second: int,
        hostile_percent: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__("feeder")
        self._topic = pipeline.source
        self._rate = records_per_second
        self._fed = 0
        client = {
            **QUIET,
            "bootstrap.servers": pipeline.bootstrap_servers,
            "enable.idempotence": True,
            "delivery.timeout.ms": 120_000,
            "partitioner": "murmur2_random",
        }
        self._producer = Producer(client)
        self._hostile = HostileProducer(client, self._topic, hostile_percent, seed)
        self._started = time.monotonic()

    def step(self) -> None:
        due = int((time.monotonic() - self._started) * self._rate)
        for number in range(self._fed, due):
            if self._hostile.replaces(number):
                continue
            self._producer.produce(
                self._topic,
                json.dumps({"n": number}).encode(),
                key_of(number),
                on_delivery=_require_delivered,
            )
        self._fed = due
        self._producer.poll(0)
        self.wait(0.05)

    def finish(self) -> None:
        super().finish()
        for producer in (self._producer, self._hostile.producer):
            assert producer.flush(120) == 0, "the feeder's last records were not taken"


class _Soak:
    def __init__(
        self,
        settings: Settings,
        cluster: ProxiedCluster,
        directory: Path,
        say: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._say = say
        self._pipeline = Pipeline(
            cluster.direct,
            f"soak.s{settings.seed}",
            directory / "pipeline",
            topology=TOPOLOGY,
            partitions=PARTITIONS,
            replication_factor=settings.nodes,
            outputs=dict.fromkeys(SIDES, 1),
        )
        operator = Operator(self._pipeline, [*SETTINGS, settings.chosen_producers])
        operator.run("apply")
        self._topics = {side: f"{self._pipeline.name}.{side}" for side in SIDES}
        self._workers = Workers(
            self._pipeline,
            cluster.bootstrap_servers,
            WORKERS + 1,
            producers=settings.chosen_producers,
            unprotected=settings.unprotected,
        )
        faults = settings.schedule(settings.seed, settings.seconds)
        self._late = Latecomer(
            cluster.direct,
            self._pipeline.source,
            PARTITIONS,
            f"late.s{settings.seed}",
            directory / "late",
        )
        changelog = f"{self._pipeline.name}-{STORE}-changelog"
        self._breaker = Breaker(
            faults,
            cluster,
            self._workers,
            say,
            lambda: ForeignTransaction(cluster.direct, changelog, PARTITIONS),
            lambda: operator.fence(self._pipeline.source),
            self._late.act,
        )
        self._complaints: list[str] = []
        self._resources = ResourceRecorder(
            self._workers.processes, directory / RESOURCES, self._workers.heaps
        )

    def run(self) -> Result:
        pipeline, servers = self._pipeline, self._cluster.direct
        self._say(self._settings.chosen_producers)
        with ExitStack() as stack:
            stack.callback(self._workers.end)
            stack.callback(self._late.end)
            late = stack.enter_context(ThreadPoolExecutor(1))
            offsets = stack.enter_context(
                OffsetPoller(servers, pipeline.name, pipeline.source, PARTITIONS)
            )
            along = stack.enter_context(Reader(servers, self._topics, PARTITIONS))
            feeder = stack.enter_context(
                Feeder(
                    pipeline,
                    self._settings.records_per_second,
                    self._settings.hostile_percent,
                    self._settings.seed,
                )
            )
            stack.enter_context(self._resources)
            self._wait_until_committed(offsets, 1, CATCH_UP_SECONDS)
            self._breaker.run(self._settings.seconds, self._look_after)
            self._breaker.mend_everything()
            feeder.finish()
            inputs, fixed = read_numbers(servers, pipeline.source, PARTITIONS), time.monotonic()
            judged = late.submit(self._late.finish, inputs)
            self._catch_up(offsets, sum(map(len, inputs.values())))
            caught_up = time.monotonic()
            self._complaints += judged.result()
            self._resources.finish()
            self._complaints += self._workers.finish(STOP_SECONDS)
            history = self._history(inputs, along, offsets)
        self._complaints += [*self._breaker.complaints, *self._tracebacks()]
        resources, rising = judge(self._resources.samples)
        self._complaints += rising
        return Result(
            check(history),
            self._complaints,
            self._breaker.fired,
            [ended.exit_code for ended in self._workers.ended],
            sum(map(len, inputs.values())),
            len(history.committed),
            len(history.dead),
            caught_up - fixed,
            resources,
        )

    def _look_after(self) -> None:
        for ended in self._workers.look_after():
            self._say(f"        {ended}")

    def _wait_until_committed(self, offsets: OffsetPoller, count: int, seconds: float) -> None:
        def committed() -> bool:
            self._look_after()
            return offsets.total >= count

        wait_until(committed, f"the commit of {count} inputs", seconds)

    def _catch_up(self, offsets: OffsetPoller, total: int) -> None:
        """Let the workers process what is left."""
        try:
            self._wait_until_committed(offsets, total, CATCH_UP_SECONDS)
        except AssertionError as late:
            self._complaints.append(f"{late}; committed: {offsets.latest}")

    def _history(
        self, inputs: dict[int, list[int]], along: Reader, offsets: OffsetPoller
    ) -> History:
        servers, name = self._cluster.direct, self._pipeline.name
        self._settle()
        committed, uncommitted = (self._read(i) for i in ("read_committed", "read_uncommitted"))
        self._reach_end(along, "read_committed")
        for recorder in (along, offsets):
            recorder.finish()
        data = self._cluster.cluster.data_dir / "node-1" / "data"
        return History(
            inputs=inputs,
            committed=committed,
            concurrent=along.seen,
            uncommitted=uncommitted,
            written=[
                batch
                for side, topic in self._topics.items()
                for batch in outputs_in(data, topic, side)
            ],
            offsets_written=offsets_in(data, name, self._pipeline.source),
            polled=offsets.polled,
            journals=read_journals([w.fault_directory for w in self._pipeline.workers]),
            dead=read_dead_letters(servers, f"{name}.dead"),
            open_transactional_ids=open_transactional_ids(servers, name),
        )

    def _settle(self) -> None:
        """Wait until every marker is written; one that is still missing then is an anomaly."""

        def settled() -> bool:
            return self._ends("read_committed") == self._ends("read_uncommitted")

        try:
            wait_until(settled, "the last stable offsets at the ends")
        except AssertionError as hanging:
            self._complaints.append(str(hanging))

    def _ends(self, isolation: str) -> dict[tuple[str, int], int]:
        return ends_of(self._cluster.direct, list(self._topics.values()), PARTITIONS, isolation)

    def _read(self, isolation: str) -> list[Seen]:
        with Reader(self._cluster.direct, self._topics, PARTITIONS, isolation) as reader:
            self._reach_end(reader, isolation)
            reader.finish()
        return reader.seen

    def _reach_end(self, reader: Reader, isolation: str) -> None:
        ends = self._ends(isolation)

        def reached() -> bool:
            reader.require_alive()
            positions = reader.positions()
            return all(positions[partition] >= end for partition, end in ends.items())

        wait_until(reached, f"the {isolation} reader's end at {ends}")

    def _tracebacks(self) -> list[str]:
        return [
            f"a traceback in {worker.log_file}"
            for worker in [*self._pipeline.workers, *self._late.workers]
            if "Traceback" in worker.log
        ]


def _require_delivered(error: KafkaError | None, _: object) -> None:
    assert error is None, f"the feeder's number was not taken: {error}"
