"""Start positions of partitions, and the markers of first commits, in the control topic."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from eosframework.application.control_topic import RESET, ControlState, ControlTopic
from eosframework.application.group_members import (
    foreign_offsets,
    foreign_offsets_error,
    strangers,
)
from eosframework.application.ownership_topic import entries as ownership_entries
from eosframework.application.ownership_topic import require_recording_members
from eosframework.config import Start
from eosframework.errors import ClusterUnreachable, Retriable, RunError, StartRefused
from eosframework.kafka.admin.metadata import GroupDescription
from eosframework.processing.ports import InputLog, Output
from eosframework.processing.transaction.offsets import Progress
from eosframework.records import Position, TopicPartition
from eosframework.txnid import TransactionalId

ByTask = Mapping[TransactionalId, Sequence[TopicPartition]]


class StartPositions:
    """The `ProgressLedger` that outlasts Kafka's offset retention.

    Args:
        application: its name.
        control_topic: read to its end at least once.
        start: the position at which partitions start that were never committed.
        whole_topics: topics that start at their beginning, whatever `start` says.
        members: returns the description of the group; needed with an id of its own.
        has_own_id: the worker writes under an id of its own.
    """

    def __init__(
        self,
        application: str,
        control_topic: ControlTopic,
        start: Start,
        whole_topics: Collection[str] = (),
        members: Callable[[], GroupDescription] = GroupDescription,
        *,
        has_own_id: bool = False,
    ) -> None:
        self._has_own_id = has_own_id
        self._application = application
        self._control_topic = control_topic
        self._start = start
        self._whole_topics = whole_topics
        self._reset = control_topic.state.entries.get(RESET)
        self._recorded_in = _recorded_in(control_topic.state)
        self._members = members
        self._seen = {
            (partition, task)
            for partition, leased in control_topic.state.leased.items()
            for task in leased
        }

    def starting_positions(self, committed: Sequence[Position], log: InputLog) -> list[Position]:
        """Return positions, with a start for every partition without a committed offset.

        Raises:
            StartRefused: a partition was committed before and its offset is gone.
            Retriable: the control topic or a log cannot be read now.
        """
        new = [p.topic_partition for p in committed if p.offset is None]
        if not new and not foreign_offsets(committed):
            return list(committed)
        # Partitions without a marker start as new ones, so no marker may be hidden.
        control = self._read(self._control_topic.settled)
        refuse_foreign_offsets(control, committed, self._group)
        refuse_lost_offsets(self._application, control, committed)
        if not new:
            return list(committed)
        late = [partition for partition in new if self.starts_at_end(partition)]
        early = [partition for partition in new if partition not in late]
        offsets = {
            **(log.beginning_offsets(early) if early else {}),
            **(log.end_offsets(late) if late else {}),
        }
        return [
            position
            if position.offset is not None
            else replace(
                position, offset=offsets[position.topic_partition], metadata=str(Progress())
            )
            for position in committed
        ]

    def marker(self, sub_topology: str, partition: TopicPartition) -> Output | None:
        """Return the record for a partition's first transaction; None: it was written."""
        if partition in self._control_topic.state.committed:
            return None
        return self._control_topic.committed_marker(sub_topology, partition)

    def starts_at_end(self, partition: TopicPartition) -> bool:
        """Return whether a partition that was never committed starts at its end."""
        return self._start is Start.LATEST and partition.topic not in self._whole_topics

    def former_ids(self, by_task: ByTask) -> list[str]:
        """Return the ids under which the tasks' partitions were processed before.

        Raises:
            RunError: this worker has an id of its own, and a member of the group records nothing.
            Retriable: the members cannot be described now.
        """
        if self._has_own_id:
            self._require_recording_members()
            return former_leases(self._control_topic.state, by_task)
        return former_ids(self._control_topic.state, by_task)

    def _require_recording_members(self) -> None:
        """Raise if a member records nothing; its ids are fenced before the next start (S2).

        Raises:
            RunError: this worker takes nothing over.
        """
        try:
            require_recording_members(self._group())
        except RunError:
            asked = self._refreshed().ownership
            if asked is not None and not asked.is_stopping:
                self._control_topic.write(ownership_entries(asked.topic_id, fenced=False))
            raise

    def is_ownership_asked(self) -> bool:
        """Return whether entries of ownership are to be recorded."""
        return self._refreshed().ownership is not None

    def confirm_ids(self, by_task: ByTask) -> None:
        """Make sure that leased ids were not released since this worker started.

        Raises:
            RunError: one was; another task may have it.
            Retriable: the control topic does not show it yet.
        """
        wanted = {
            partition: task
            for task, partitions in by_task.items()
            if task.leased is not None
            for partition in partitions
        }
        if not wanted:
            return
        # 1. this worker starts and writes the entries  2. an open transaction hides the topic's end
        # 3. a takeover reads it without them. What was never seen may be hidden, so the takeover is
        # retried; what was seen once and is missing now has been released.
        leased = self._refreshed().leased
        missing = {p: task for p, task in wanted.items() if task not in leased.get(p, ())}
        self._seen |= wanted.items() - missing.items()
        for partition, task in missing.items():
            if (partition, task) in self._seen:
                raise RunError(
                    f"transactional id {task} of {partition} was released after this worker had "
                    f"started, so another task may have it by now; start the worker again"
                )
            raise Retriable(
                f"the control topic {self._control_topic.topic!r} does not show yet that "
                f"{partition} is processed under transactional id {task}: an open transaction "
                f"hides its end"
            )

    def confirm_start(self) -> None:
        """Make sure that no command changed the application while this worker was not a member.

        Raises:
            RunError: it was reset: topics and stores differ from those found at the start. Or
                entries of ownership are no longer recorded.
            Retriable: the control topic cannot be read now.
        """
        # 1. this worker passes its start checks  2. a reset finds no member, marks the control
        # topic and deletes the group  3. this worker joins. The mark is not the one read at 1.
        # Had it joined before the group was deleted, brokers would have refused to delete it.
        found = self._refreshed()
        if found.entries.get(RESET) != self._reset:
            raise RunError(
                f"application {self._application!r} was reset after this worker had started, so "
                f"its stores and topics are others than those that it found; start it again"
            )
        if self._recorded_in is not None and _recorded_in(found) is None:
            raise RunError(
                f"the ids of workers of application {self._application!r} are no longer recorded: "
                f"`eosframework ids stop-recording` was run after this worker had started; start "
                f"it again"
            )

    def _group(self) -> GroupDescription:
        try:
            return self._members()
        except ClusterUnreachable as error:
            raise Retriable(str(error)) from error

    def _refreshed(self) -> ControlState:
        """Read new entries of the control topic."""
        return self._read(self._control_topic.refresh)

    def _read(self, question: Callable[[], ControlState]) -> ControlState:
        """Read the control topic; its leader may have failed just now."""
        try:
            return question()
        except ClusterUnreachable as error:
            raise Retriable(str(error)) from error


def _recorded_in(control: ControlState) -> str | None:
    """Return the id of the topic in which ids are recorded; None: they are not, or end to be."""
    asked = control.ownership
    return None if asked is None or asked.is_stopping else asked.topic_id


def former_leases(control: ControlState, by_task: ByTask) -> list[str]:
    """Return the leased ids that partitions had; derived ones are recorded, or were fenced (S2)."""
    partitions = (partition for given in by_task.values() for partition in given)
    return sorted({str(task) for p in partitions for task in control.leased.get(p, ())})


def former_ids(control: ControlState, by_task: ByTask) -> list[str]:
    """Return ids under which workers of earlier topologies, or with other ids, may write.

    These are derived ids of sub-topologies that once read a partition's topic, and ids that were
    leased for it. Earlier versions had one id for a block of partitions; a worker of theirs that is
    suspended may still write under it.
    """
    former: set[str] = set()
    for task, partitions in by_task.items():
        for partition in partitions:
            former.update(recorded_ids(task.application, control, partition))
        former.discard(str(task))
    return sorted(former)


def recorded_ids(
    application: str, control: ControlState, partition: TopicPartition
) -> Iterator[str]:
    """Yield the ids, derived and leased, under which workers may have processed a partition."""
    for owner in control.owners.get(partition.topic, ()):
        for together in (1, *control.sharing):
            yield str(TransactionalId(application, owner, partition.partition, None, together))
    yield from map(str, control.leased.get(partition, ()))


def refuse_lost_offsets(
    application: str, control: ControlState, committed: Iterable[Position]
) -> None:
    """Refuse to start if a partition that was committed before has no committed offset any more.

    Raises:
        StartRefused: names the partitions and what to do.
    """
    lost = sorted(
        position.topic_partition
        for position in committed
        if position.offset is None and position.topic_partition in control.committed
    )
    if not lost:
        return
    names = ", ".join(str(partition) for partition in lost)
    examples = " ".join(f"'{partition}=OFFSET'" for partition in lost[:2])
    raise StartRefused(
        f"application {application!r} has committed {names} before, and the committed offset is "
        f"gone: the group was stopped for longer than the brokers' offsets.retention.minutes, or "
        f"its offsets were deleted. Reading from the start would process everything again, and "
        f"from the end would lose records. Find the last input that took effect and set where to "
        f"go on: eosframework positions set APP {examples}. To process everything again on "
        f"purpose, use another application name"
    )


def refuse_foreign_offsets(
    control: ControlState,
    committed: Iterable[Position],
    group: Callable[[], GroupDescription],
) -> None:
    """Refuse offsets of another consumer in partitions that the application committed before.

    Args:
        control: the content of the control topic.
        committed: positions of the application's group.
        group: returns its members.

    Raises:
        StartRefused: names the offsets, the member if it is one, and what to do.
    """
    if foreign := foreign_offsets(committed, control.committed):
        raise StartRefused(foreign_offsets_error(foreign, strangers(group())))


class UnmarkedStartPositions(StartPositions):
    """A ledger without markers, for processing without transactions.

    Outside a transaction a marker would exist before the offset that it confirms; a crash between
    the two would look like a lost offset.
    """

    def marker(self, sub_topology: str, partition: TopicPartition) -> Output | None:
        """Return None."""
        return None
