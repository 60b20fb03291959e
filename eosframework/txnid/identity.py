"""The identity under which one task writes: `{application}-{sub-topology}-{partition}`.

Where ids are leased, a task keeps its name and writes under the id that it was given. Where tasks
share a producer, they write under one id that has the first and the last partition, such as `0..7`,
whether the topic has all of these or not.

A name has no `-`, so an id parses back into its three parts in one way only, and the ids of
an application are exactly those that start with its `prefix`: no second application's ids do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from eosframework.errors import ConfigurationError, TopologyError

NAME_LENGTH = 200
"""Longest name, in characters: `{application}.registry` has to fit a topic name (249)."""

NAME_CHARACTERS = "lower-case letters a-z, digits, '_' and '.'"

_NAME = re.compile(r"[a-z0-9_.]+")
_ID = re.compile(r"([a-z0-9_.]+)-([a-z0-9_.]+)-(0|[1-9][0-9]{0,9})(?:\.\.([1-9][0-9]{0,9}))?")

REGISTRY = "registry"
"""Sub-topology under which an application writes its registry topic."""

_RESERVED_PREFIXES = {
    "backfill.": "backfill jobs",
    "relay.": "outbox relays",
    "replay.": "replays of dead letters",
}


@dataclass(frozen=True, slots=True, order=True)
class TransactionalId:
    """The identity under which the outputs of one partition are written, on any worker.

    Args:
        application: name of the application.
        sub_topology: name of the connected part of its topology.
        partition: the input partition, from 0.
        leased: the leased id; None: the id is derived from the other fields.
        partitions_per_producer: how many partitions share an id. Ids for different numbers never
            coincide, so workers before and after a change never fence each other by accident.

    Raises:
        TopologyError: a name does not match the grammar, or the partition is negative.
    """

    application: str
    sub_topology: str
    partition: int
    leased: str | None = None
    partitions_per_producer: int = 1

    def __post_init__(self) -> None:
        refuse_bad_name("application", self.application)
        refuse_bad_name("sub-topology", self.sub_topology)
        if self.partition < 0:
            raise TopologyError(
                f"partition {self.partition} of sub-topology {self.sub_topology!r} is negative; "
                f"partitions count from 0"
            )

    @classmethod
    def make(cls, application: str, sub_topology: str, partition: int) -> Self:
        """Return the id of one partition of a sub-topology."""
        return cls(application, sub_topology, partition)

    @classmethod
    def backfill(cls, application: str, job: str, partition: int) -> Self:
        """Return the id of one partition of a backfill job."""
        return cls(application, f"backfill.{job}", partition)

    @classmethod
    def relay(cls, application: str, name: str, partition: int = 0) -> Self:
        """Return the id of an outbox relay."""
        return cls(application, f"relay.{name}", partition)

    @classmethod
    def replay(cls, application: str) -> Self:
        """Return the id of replays of dead letters, of which there is one at a time."""
        return cls(application, "replay.letters", 0)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the task whose derived id `text` is: `str(parse(text)) == text`.

        For an id that several tasks share, this is the first of them.

        Raises:
            ConfigurationError: the text is not an id of this grammar.
        """
        match = _ID.fullmatch(text)
        if match is None:
            raise ConfigurationError(
                f"transactional id {text!r} is not APPLICATION-SUBTOPOLOGY-PARTITION, for "
                f"example 'flights-late-0': each name of {NAME_CHARACTERS}, then the number of a "
                f"partition, or the first and the last of those that share a producer: '0..7'"
            )
        application, sub_topology, first, last = match.groups()
        together = 1 if last is None else int(last) - int(first) + 1
        try:
            task = cls(application, sub_topology, int(first), None, max(1, together))
        except TopologyError as error:
            raise ConfigurationError(
                f"transactional id {text!r:.300} belongs to no task: {error}"
            ) from None
        if str(task) != text:
            raise ConfigurationError(
                f"transactional id {text!r} belongs to no task: partitions {first} to {last} never "
                f"share a producer, because these start at a multiple of their number"
            )
        return task

    def __str__(self) -> str:
        if self.leased is not None:
            return self.leased
        return f"{self.application}-{self.sub_topology}-{self.numbers}"

    @property
    def numbers(self) -> str:
        """The partition, or the first and last partition of the producer group."""
        if self.partitions_per_producer == 1:
            return str(self.partition)
        first = first_of(self.partition, self.partitions_per_producer)
        return f"{first}..{first + self.partitions_per_producer - 1}"


def first_of(partition: int, partitions_per_producer: int) -> int:
    """Return the first partition of the producer group of `partition`."""
    return partition - partition % partitions_per_producer


def prefix(application: str) -> str:
    """Return the prefix that all derived ids of `application` have, and no others.

    Raises:
        TopologyError: the name does not match the grammar.
    """
    refuse_bad_name("application", application)
    return f"{application}-"


def registry_topic(application: str) -> str:
    """Return the topic in which an application keeps what has to outlast its offsets."""
    return f"{application}.{REGISTRY}"


def rows_topic(application: str, stream: str) -> str:
    """Return the topic through which a stream's rows go to the database."""
    return f"{application}.{stream}.rows"


def repartition_topic(application: str, name: str) -> str:
    """Return the topic through which records go to the task of their new key."""
    return f"{application}.{name}.repartition"


def retry_topic(application: str, source: str, delay: str) -> str:
    """Return the topic in which failed records of a source wait for their next attempt."""
    return f"{application}.{source}.retry.{delay}"


def replay_topic(application: str, source: str) -> str:
    """Return the topic from which dead letters of a source are processed again."""
    return f"{application}.{source}.replay"


def changelog_topic(application: str, store: str) -> str:
    """Return the topic that has every change of a store."""
    return f"{application}.{store}.changelog"


def tables_group(application: str) -> str:
    """Return the consumer group whose members share out what goes to tables."""
    return f"{application}.tables"


def refuse_bad_name(what: str, name: str) -> None:
    """Raise unless `name` can be part of a transactional id.

    Args:
        what: the kind of thing named, for the message.
        name: the name.

    Raises:
        TopologyError: names the characters that do not fit and those that do.
    """
    if not name:
        raise TopologyError(f"{what} name is empty; use {NAME_CHARACTERS}")
    if len(name) > NAME_LENGTH:
        raise TopologyError(
            f"{what} name {name!r} has {len(name)} characters; use at most {NAME_LENGTH}"
        )
    if not _NAME.fullmatch(name):
        wrong = ", ".join(repr(c) for c in dict.fromkeys(name) if not _NAME.fullmatch(c))
        raise TopologyError(
            f"{what} name {name!r} contains {wrong}; it becomes part of transactional ids, "
            f"so use only {NAME_CHARACTERS}"
        )


def refuse_reserved_name(sub_topology: str) -> None:
    """Raise if the ids of a user's sub-topology of this name would be the framework's own.

    Raises:
        TopologyError: the name is `registry` or starts with `backfill.`, `relay.` or `replay.`.
    """
    if sub_topology == REGISTRY:
        raise TopologyError(
            f"sub-topology name {sub_topology!r} is reserved for the application's registry; "
            f"choose another name"
        )
    for reserved, owner in _RESERVED_PREFIXES.items():
        if sub_topology.startswith(reserved):
            raise TopologyError(
                f"sub-topology name {sub_topology!r} starts with {reserved!r}, which is reserved "
                f"for {owner}; choose another name"
            )
