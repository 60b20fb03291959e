"""The dead letters of an application, read from their topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eosframework.application.context import ApplicationContext
from eosframework.application.replay_marks import Marks, Range
from eosframework.config import KafkaSettings
from eosframework.errors import ConfigurationError, PositionLost, RunError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import TopicDescription
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.operations.dead_letters.dead_letter import DeadLetter
from eosframework.operations.dead_letters.selection import DeadLetterPlace
from eosframework.processing.ports import Message
from eosframework.records import TopicPartition
from eosframework.topology.graph.walk import dead_letter_topics

ReplayedByPartition = Mapping[TopicPartition, Marks]
"""Replayed dead letters, by partition of a dead-letter topic."""


@dataclass(slots=True)
class Group:
    """Dead letters with the same topic, input, step and error type.

    Args:
        topic: dead-letter topic.
        input: source topic of their records.
        kind: type of the error.
        example: the newest one.
        replayed: number of replayed ones.
        first_at: time of the first failure, in milliseconds since the epoch; None: unknown.
        last_at: time of the last failure.
    """

    topic: str
    input: str
    step: str
    kind: str
    example: DeadLetter
    count: int = 0
    replayed: int = 0
    first_at: int | None = None
    last_at: int | None = None

    def add(self, letter: DeadLetter, *, is_replayed: bool) -> None:
        """Count a dead letter."""
        self.count += 1
        self.replayed += is_replayed
        at = letter.failed_at
        if at is not None:
            self.first_at = at if self.first_at is None else min(at, self.first_at)
            self.last_at = at if self.last_at is None else max(at, self.last_at)
        if (at or 0) >= (self.example.failed_at or 0):
            self.example = letter

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return {
            "topic": self.topic,
            "input": self.input,
            "step": self.step,
            "error_type": self.kind,
            "error": self.example.error,
            "example": self.example.place,
            "count": self.count,
            "replayed": self.replayed,
            "first_failed_at": self.first_at,
            "last_failed_at": self.last_at,
        }


class RecordGone(RunError):
    """A dead letter has not all of its record, and the source has it no longer."""


def foreign_text(foreign: Mapping[str, int]) -> str:
    """Return a text about records in dead-letter topics that other programs wrote."""
    counts = ", ".join(f"{count} in {topic}" for topic, count in sorted(foreign.items()))
    return (
        f"records of other programs: {counts}; they are neither listed nor replayed. Kafka Streams "
        f"writes dead letters with the same headers, without __eos.errors.step"
    )


def dead_letters_of(context: ApplicationContext) -> DeadLetters:
    """Return the reader of an application's dead letters; nothing is requested yet."""
    return DeadLetters(dead_letter_topics(context.graph), context.settings.kafka, context.admin)


class DeadLetters:
    """The dead letters of an application.

    Args:
        topics: dead-letter topics.
        settings: connection to the cluster.
        admin: admin client of the same cluster.
    """

    def __init__(self, topics: Iterable[str], settings: KafkaSettings, admin: ClusterAdmin) -> None:
        self.topics = sorted(topics)
        self.foreign = Counter[str]()
        """By topic, the records that were read and are no dead letters of this framework."""
        self._settings = settings
        self._admin = admin

    @property
    def topic_ids(self) -> dict[str, str]:
        """Topic ids by name, of the topics that exist."""
        return {name: found.topic_id for name, found in self._facts.items()}

    def batches(
        self, only: TopicPartition | None = None
    ) -> Iterator[tuple[TopicPartition, list[tuple[DeadLetter, Range]]]]:
        """Yield the current dead letters, those of a partition in offset order.

        Each comes with the offset range to mark when it is replayed: from the offset after the
        previous record on.

        Args:
            only: this partition; None: all.

        Raises:
            ClusterUnreachable: the cluster did not answer.
        """
        partitions = self._partitions if only is None else [only]
        ranges = self._admin.log_bounds(partitions)
        read_to: dict[TopicPartition, int] = {}
        for partition, messages in read_ranges(self._settings, ranges):
            letters: list[tuple[DeadLetter, Range]] = []
            for message in messages:
                end = message.offset() + 1
                letter = DeadLetter.parse(message)
                if letter is None:
                    self.foreign[partition.topic] += 1
                else:
                    letters.append((letter, (read_to.get(partition, end - 1), end)))
                read_to[partition] = end
            yield partition, letters

    def groups(self, marked: ReplayedByPartition) -> list[Group]:
        """Return the dead letters in groups, by topic, largest group first.

        Raises:
            ClusterUnreachable: the cluster did not answer.
        """
        groups: dict[tuple[str, str, str, str], Group] = {}
        for partition, letters in self.batches():
            marks = marked.get(partition)
            for letter, _ in letters:
                named = (partition.topic, letter.origin.topic, letter.step, letter.kind)
                group = groups.setdefault(named, Group(*named, example=letter))
                group.add(letter, is_replayed=marks is not None and letter.offset in marks)
        return sorted(groups.values(), key=lambda group: (group.topic, -group.count, group.step))

    def find(self, place: DeadLetterPlace) -> DeadLetter:
        """Return one dead letter.

        Raises:
            ConfigurationError: it does not exist.
            ClusterUnreachable: the cluster did not answer.
        """
        if place.partition in self._partitions:
            for _, letters in self.batches(place.partition):
                for letter, _ in letters:
                    if place.covers(letter):
                        return letter
        others = "" if not self.foreign else f" ({foreign_text(self.foreign)})"
        raise ConfigurationError(
            f"there is no dead letter {place.partition}@{place.first}{others}; `eosframework "
            f"dead-letters list APP` names one of each kind"
        )

    def whole(self, letter: DeadLetter) -> DeadLetter:
        """Return a dead letter with its whole record, read from its source if need be.

        Raises:
            RecordGone: the source has another record there, or none.
            ClusterUnreachable: the cluster did not answer.
        """
        found = letter.restored(None)
        found = found or letter.restored(self._record(letter.origin, letter.origin_offset))
        if found is None:
            lacks = letter.left_out or "a value that is damaged"
            raise RecordGone(
                f"dead letter {letter.place} cannot be replayed: it has not all of its record "
                f"({lacks}), and {letter.input} is no longer that record (retention, compaction, "
                f"or a topic that was recreated). Send the record again from where it came from"
            )
        return found

    def _record(self, partition: TopicPartition, offset: int) -> Message | None:
        topic = self._admin.describe_topics([partition.topic])[partition.topic]
        if not topic.exists or not 0 <= partition.partition < topic.partitions:
            return None
        first, end = self._admin.log_bounds([partition])[partition]
        if not first <= offset < end:
            return None
        try:
            for _, messages in read_ranges(self._settings, {partition: (offset, offset + 1)}):
                return messages[0]
        except PositionLost:
            pass
        return None

    @cached_property
    def _facts(self) -> dict[str, TopicDescription]:
        described = self._admin.describe_topics(self.topics)
        return {name: found for name, found in described.items() if found.exists}

    @cached_property
    def _partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(name, number)
            for name, found in self._facts.items()
            for number in range(found.partitions)
        ]
