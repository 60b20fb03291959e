"""Cluster reads of an audit: log bounds, positions and committed records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

from eosframework.application.control_log import ControlLog
from eosframework.application.job_ranges import job_ranges
from eosframework.application.replay_marks import Marks, ReplayMarks
from eosframework.config import KafkaSettings
from eosframework.errors import ClusterUnreachable, RunError, StartRefused
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.consumer.range_reader import Batch, Ranges, read_ranges
from eosframework.operations.audit.processed_input import ProcessedInput, processed_input
from eosframework.records import Position, TopicPartition, partitions_of

OPEN_TRANSACTION_SECONDS = 90.0
"""Longest wait for an open transaction; brokers abort it after its timeout."""

Positions = dict[TopicPartition, int]
OnProgress = Callable[[str, int], None]
"""Called with the name of the topics being read and the number of records read so far."""


class Logs:
    """The topics of one application and the committed offsets of its group.

    Args:
        application: name of the application and of its group.
        inputs: input topics.
        settings: connection to the cluster.
        on_progress: see `OnProgress`.
    """

    def __init__(
        self,
        application: str,
        inputs: Iterable[str],
        settings: KafkaSettings,
        on_progress: OnProgress,
    ) -> None:
        self._application = application
        self._input_topics = sorted(inputs)
        self._settings = settings
        self._on_progress = on_progress
        self._broker_time: dict[str, bool] = {}
        self.admin = ClusterAdmin(settings)
        self._control = ControlLog(
            application, settings, self.admin, settle_seconds=OPEN_TRANSACTION_SECONDS
        )

    @cached_property
    def inputs(self) -> list[TopicPartition]:
        """The partitions of the input topics.

        Raises:
            StartRefused: a topic does not exist.
        """
        found, missing = self.partitions(self._input_topics)
        if missing:
            raise StartRefused(
                f"input topic {missing[0]!r} does not exist at "
                f"{self._settings.bootstrap_servers}; there is nothing to audit. "
                f"Correct kafka.bootstrap_servers or the topology"
            )
        return found

    def partitions(self, topics: Iterable[str]) -> tuple[list[TopicPartition], list[str]]:
        """Return the partitions of the topics that exist, and the names of the others."""
        described = self.admin.describe_topics(topics)
        partitions = partitions_of({topic: it.partitions for topic, it in described.items()})
        return partitions, [topic for topic, facts in described.items() if not facts.exists]

    def replayed(self, topics: Iterable[str]) -> Mapping[TopicPartition, Marks]:
        """Return the dead letters that were replayed, by partition."""
        facts = self.admin.describe_topics(topics)
        ids = {name: found.topic_id for name, found in facts.items() if found.exists}
        return ReplayMarks(self._control).decided(ids) if ids else {}

    def has_broker_time(self, topic: str) -> bool:
        """Return whether the broker sets the timestamps of a topic."""
        if topic not in self._broker_time:
            setting = self.admin.topic_setting([topic], "message.timestamp.type")
            self._broker_time[topic] = setting.get(topic) == "LogAppendTime"
        return self._broker_time[topic]

    def compacted(self, topics: Iterable[str]) -> list[str]:
        """Return the topics with log compaction, which keep only the last record of each key."""
        policies = self.admin.topic_setting(topics, "cleanup.policy")
        return [topic for topic, policy in policies.items() if "compact" in (policy or "")]

    def bounds(self, partitions: Sequence[TopicPartition]) -> Ranges:
        """Return the first offset and the last stable one of each partition."""
        return self.admin.log_bounds(partitions)

    def firsts(self, partitions: Sequence[TopicPartition]) -> Positions:
        """Return the first offset that is still in the log of each partition."""
        return {p: first for p, (first, _) in self.bounds(partitions).items()}

    def stable_ends(self, partitions: Sequence[TopicPartition]) -> Positions:
        """Return the last stable offset of each partition."""
        return {p: end for p, (_, end) in self.bounds(partitions).items()}

    def processed(self) -> ProcessedInput:
        """Return the processed input, by positions that no open transaction can change.

        Raises:
            StartRefused: nothing was processed, or the application reads no topic.
        """
        if not self._input_topics:
            raise StartRefused(
                f"application {self._application!r} writes to no topic; there is nothing to audit"
            )
        # 1. the committed offsets are read, and there are none  2. a cutover commits some  3. the
        # jobs are read, and one is cut over: its progress counts. In the other order it would
        # count as a job alongside live workers.
        positions = {
            position.topic_partition: position
            for position in self._stable_positions()
            if position.offset is not None
        }
        jobs = [one for one in job_ranges(self._control) if one.partition in self.inputs]
        if not positions and not jobs:
            raise StartRefused(
                f"group {self._application!r} has no committed position for "
                f"{', '.join(self._input_topics)}: nothing was processed, or the positions have "
                f"expired (offsets.retention.minutes), and there is no backfill job. There is "
                f"nothing to audit"
            )
        return processed_input(positions, jobs)

    def _stable_positions(self) -> list[Position]:
        inputs = self.inputs
        deadline = time.monotonic() + OPEN_TRANSACTION_SECONDS
        while True:
            try:
                return self.admin.committed(self._application, inputs)
            except ClusterUnreachable:
                # Unavailable brokers fail here too; an open transaction delays stable reads only.
                self.admin.committed(self._application, inputs, stable=False)
                if time.monotonic() > deadline:
                    raise RunError(
                        f"a transaction of {self._application!r} has held its positions open for "
                        f"more than {OPEN_TRANSACTION_SECONDS:g} s. Start the application's "
                        f"workers, or end it (`eosframework txn hanging`)"
                    ) from None
                self._on_progress("waiting for an open transaction that holds positions", 0)

    def settled_ends(self, outputs: list[TopicPartition]) -> Positions:
        """Return end offsets past every record written by now, once all transactions are decided.

        Raises:
            RunError: a transaction stays open.
        """
        # 1. the ends are read  2. workers write more. Only what was written by 1 has to be
        # decided, so this ends although some transaction is open at every moment.
        written = self.admin.high_watermarks(outputs)
        deadline = time.monotonic() + OPEN_TRANSACTION_SECONDS
        while True:
            ends = self.stable_ends(outputs)
            behind = [p for p in outputs if ends[p] < written[p]]
            if not behind:
                return ends
            if time.monotonic() > deadline:
                raise RunError(
                    f"a transaction on {behind[0]} has been open since offset {ends[behind[0]]} "
                    f"for more than {OPEN_TRANSACTION_SECONDS:g} s, and readers stop there. Start "
                    f"the application's workers, or end it (`eosframework txn hanging`)"
                )
            self._on_progress(f"waiting for an open transaction on {behind[0]}", 0)
            time.sleep(0.2)

    def read(self, ranges: Ranges, what: str) -> Iterable[Batch]:
        """Yield the records of each range that a `read_committed` reader sees, in offset order."""
        done = 0
        for partition, messages in read_ranges(self._settings, ranges):
            yield partition, messages
            done += len(messages)
            self._on_progress(what, done)
