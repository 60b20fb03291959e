"""Recorded ownership: the topic that lists which transactional ids may write for a partition.

A worker has a claim for each of its tasks, and a second one for the id of its journal of effects if
it has one, recorded as entries:

    key     SUB_TOPOLOGY/PARTITION/TOKEN
    value   {"id": TRANSACTIONAL_ID, "topics": [SOURCE, ...]}

A token is used for one takeover of one task, so two entries never have one key, and a removal that
arrives late deletes no other entry. Two entries are about the same input if they share a partition
of a source topic: the sub-topology may have had another name before. The steps, as
docs/model/ownership.pml proves them:

    K0  read the entries of one's own ids, then init these ids
    K1  add an entry for each task, under a new token; wait for the acknowledgement
    K2  read the topic to its end
    K3  init every other id of an entry for the same input
    K4  remove exactly the entries that were read before an init of their id: those of other ids
        found in K2, those of one's own ids found in K0
    K5  read the stable committed offsets
    K6  after every further init of one's own id: write an entry for each of its tasks under a new
        token, in place of the earlier one, before anything else is written

A release removes one's own entry, after a clean commit. The inits are calls of the producers, K5 of
the consumer; the others are here.

So every id that may write for an input is listed. That a worker which lost its partitions cannot
commit, although it inits its id and lists itself anew, follows from the group: offsets are sent
under the membership of the assignment (`InputLog.membership`), which the group has ended.

Without the init before the entry, a taker removes the entry of an id that is inited afterwards.
Without K6, an owner whose id was fenced resumes although its entry was removed. Without the reading
in K0, a process that crashes again and again leaves an entry each time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Protocol, cast

import orjson
import structlog

from eosframework.errors import ClusterUnreachable, EosError, Retriable, RunError, TopologyError
from eosframework.records import TopicPartition
from eosframework.transactions import failpoints
from eosframework.txnid import TransactionalId, refuse_bad_id

ByTask = Mapping[TransactionalId, Sequence[TopicPartition]]
"""The source partitions of tasks."""


class Ownership:
    """The claims of one process.

    Args:
        log: the ownership topic; None: there are no transactions to fence, so nothing is claimed.
        process: a name that no other process ever has, the first part of tokens.
    """

    def __init__(self, log: OwnershipLog | None = None, process: str = "") -> None:
        self._log = log
        self._process = process
        self._numbers = count(1)
        self._claims: dict[TransactionalId, tuple[Claim, ...]] = {}
        self._before: frozenset[bytes] = frozenset()
        """Keys of entries of the own ids, read before these were inited."""
        self._explained: set[bytes] = set()
        """Keys of other processes' entries that have explained a fence."""
        self._events = structlog.get_logger("eosframework.worker")

    def prepare(self, own_ids: Collection[str]) -> None:
        """Read the entries of the ids that are inited next (K0).

        Raises:
            Retriable: the topic cannot be read now.
        """
        if self._log is not None and own_ids:
            try:
                self._before = keys_of(self._log, own_ids)
            except ClusterUnreachable as error:
                raise Retriable(str(error)) from error

    def claim(
        self, by_task: ByTask, writers_of: Callable[[TransactionalId], Sequence[str]]
    ) -> None:
        """Add an entry for each id that writes for a task, and was inited (K1).

        Raises:
            Retriable: they were not acknowledged; later ones have other tokens.
        """
        self._add(
            {
                task: tuple(
                    Claim(
                        task.sub_topology,
                        task.partition,
                        tuple(sorted({partition.topic for partition in partitions})),
                        writer,
                        token="",
                    )
                    for writer in writers_of(task)
                )
                for task, partitions in by_task.items()
            }
        )

    def renew(self, tasks: Iterable[TransactionalId]) -> None:
        """Write the entries of tasks anew, because their ids were inited again (K6).

        Raises:
            Retriable: they were not acknowledged, and nothing may be written under the ids before
                they were inited once more.
        """
        self._add({task: self._claims[task] for task in tasks if task in self._claims})

    def take(
        self,
        tasks: Iterable[TransactionalId],
        own_ids: Collection[str],
        fence: Callable[[list[str]], object],
    ) -> None:
        """Fence all other owners of claimed tasks, and remove their entries (K2 to K4).

        Args:
            tasks: claimed since their ids were inited.
            own_ids: the ids passed to `prepare` and inited since.
            fence: inits ids.

        Raises:
            Retriable: the topic cannot be read now.
        """
        if self._log is None:
            return
        others = self._look(self._log, tasks).others
        failpoints.hit("ownership.after_read")
        if ids := sorted({entry.claim.transactional_id for entry in others} - set(own_ids)):
            fence(ids)
        failpoints.hit("ownership.after_fence")
        # An entry of the own id may be that of a process that has inited it since.
        read_before_init = self._before.union(
            entry.claim.key for entry in others if entry.claim.transactional_id in ids
        )
        self._remove([e.claim for e in others if e.claim.key in read_before_init])

    def has_successor(self, tasks: Iterable[TransactionalId]) -> bool:
        """Return whether another process has claimed one of the tasks, which explains a fence.

        It has removed the entry, or added one under its own id. An entry explains one fence only.

        Raises:
            Retriable: the topic cannot be read now.
        """
        wanted = [task for task in tasks if task in self._claims]
        if not wanted or self._log is None:
            return False
        found = self._look(self._log, wanted)
        own_ids = {claim.transactional_id for claim in self._of(wanted)}
        new = {e.claim.key for e in found.others if e.claim.transactional_id not in own_ids}
        new -= self._explained
        self._explained |= new
        return bool(found.removed or new)

    def forget(self, tasks: Iterable[TransactionalId]) -> None:
        """Drop the claims of tasks; their entries stay until a successor has fenced the ids."""
        for task in tasks:
            self._claims.pop(task, None)

    def release(self, tasks: Iterable[TransactionalId]) -> None:
        """Remove the entries of tasks: nothing of them is undecided, or can be written any more.

        If that fails, the entries stay, and the next owner inits their ids.
        """
        gone = [task for task in tasks if task in self._claims]
        claims = self._of(gone)
        self.forget(gone)
        self._remove(claims)

    def _of(self, tasks: Iterable[TransactionalId]) -> list[Claim]:
        return [claim for task in tasks for claim in self._claims[task]]

    def _add(self, claims: Mapping[TransactionalId, Sequence[Claim]]) -> None:
        """Add entries under new tokens, in place of the earlier ones of the same tasks."""
        if self._log is None or not claims:
            return
        new = {
            task: tuple(
                replace(claim, token=f"{self._process}.{next(self._numbers)}") for claim in of_task
            )
            for task, of_task in claims.items()
        }
        earlier = self._of(task for task in new if task in self._claims)
        added = [claim for of_task in new.values() for claim in of_task]
        failpoints.hit("ownership.before_entry")
        try:
            add_entries(self._log, added, instead_of=earlier)
        except ClusterUnreachable as error:
            raise Retriable(str(error)) from error
        failpoints.hit("ownership.after_entry")
        self._claims.update(new)

    def _remove(self, claims: Sequence[Claim]) -> None:
        """Remove entries; one that stays costs the next owner an init, and nothing else."""
        if self._log is None:
            return
        try:
            remove_entries(self._log, claims)
        except EosError as error:
            self._events.warning("ownership_entries_left", error=str(error))

    def _look(self, log: OwnershipLog, tasks: Iterable[TransactionalId]) -> Found:
        try:
            return look_for_others(log, self._of(tasks))
        except ClusterUnreachable as error:
            raise Retriable(str(error)) from error


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


class OwnershipLog(Protocol):
    """The ownership topic of an application."""

    @property
    def topic(self) -> str:
        """Its name."""
        ...

    def write(self, values: Mapping[bytes, bytes | None]) -> None:
        """Write a record for each key, outside any transaction; None removes the record.

        Returns when all in-sync replicas have them.

        Raises:
            Retriable: they were not acknowledged in time; they may arrive later.
        """
        ...

    def read(self) -> Stored:
        """Return all records that were written before this call and are not removed.

        Raises:
            Retriable: they could not be read in time.
            RunError: the topic is not the one that the application has recorded.
        """
        ...


@dataclass(frozen=True, slots=True)
class Found:
    """The content of the topic, as one process with claims sees it (K2).

    Args:
        removed: claims whose entry is gone.
        others: entries of other processes about the inputs of the claims.
    """

    removed: tuple[Claim, ...]
    others: tuple[Entry, ...]


def keys_of(log: OwnershipLog, ids: Collection[str]) -> frozenset[bytes]:
    """Return the keys of the entries of some ids, before these are inited (K0)."""
    entries = parse(log.read(), log.topic)
    return frozenset(e.claim.key for e in entries if e.claim.transactional_id in ids)


def add_entries(
    log: OwnershipLog, claims: Sequence[Claim], instead_of: Iterable[Claim] = ()
) -> None:
    """Add an entry for each claim, and remove earlier ones, with one request (K1, K6)."""
    removed: dict[bytes, bytes | None] = dict.fromkeys(claim.key for claim in instead_of)
    log.write({claim.key: claim.value for claim in claims} | removed)


def look_for_others(log: OwnershipLog, claims: Sequence[Claim]) -> Found:
    """Read the topic to its end, and find the entries of other processes (K2)."""
    entries = parse(log.read(), log.topic)
    keys = {entry.claim.key for entry in entries}
    own = {claim.key for claim in claims}
    entries_by_input = by_input(entries)
    others = {
        entry.claim.key: entry
        for claim in claims
        for partition in claim.inputs
        for entry in entries_by_input.get(partition, ())
        if entry.claim.key not in own
    }
    removed = tuple(claim for claim in claims if claim.key not in keys)
    return Found(removed, tuple(others.values()))


def remove_entries(log: OwnershipLog, claims: Sequence[Claim]) -> None:
    """Remove exactly these entries: those that were fenced (K4), or one's own (release)."""
    if claims:
        log.write(dict.fromkeys((claim.key for claim in claims), None))
