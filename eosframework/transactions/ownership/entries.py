"""Entries of the ownership topic, and their form.

    key     SUB_TOPOLOGY/PARTITION/TOKEN
    value   {"id": TRANSACTIONAL_ID, "topics": [SOURCE, ...]}

A token is used for one takeover of one task, so two entries never have one key, and a removal that
arrives late deletes no other entry. The order of entries is that of their offsets. Two entries are
about the same input if they share a partition of a source topic: the sub-topology may have had
another name before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import orjson
import structlog

from eosframework.errors import RunError, TopologyError
from eosframework.records import TopicPartition
from eosframework.txnid import refuse_bad_id

Stored = Mapping[bytes, tuple[int, bytes]]
"""The records of the topic by key, without removed ones: offset and value."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of one takeover of one task.

    Args:
        sub_topology: of the task.
        partition: number of the task's partitions.
        topics: source topics of the task, sorted.
        transactional_id: of the producer that writes for the task.
        token: identifies the takeover.
    """

    sub_topology: str
    partition: int
    topics: tuple[str, ...]
    transactional_id: str
    token: str

    @property
    def key(self) -> bytes:
        """The record's key."""
        return f"{self.sub_topology}/{self.partition}/{self.token}".encode()

    @property
    def value(self) -> bytes:
        """The record's value."""
        return orjson.dumps({"id": self.transactional_id, "topics": self.topics})

    @property
    def inputs(self) -> list[TopicPartition]:
        """The source partitions of the task."""
        return [TopicPartition(topic, self.partition) for topic in self.topics]


@dataclass(frozen=True, slots=True)
class Entry:
    """A claim in the log.

    Args:
        offset: its place in the order of entries.
    """

    claim: Claim
    offset: int


def parse(stored: Stored, topic: str) -> list[Entry]:
    """Return the entries of the topic.

    A record under a key of another form is none of the application's, and is reported.

    Args:
        stored: the records.
        topic: name of the topic, for messages.

    Raises:
        RunError: the value of an entry cannot be read, so an id that may write is unknown.
    """
    entries: list[Entry] = []
    for key, (offset, value) in stored.items():
        try:
            sub_topology, number, token = key.decode().split("/")
            partition = int(number)
        except ValueError:
            structlog.get_logger("eosframework.kafka").warning(
                "ownership_entry_passed_over", record=f"{topic}[0]@{offset}", key=repr(key)[:80]
            )
            continue
        try:
            fields = orjson.loads(value)
            id_, topics = fields["id"], fields["topics"]
            if not isinstance(id_, str) or not _are_names(topics):
                raise TypeError("expected the text 'id' and the list of texts 'topics'")
            refuse_bad_id(id_)
        except (ValueError, KeyError, TypeError, TopologyError) as error:
            raise RunError(
                f"entry {key.decode()!r:.80} of the ownership topic cannot be read ({topic}[0]@"
                f"{offset}, {type(error).__name__}: {error}): its value {value!r:.80} was not "
                f"written by eosframework, so a transactional id that may write for the partition "
                f"is unknown. Stop all workers of the application, write a record with this key "
                f"and no value, and allow only the application to write to the topic"
            ) from error
        entries.append(Entry(Claim(sub_topology, partition, tuple(topics), id_, token), offset))
    return entries


def by_input(entries: Iterable[Entry]) -> dict[TopicPartition, list[Entry]]:
    """Return the entries by each source partition that they are about."""
    found: dict[TopicPartition, list[Entry]] = {}
    for entry in entries:
        for partition in entry.claim.inputs:
            found.setdefault(partition, []).append(entry)
    return found


def _are_names(topics: Any) -> bool:
    if not isinstance(topics, list):
        return False
    return all(isinstance(topic, str) for topic in cast("list[Any]", topics))
