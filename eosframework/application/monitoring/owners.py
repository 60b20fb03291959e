"""The owners of tasks, as the group's coordinator has them, and where they listen.

A store on this machine is evidence of nothing: a worker that was suspended finds its stores open,
and does not know yet that the group has given its partitions to another one. So an answer counts
only if the coordinator confirms its worker's membership:

    Q1  take the member id under which the worker has its partitions
    Q2  read the store
    Q3  the coordinator describes the group: it is stable, and assigns the partition to this member
        id; a description may be `CONFIRMED_SECONDS` old, by the worker's own clock

The coordinator never uses a member id again. A worker whose member id it names has not lost its
partitions: it could rejoin only after its main thread has closed its stores. So at the time of the
description no successor had the partition, and a lost partition is read for at most
`CONFIRMED_SECONDS` longer. A process that was stopped in between (SIGSTOP) asks again, because its
clock has run on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from eosframework.application.monitoring.shared_answers import Job, SharedAnswer
from eosframework.errors import StoreNotReady
from eosframework.kafka.admin.metadata import GroupDescription, GroupMember
from eosframework.records import TopicPartition

CONFIRMED_SECONDS = 1.0
"""Age up to which a description of the group is used. It bounds the requests to the coordinator to
one a second for a worker that is asked all the time."""

ASKED_SECONDS = 3.0
"""Longest wait for the brokers. A page has ten seconds in all, of which another worker may take
some."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The worker that has a task.

    Args:
        instance: its name.
        address: its HTTP address, as `HOST:PORT`; None: it has announced none.
    """

    instance: str
    address: str | None


@dataclass(frozen=True, slots=True)
class _Assignment:
    is_stable: bool = False
    members: Mapping[TopicPartition, GroupMember] = field(
        default_factory=dict[TopicPartition, GroupMember]
    )

    def member(self, inputs: Collection[TopicPartition]) -> GroupMember | None:
        """Return the member that has a task's inputs; None: the group is assigning them."""
        found = {m.member_id: m for p in inputs if (m := self.members.get(p)) is not None}
        return next(iter(found.values())) if self.is_stable and len(found) == 1 else None


class Owners:
    """The owners of the tasks of an application, for any thread.

    Args:
        instance: name of this worker.
        sources: the source topics of each sub-topology.
        describe: describes the group.
        addresses: returns the announced addresses by instance name.
        run: runs a function on the thread that sends requests to brokers.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        instance: str,
        sources: Mapping[str, Sequence[str]],
        describe: Callable[[], GroupDescription],
        addresses: Callable[[], Mapping[str, str]],
        run: Callable[[Job], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.instance = instance
        self._sources = sources
        self._clock = clock
        self._assignment = SharedAnswer(lambda: _assignment(describe()), run, clock)
        self._addresses = SharedAnswer(addresses, run, clock)
        self._member_id: Callable[[], str] = str

    def sit(self, member_id: Callable[[], str]) -> None:
        """Take the function that returns this worker's member id; empty: it has no assignment."""
        self._member_id = member_id

    def member_id(self) -> str:
        """Return the member id of this worker's assignment (Q1); empty: there is none."""
        return self._member_id()

    def confirm(self, member_id: str, sub_topology: str, partitions: Collection[int]) -> None:
        """Check that the group assigns partitions to a member id (Q3).

        Args:
            member_id: taken before the stores were read.
            sub_topology: of the partitions.
            partitions: that were read.

        Raises:
            StoreNotReady: it does not, or it is assigning partitions.
            ClusterUnreachable: the coordinator does not answer.
        """
        asked_at, lost = self._clock(), list(partitions)
        # A description from before the last assignment does not name this member id.
        for since in (asked_at - CONFIRMED_SECONDS, asked_at) if member_id else ():
            seen = self._assignment.since(since, ASKED_SECONDS)
            owners = {p: self._member(seen, sub_topology, p) for p in partitions}
            lost = [p for p, m in owners.items() if m is None or m.member_id != member_id]
            if not lost:
                return
        raise StoreNotReady(
            f"the group does not assign partitions {lost} of {sub_topology!r} to this worker, "
            f"{self.instance!r}, now: they move; ask again"
        )

    def owner(self, sub_topology: str, partition: int, since: float | None = None) -> Owner:
        """Return the worker that has a task, by a description at most `CONFIRMED_SECONDS` old.

        Args:
            sub_topology: of the task.
            partition: of the task.
            since: time by the clock; descriptions and addresses that are older do not count.

        Raises:
            StoreNotReady: it has no owner; ask again.
            ClusterUnreachable: the coordinator does not answer.
        """
        asked_at = self._clock()
        for oldest in (asked_at - CONFIRMED_SECONDS if since is None else since, asked_at):
            seen = self._assignment.since(oldest, ASKED_SECONDS)
            member = self._member(seen, sub_topology, partition)
            if member is not None:
                return Owner(member.name, self._address(member.name, since, asked_at))
        raise StoreNotReady(
            f"no worker has partition {partition} of {sub_topology!r} now: it moves; ask again"
        )

    def now(self) -> float:
        """Return the time by the clock of `owner`."""
        return self._clock()

    def _member(self, seen: _Assignment, sub_topology: str, partition: int) -> GroupMember | None:
        return seen.member([TopicPartition(t, partition) for t in self._sources[sub_topology]])

    def _address(self, instance: str, since: float | None, asked_at: float) -> str | None:
        """Return an announced address; addresses are read again only if one is missing."""
        for oldest in (float("-inf") if since is None else since, asked_at - CONFIRMED_SECONDS):
            address = self._addresses.since(oldest, ASKED_SECONDS).get(instance)
            if address is not None:
                return address
        return None


def _assignment(group: GroupDescription) -> _Assignment:
    by_partition = {p: member for member in group.members for p in member.partitions}
    return _Assignment(group.is_stable, by_partition)
