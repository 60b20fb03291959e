"""Start positions of partitions, and the markers of first commits, in the control topic."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from eosframework.application.control_topic import RESET, ControlState, ControlTopic
from eosframework.application.group_members import (
    foreign_offsets,
    foreign_offsets_error,
    strangers,
)
from eosframework.application.leases import last_release
from eosframework.config import Start
from eosframework.engine.task.offsets import Progress
from eosframework.errors import ClusterUnreachable, Retriable, RunError, StartRefused
from eosframework.kafka.admin.metadata import GroupDescription
from eosframework.records import Position, TopicPartition
from eosframework.transactions.ports import InputLog, Output


class StartPositions:
    """The `ProgressLedger` that outlasts Kafka's offset retention.

    Args:
        application: its name.
        control_topic: read to its end at least once.
        start: the position at which partitions start that were never committed.
        whole_topics: topics that start at their beginning, whatever `start` says.
        members: returns the description of the group.
        judged: the content of the control topic by which the start was allowed and the tasks got
            their ids; None: that of now.
    """

    def __init__(
        self,
        application: str,
        control_topic: ControlTopic,
        start: Start,
        whole_topics: Collection[str] = (),
        members: Callable[[], GroupDescription] = GroupDescription,
        judged: ControlState | None = None,
    ) -> None:
        self._application = application
        self._control_topic = control_topic
        self._start = start
        self._whole_topics = whole_topics
        # Not what is there now: a reset or a release after the checks would go unnoticed.
        judged = judged or control_topic.state
        self._reset = judged.entries.get(RESET)
        self._release = last_release(judged)
        self._members = members

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

    def confirm_members(self) -> None:
        """Make sure that all members of the group are workers.

        Raises:
            RunError: one is not; it takes partitions away.
            Retriable: the members cannot be described now.
        """
        if foreign := strangers(self._group()):
            raise RunError(
                f"{', '.join(foreign)} is a member of this worker's consumer group and is no "
                f"worker: it takes partitions away, and the offsets that it commits are not those "
                f"of this application. Stop it or give it a group of its own, then start this "
                f"worker again"
            )

    def confirm_start(self) -> None:
        """Make sure that no command changed the application while this worker was not a member.

        Raises:
            RunError: it was reset: topics and stores differ from those found at the start. Or
                leased ids were released.
            Retriable: the control topic cannot be read now.
        """
        # 1. this worker passes its start checks  2. a reset finds no member, marks the control
        # topic and deletes the group  3. this worker joins. The mark is not the one read at 1.
        # Had it joined before the group was deleted, brokers would have refused to delete it.
        # A release of leased ids has a mark as well (L3 of `leases`).
        found = self._refreshed()
        if found.entries.get(RESET) != self._reset:
            raise RunError(
                f"application {self._application!r} was reset after this worker had started, so "
                f"its stores and topics are others than those that it found; start it again"
            )
        if last_release(found) != self._release:
            raise RunError(
                f"leased ids of application {self._application!r} were released after this worker "
                f"had started, so another task may have them by now; start it again"
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
