"""Audits an application on a real cluster, at rest or while it runs.

1. read the committed positions C1 (stable ones)
2. derive the outputs of the input before C1: these must be there
3. take the ends E of the output topics, once every transaction is decided that was open at C1
4. read the committed positions C2: the outputs of the input from C1 to C2 may be there
5. read the output topics up to E and compare
6. where an output comes from no input before C2: derive what lies behind, to tell an output
   without its position from one that nothing explains

Every output that is visible before E belongs to a transaction that is decided by then, and the
positions of that transaction are at most C2, because reading them waits for it too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import cache

from eosframework.audit.compare import compare, match
from eosframework.audit.derive import OUTPUT_STEP, UNKNOWN_TIME, Derivation, dead_letter_topics
from eosframework.audit.digest import digest_of
from eosframework.audit.ledger import Ledger
from eosframework.audit.verdict import Verdict
from eosframework.config import KafkaSettings
from eosframework.errors import ClusterUnreachable, RunError, StartRefused
from eosframework.kafka.admin import ClusterAdmin
from eosframework.kafka.snapshot import Ranges, read_ranges
from eosframework.processing.failures import (
    HEADER_OFFSET,
    HEADER_PARTITION,
    HEADER_STEP,
    HEADER_TOPIC,
)
from eosframework.processing.ports import Message
from eosframework.records import Position, TopicPartition
from eosframework.topology.graph import Graph

OPEN_TRANSACTION_SECONDS = 90.0
"""How long to wait for transactions that were left open: brokers abort them by their timeout."""

Positions = dict[TopicPartition, int]
OnProgress = Callable[[str, int], None]
"""Told what is being read and how many of its records were so far."""


def audit_application(
    graph: Graph, settings: KafkaSettings, on_progress: OnProgress = lambda what, done: None
) -> Verdict:
    """Prove that each input record took effect exactly once, or count where not.

    The topology's functions run again over the input, so those with side effects repeat them.

    Raises:
        StartRefused: a topic is missing, or nothing was ever committed.
        RunError: a transaction stays open, or a record that was processed fails now.
        ClusterUnreachable: the cluster did not answer.
    """
    return _Audit(graph, settings, on_progress).run()


class _Audit:
    def __init__(self, graph: Graph, settings: KafkaSettings, on_progress: OnProgress) -> None:
        self._graph = graph
        self._settings = settings
        self._on_progress = on_progress
        self._admin = ClusterAdmin(settings)
        known = {topic for part in graph.sub_topologies for topic in part.sink_topics}
        self._has_broker_time = cache(self._ask_for_broker_time)
        self._derivation = Derivation(graph, self._has_broker_time)
        self._derivation.topics |= known
        self._expected, self._found = Ledger(), Ledger()
        self._notes: list[str] = []

    def run(self) -> Verdict:
        inputs = self._partitions(self._derivation.input_topics)
        starts = {p: first for p, (first, _) in self._admin.log_bounds(inputs).items()}
        committed = self._committed(inputs)
        self._find_refused(inputs)
        records = self._derive(_ranges(starts, committed), self._expected)
        required = len(self._expected)

        outputs = self._partitions(self._derivation.topics, may_be_missing=True)
        ends = self._settled_ends(outputs)
        now_committed = self._committed(inputs)
        self._derive(_ranges({**starts, **committed}, now_committed), self._expected)
        self._read_outputs(ends)

        matching = match(self._expected, self._found)
        ahead = None
        if matching.unexplained:
            ahead = Ledger()
            last = {p: end for p, (_, end) in self._admin.log_bounds(inputs).items()}
            self._derive_ahead(_ranges({**starts, **now_committed}, last), ahead)
        trimmed = self._note_trimmed(starts, outputs)
        return compare(
            self._expected,
            self._found,
            matching,
            input_records=records,
            required=required,
            ahead=ahead,
            input_trimmed=trimmed,
            notes=tuple(self._notes),
        )

    def _partitions(
        self, topics: Iterable[str], *, may_be_missing: bool = False
    ) -> list[TopicPartition]:
        partitions: list[TopicPartition] = []
        for topic, facts in self._admin.describe_topics(topics).items():
            partitions += [TopicPartition(topic, number) for number in range(facts.partitions)]
            if facts.exists:
                continue
            if not may_be_missing:
                raise StartRefused(
                    f"input topic {topic!r} does not exist at "
                    f"{self._settings.bootstrap_servers}; there is nothing to audit. "
                    f"Correct kafka.bootstrap_servers or the topology"
                )
            self._notes.append(f"topic {topic} does not exist")
        return partitions

    def _committed(self, inputs: list[TopicPartition]) -> Positions:
        positions = {
            position.topic_partition: position.offset
            for position in self._stable_positions(inputs)
            if position.offset is not None
        }
        if not positions:
            topics = ", ".join(self._derivation.input_topics)
            raise StartRefused(
                f"group {self._graph.application!r} has no committed position for {topics}: "
                f"nothing was processed, or the positions have expired "
                f"(offsets.retention.minutes). There is nothing to audit"
            )
        return positions

    def _stable_positions(self, inputs: list[TopicPartition]) -> list[Position]:
        """Return positions once no transaction can move them that is open now."""
        application = self._graph.application
        deadline = time.monotonic() + OPEN_TRANSACTION_SECONDS
        while True:
            try:
                return self._admin.committed(application, inputs)
            except ClusterUnreachable:
                self._admin.committed(application, inputs, stable=False)
                if time.monotonic() > deadline:
                    raise RunError(
                        f"a transaction of {application!r} has held its positions open for more "
                        f"than {OPEN_TRANSACTION_SECONDS:g} s. Start the application's workers, "
                        f"or abort it (kafka-transactions.sh abort)"
                    ) from None
                self._on_progress("waiting for an open transaction that holds positions", 0)

    def _ask_for_broker_time(self, topic: str) -> bool:
        setting = self._admin.topic_setting([topic], "message.timestamp.type")
        return setting.get(topic) == "LogAppendTime"

    def _find_refused(self, inputs: list[TopicPartition]) -> None:
        """Learn from the dead letters whose outputs were refused: functions cannot tell."""
        topics = self._admin.describe_topics(dead_letter_topics(self._graph))
        partitions = [
            TopicPartition(topic, number)
            for topic, facts in topics.items()
            for number in range(facts.partitions)
        ]
        known = set(inputs)
        for _, messages in self._read(self._admin.log_bounds(partitions), "dead letters"):
            for message in messages:
                headers = dict(message.headers() or ())
                if headers.get(HEADER_STEP) != OUTPUT_STEP.encode():
                    continue
                topic = (headers.get(HEADER_TOPIC) or b"").decode()
                number = int(headers.get(HEADER_PARTITION) or -1)
                if TopicPartition(topic, number) in known:
                    offset = int(headers.get(HEADER_OFFSET) or -1)
                    self._derivation.refused.add((topic, number, offset))

    def _derive(self, ranges: Ranges, into: Ledger) -> int:
        records = 0
        for partition, messages in self._read(ranges, "input"):
            self._derivation.derive(partition, messages, into)
            records += len(messages)
        return records

    def _derive_ahead(self, ranges: Ranges, into: Ledger) -> None:
        """Derive what was not processed yet, up to a record that fails: it ends its partition."""
        stopped: set[TopicPartition] = set()
        for partition, messages in self._read(ranges, "input ahead"):
            if partition in stopped:
                continue
            try:
                self._derivation.derive(partition, messages, into)
            except RunError:
                stopped.add(partition)

    def _settled_ends(self, outputs: list[TopicPartition]) -> Positions:
        """Return ends behind everything that was written by now, decided transactions only."""
        written = self._admin.high_watermarks(outputs)
        deadline = time.monotonic() + OPEN_TRANSACTION_SECONDS
        while True:
            ends = {p: end for p, (_, end) in self._admin.log_bounds(outputs).items()}
            behind = [p for p in outputs if ends[p] < written[p]]
            if not behind:
                return ends
            if time.monotonic() > deadline:
                raise RunError(
                    f"a transaction on {behind[0]} has been open since offset {ends[behind[0]]} "
                    f"for more than {OPEN_TRANSACTION_SECONDS:g} s, and readers stop there. Start "
                    f"the application's workers, or abort it (kafka-transactions.sh abort)"
                )
            self._on_progress(f"waiting for an open transaction on {behind[0]}", 0)
            time.sleep(0.2)

    def _read_outputs(self, ends: Positions) -> None:
        starts = {p: first for p, (first, _) in self._admin.log_bounds(list(ends)).items()}
        for partition, messages in self._read(_ranges(starts, ends), "output"):
            by_broker = self._has_broker_time(partition.topic)
            for message in messages:
                digest = digest_of(
                    partition.topic,
                    message.key(),
                    message.value(),
                    UNKNOWN_TIME if by_broker else message.timestamp()[1],
                    message.headers(),
                )
                self._found.add(partition, message.offset(), digest)

    def _read(self, ranges: Ranges, what: str) -> Iterable[tuple[TopicPartition, list[Message]]]:
        done = 0
        for partition, messages in read_ranges(self._settings, ranges):
            yield partition, messages
            done += len(messages)
            self._on_progress(what, done)

    def _note_trimmed(self, starts: Positions, outputs: list[TopicPartition]) -> bool:
        """Note which logs have lost their first records; tell whether an input has."""
        trimmed = {p: first for p, first in starts.items() if first > 0}
        firsts = {p: first for p, (first, _) in self._admin.log_bounds(outputs).items() if first}
        for partition, first in (trimmed | firsts).items():
            self._notes.append(f"{partition} begins at offset {first}: earlier records are gone")
        return bool(trimmed)


def _ranges(starts: Positions, ends: Positions) -> Ranges:
    """Return the ranges from `starts`, or the log's first offset where there is none, to `ends`."""
    return {p: (starts.get(p, 0), end) for p, end in ends.items()}
