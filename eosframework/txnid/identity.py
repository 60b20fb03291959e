"""The identity under which one task writes: `{application}:{sub-topology}:{partition}`.

Where ids are leased, a task keeps its name and writes under the id that it was given. Where a
worker has one producer for all of its tasks, its id names the worker's instance:
`{application}:worker.{instance}:0`.

A name has no `:`, so an id parses back into its three parts in one way only, and the ids of
an application are exactly those that start with its `prefix`: no second application's ids do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from eosframework.errors import ConfigurationError, TopologyError
from eosframework.txnid.names import (
    APPLICATION,
    INSTANCE,
    NAME,
    NAME_CHARACTERS,
    SINK,
    WORKER,
    refuse_bad_application,
    refuse_bad_id,
    refuse_bad_instance,
    refuse_bad_name,
)

_PART = rf"{re.escape(WORKER)}{INSTANCE}|{SINK}|{NAME}"
_SINK = re.compile(SINK)
_ID = re.compile(rf"({APPLICATION}):({_PART}):(0|[1-9][0-9]{{0,9}})")


@dataclass(frozen=True, slots=True, order=True)
class TransactionalId:
    """The identity under which the outputs of one partition are written, on any worker.

    Args:
        application: name of the application.
        sub_topology: name of the connected part of its topology.
        partition: the input partition, from 0.
        leased: the leased id; None: the id is derived from the other fields.

    Raises:
        TopologyError: a name does not match the grammar, the partition is negative, or brokers do
            not take the leased id.
    """

    application: str
    sub_topology: str
    partition: int
    leased: str | None = None

    def __post_init__(self) -> None:
        refuse_bad_application(self.application)
        if self.leased is not None:
            refuse_bad_id(self.leased)
        if (instance := self.instance) is not None:
            refuse_bad_instance(instance)
        elif not _SINK.fullmatch(self.sub_topology):
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
    def sink(cls, application: str, sink: str, shard: int) -> Self:
        """Return the id of one shard of a sink of Spark."""
        return cls(application, f"sink.{sink}", shard)

    @classmethod
    def sink_driver(cls, application: str, sink: str) -> Self:
        """Return the id under which a sink's driver records its batches."""
        return cls(application, f"sink_driver.{sink}", 0)

    @classmethod
    def relay(cls, application: str, name: str, partition: int = 0) -> Self:
        """Return the id of an outbox relay."""
        return cls(application, f"relay.{name}", partition)

    @classmethod
    def replay(cls, application: str) -> Self:
        """Return the id of replays of dead letters; one replay runs at a time."""
        return cls(application, "replay.dead_letters", 0)

    @classmethod
    def worker(cls, application: str, instance: str) -> Self:
        """Return the id of the producer that all tasks of a worker share."""
        return cls(application, f"{WORKER}{instance}", 0)

    @property
    def instance(self) -> str | None:
        """The instance name in the id of a worker's producer; None: it is another kind of id."""
        if not self.sub_topology.startswith(WORKER):
            return None
        return self.sub_topology.removeprefix(WORKER)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the task whose derived id `text` is: `str(parse(text)) == text`.

        Raises:
            ConfigurationError: the text is not an id of this grammar.
        """
        match = _ID.fullmatch(text)
        if match is None:
            raise ConfigurationError(
                f"transactional id {text!r} is not APPLICATION:SUBTOPOLOGY:PARTITION, for "
                f"example 'flights:late:0': each name of {NAME_CHARACTERS} ('-' in "
                f"those of applications, sinks and workers only), then the number of a partition"
            )
        application, sub_topology, number = match.groups()
        try:
            return cls(application, sub_topology, int(number))
        except TopologyError as error:
            raise ConfigurationError(
                f"transactional id {text!r:.300} belongs to no task: {error}"
            ) from None

    def __str__(self) -> str:
        if self.leased is not None:
            return self.leased
        return f"{self.application}:{self.sub_topology}:{self.partition}"

    @property
    def name(self) -> str:
        """The name of the task, for logs: `SUBTOPOLOGY[PARTITION]`."""
        return f"{self.sub_topology}[{self.partition}]"


def effects_id(transactional_id: str) -> str:
    """Return the id under which the journal of effects is written, next to that of outputs.

    It is recorded like any other one, and begins like those of its application.
    """
    return f"{transactional_id}:effects"


def prefix(application: str) -> str:
    """Return the prefix that all derived ids of `application` have, and no others.

    Raises:
        TopologyError: the name does not match the grammar.
    """
    refuse_bad_application(application)
    return f"{application}:"


def worker_pattern(application: str) -> str:
    """Return the form of the ids of workers' producers, for display."""
    return f"{prefix(application)}{WORKER}INSTANCE:0"
