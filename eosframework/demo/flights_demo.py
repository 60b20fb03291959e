"""The flights demo from its first line to its verdict.

1. start a real broker in its own directory, and create the topics
2. start the witness: a `read_committed` reader that runs until the end
3. start two workers under their supervisor
4. feed the flights, and meanwhile kill workers at random moments
5. wait until the last flight is committed, and stop the workers
6. compare the records that the witness saw with the current ones, and audit

The witness: a `read_committed` reader that runs all the time, while transactions abort.
It must have seen the same records at the same offsets as a reader at the end.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from rich.console import Console

from eosframework.config import KafkaSettings
from eosframework.demo.feeds import FlightFeed, example_file
from eosframework.demo.services import Background, Workers, hold_points, kill_points
from eosframework.demo.stage import PARTITIONS, Bars, Demo, Outcome, Plan, Stage, open_stage
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.client.plain_writes import feed
from eosframework.kafka.consumer.range_reader import Ranges, follow, read_ranges
from eosframework.operations.audit import audit_application
from eosframework.operations.audit.output_comparison import digest_of
from eosframework.records import TopicPartition, partitions_of
from eosframework.topology.graph.graph import Graph
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve
from eosframework.transactions.ports import Message

_FINISH_SECONDS = 20.0


@dataclass(slots=True)
class _Seen:
    """The records read from one partition: number, last offset, and a fingerprint."""

    records: int = 0
    last_offset: int = -1
    chain: Any = field(default_factory=lambda: blake2b(digest_size=16))

    def add(self, topic: str, messages: Sequence[Message]) -> None:
        """Add the next messages of the partition."""
        for message in messages:
            digest = digest_of(
                topic,
                message.key(),
                message.value(),
                message.timestamp()[1],
                message.headers(),
            )
            self.chain.update(message.offset().to_bytes(8, "big") + digest)
        self.records += len(messages)
        self.last_offset = messages[-1].offset()

    @property
    def fingerprint(self) -> tuple[int, int, bytes]:
        """Equal for equal records at equal offsets."""
        return self.records, self.last_offset, self.chain.digest()


class _Witness(Background):
    """Reads partitions on its own thread from `start` to `stop`."""

    def __init__(self, settings: KafkaSettings, partitions: Iterable[TopicPartition]) -> None:
        super().__init__("eos-witness", [self._follow])
        self._settings = settings
        self._seen = {partition: _Seen() for partition in partitions}

    @property
    def records(self) -> int:
        """Number of records seen so far."""
        return sum(seen.records for seen in self._seen.values())

    def records_by_topic(self) -> dict[str, int]:
        """Return the number of records seen so far, by topic."""
        counts: Counter[str] = Counter()
        for partition, seen in self._seen.items():
            counts[partition.topic] += seen.records
        return dict(counts)

    def differences(self, ends: Ranges) -> list[str]:
        """Read everything again from the start, and stop.

        Args:
            ends: the whole of each partition.

        Returns:
            One line for each partition that differs from the records seen live.
        """
        final = {partition: _Seen() for partition in self._seen}
        for partition, messages in read_ranges(self._settings, ends):
            final[partition].add(partition.topic, messages)
        deadline = time.monotonic() + _FINISH_SECONDS
        while time.monotonic() < deadline and self._is_behind(final):
            self.stopping.wait(0.05)
        self.stop()
        self.require_running()
        return [
            f"{partition}: {seen.records:,} records up to offset {seen.last_offset} while it was "
            f"written, {final[partition].records:,} up to {final[partition].last_offset} now"
            for partition, seen in self._seen.items()
            if seen.fingerprint != final[partition].fingerprint
        ]

    def _is_behind(self, final: dict[TopicPartition, _Seen]) -> bool:
        return self.error is None and any(
            self._seen[partition].last_offset < seen.last_offset
            for partition, seen in final.items()
        )

    def _follow(self) -> None:
        for partition, messages in follow(self._settings, self._seen, self.stopping.is_set):
            self._seen[partition].add(partition.topic, messages)


_PROCESSES = 2
_LOOK_SECONDS = 0.5
_CATCH_UP_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightsPlan(Plan):
    """The parameters of the demo.

    Args:
        kills: number of workers to kill.
        records_per_second: feed rate.
        flights: number of flights. None: all.
    """

    kills: int
    records_per_second: int
    flights: int | None = None


def run_demo(plan: FlightsPlan, console: Console) -> Outcome:
    """Run the demo, report on `console`, and leave no process running, whatever the outcome.

    Raises:
        ComponentFailed: the broker or the workers ended by themselves.
        RunError: the workers did not process the input in time.
        KeyboardInterrupt: SIGINT or SIGTERM came; everything has been stopped.
    """
    title = "Real flights through real Kafka, while the workers are killed"
    with open_stage(console, title, planned_kills=plan.kills, keep=plan.keep) as stage:
        return _FlightsDemo(plan, stage).run()


class _FlightsDemo(Demo[FlightsPlan]):
    def __init__(self, plan: FlightsPlan, stage: Stage) -> None:
        super().__init__(plan, stage)
        self._log_file = stage.directory / "workers.log"
        self._topology = example_file("flights", "topology.yaml")
        self._graph: Graph = resolve(load_app(str(self._topology)))
        part = self._graph.sub_topologies[0]
        self._source = part.sources[0].topic
        self._inputs = partitions_of({self._source: PARTITIONS})
        self._outputs = partitions_of(dict.fromkeys(part.sink_topics, PARTITIONS))
        cluster = stage.start_kafka("kafka")
        self._settings = stage.create_topics(cluster, sorted({self._source, *part.sink_topics}))
        self._admin = ClusterAdmin(self._settings)
        self._flights = FlightFeed(plan.flights, plan.seed)
        self._kill_points = kill_points(len(self._flights), plan.kills, self._chance)
        self._hold_points = hold_points(len(self._flights), self._kill_points)
        self._processed = 0
        self._due = 0.0

    def run(self) -> Outcome:
        witness = _Witness(self._settings, self._outputs)
        with ExitStack() as cleanup:
            witness.start()
            cleanup.callback(witness.stop)
            self._story.say("a read_committed reader watches every output from now on")
            workers = Workers(
                self._topology, self._settings.bootstrap_servers, _PROCESSES, self._log_file
            )
            cleanup.callback(workers.end)
            self._story.say(
                f"{_PROCESSES} workers start; {self._plan.kills} kills are planned "
                f"(--seed {self._plan.seed})"
            )
            with self._story.bars(len(self._flights), "fed", "committed", "visible") as bars:
                self._feed(workers, witness, bars)
                self._catch_up(workers, witness, bars)
            self._stop(workers)
            return self._judge(workers, witness)

    def _feed(self, workers: Workers, witness: _Witness, bars: Bars) -> None:
        flights = self._flights
        self._story.say(
            f"{flights.flights:,} flights and {flights.broken} broken records go in, "
            f"{self._plan.records_per_second:,} a second"
        )

        def on_turn(fed: int) -> None:
            self._stage.check()
            if self._is_due(fed, self._kill_points):
                self._kill(workers)
            if self._is_due(fed, self._hold_points):
                self._hold(workers)
            self._look(workers, witness, bars, fed)

        feed(
            self._settings,
            self._source,
            flights,
            records_per_second=self._plan.records_per_second,
            on_turn=on_turn,
        )

    def _is_due(self, fed: int, points: Sequence[int]) -> bool:
        """Return whether the next kill is not done at its point."""
        kills = self._stage.kills
        return kills < self._plan.kills and fed >= points[kills]

    def _kill(self, workers: Workers) -> None:
        """Kill one worker, or none while each of them is starting."""
        self._stage.record_kill(workers.kill_one(self._chance))

    def _hold(self, workers: Workers) -> None:
        """Let the input wait until a worker has been killed.

        Workers that start slowly could otherwise process all that is left before the last kill.
        """
        planned = self._stage.kills + 1
        self._stage.wait(
            lambda: self._stage.kills == planned,
            lambda: self._kill(workers),
            seconds=_CATCH_UP_SECONDS,
            pause_seconds=0.1,
            late=lambda: (
                f"kill {planned} was not done: no worker had tasks for {_CATCH_UP_SECONDS:g} s; "
                f"see {self._log_file}"
            ),
        )

    def _look(self, workers: Workers, witness: _Witness, bars: Bars, fed: int) -> None:
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + _LOOK_SECONDS
        workers.require_running()
        positions = self._admin.committed(self._graph.application, self._inputs, stable=False)
        self._processed = sum(position.offset or 0 for position in positions)
        bars.show(fed, self._processed, witness.records)

    def _catch_up(self, workers: Workers, witness: _Witness, bars: Bars) -> None:
        """Wait until the end offset of every input partition is committed."""
        self._stage.wait(
            lambda: self._processed >= len(self._flights),
            lambda: self._look(workers, witness, bars, len(self._flights)),
            seconds=_CATCH_UP_SECONDS,
            pause_seconds=0.1,
            late=lambda: (
                f"{self._processed:,} of {len(self._flights):,} records were committed "
                f"{_CATCH_UP_SECONDS:g} s after the last was fed; see {self._log_file}"
            ),
        )

    def _stop(self, workers: Workers) -> None:
        workers.stop()
        self._story.say("every record is committed; the workers were asked to stop, and did")

    def _judge(self, workers: Workers, witness: _Witness) -> Outcome:
        self._stage.check()
        differences = witness.differences(self._admin.log_bounds(self._outputs))
        if differences:
            self._story.say("the reader that watched all the time saw something else:")
            for line in differences:
                self._story.plain(f"          {line}")
        else:
            self._story.say(
                f"the reader that watched all the time saw the {witness.records:,} records "
                f"that are there now, and no others"
            )
            for topic, count in sorted(witness.records_by_topic().items()):
                self._story.plain(f"          {topic:<18}{count:>9,}")
        verdict = audit_application(
            self._graph, self._settings, lambda what, done, total: self._stage.check()
        )
        self._story.say(
            "audit: the functions ran again over the input, and the outputs were compared"
        )
        for name, count in verdict.counts().items():
            self._story.plain(f"          {name:<11}{count:>9,}")
        for detail in verdict.details[:20]:
            self._story.plain(f"          {detail.kind}: {detail.text}")
        return self._stage.conclude(
            verdict.counts(),
            is_right=verdict.clean and not differences,
            deaths_seen=workers.deaths_seen(),
            good=f"{self._stage.kills} workers killed, and each record took effect exactly once",
            bad="NOT exactly once",
        )
