"""Reads the dead letters of an application from their topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from eosframework.application.replay_marks import Marks, Range
from eosframework.config import KafkaSettings
from eosframework.errors import ConfigurationError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import TopicFacts
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.operations.dead_letters.dead_letter import Letter
from eosframework.operations.dead_letters.selection import LetterPlace
from eosframework.records import TopicPartition

Marked = Mapping[TopicPartition, Marks]
"""By partition of a dead-letter topic, what was replayed of it."""


@dataclass(slots=True)
class Group:
    """Letters that have topic, input, step and type of error in common.

    Args:
        topic: dead-letter topic.
        input: topic that their records came from.
        kind: type of the error.
        example: the newest one.
        replayed: how many of them were replayed.
        first_at: when the first one failed, in milliseconds since the epoch; None: none says.
        last_at: likewise the last one.
    """

    topic: str
    input: str
    step: str
    kind: str
    example: Letter
    count: int = 0
    replayed: int = 0
    first_at: int | None = None
    last_at: int | None = None

    def add(self, letter: Letter, *, is_replayed: bool) -> None:
        """Count a letter."""
        self.count += 1
        self.replayed += is_replayed
        at = letter.failed_at
        if at is not None:
            self.first_at = at if self.first_at is None else min(at, self.first_at)
            self.last_at = at if self.last_at is None else max(at, self.last_at)
        if (at or 0) >= (self.example.failed_at or 0):
            self.example = letter


class Letters:
    """The dead letters of an application.

    Args:
        topics: that take them.
        settings: how to reach the cluster.
        admin: asks the same cluster.
    """

    def __init__(self, topics: Iterable[str], settings: KafkaSettings, admin: ClusterAdmin) -> None:
        self.topics = sorted(topics)
        self._settings = settings
        self._admin = admin

    @property
    def topic_ids(self) -> dict[str, str]:
        """The id of each topic that exists."""
        return {name: found.topic_id for name, found in self._facts.items()}

    def batches(
        self, only: TopicPartition | None = None
    ) -> Iterator[tuple[TopicPartition, list[tuple[Letter, Range]]]]:
        """Yield the letters there are now, those of a partition in the order of their offsets.

        Each comes with the offsets that are marked when it is replayed: from behind the record
        before it on.

        Args:
            only: of this partition; None: of all.

        Raises:
            ClusterUnreachable: nobody answered.
        """
        partitions = self._partitions if only is None else [only]
        ranges = self._admin.log_bounds(partitions)
        read_to: dict[TopicPartition, int] = {}
        for partition, messages in read_ranges(self._settings, ranges):
            letters: list[tuple[Letter, Range]] = []
            for message in messages:
                end = message.offset() + 1
                letter = Letter.parse(message)
                if letter is not None:
                    letters.append((letter, (read_to.get(partition, end - 1), end)))
                read_to[partition] = end
            yield partition, letters

    def groups(self, marked: Marked) -> list[Group]:
        """Return the letters grouped, the largest group first of each topic.

        Raises:
            ClusterUnreachable: nobody answered.
        """
        groups: dict[tuple[str, str, str, str], Group] = {}
        for partition, letters in self.batches():
            marks = marked.get(partition)
            for letter, _ in letters:
                named = (partition.topic, letter.origin.topic, letter.step, letter.kind)
                group = groups.setdefault(named, Group(*named, example=letter))
                group.add(letter, is_replayed=marks is not None and letter.offset in marks)
        return sorted(groups.values(), key=lambda group: (group.topic, -group.count, group.step))

    def find(self, place: LetterPlace) -> Letter:
        """Return one letter.

        Raises:
            ConfigurationError: there is none.
            ClusterUnreachable: nobody answered.
        """
        if place.partition in self._partitions:
            for _, letters in self.batches(place.partition):
                for letter, _ in letters:
                    if place.covers(letter):
                        return letter
        raise ConfigurationError(
            f"there is no dead letter {place.partition}@{place.first}; `eosframework dead-letters "
            f"list APP` names one of each kind"
        )

    @cached_property
    def _facts(self) -> dict[str, TopicFacts]:
        described = self._admin.describe_topics(self.topics)
        return {name: found for name, found in described.items() if found.exists}

    @cached_property
    def _partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(name, number)
            for name, found in self._facts.items()
            for number in range(found.partitions)
        ]
