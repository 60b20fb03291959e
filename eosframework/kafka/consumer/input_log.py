"""The worker's consumer: a `read_committed` group member with explicit positions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn, cast

import structlog
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from eosframework.errors import (
    AssignmentLapsed,
    EosError,
    PositionLost,
    Retriable,
    RunError,
    TransactionError,
)
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.client.partitioner import (
    committed_position,
    from_kafka,
    partitions_to_kafka,
    to_kafka,
)
from eosframework.kafka.client.properties import new_client
from eosframework.kafka.client.statistics import CONSUMER, ClientStatistics
from eosframework.kafka.client.throttling import Deadline, Throttling
from eosframework.kafka.consumer.group import GroupSettings
from eosframework.kafka.consumer.message_batches import (
    UNREADABLE,
    by_partition,
    error_of,
    sizes_of,
    unreadable,
)
from eosframework.kafka.consumer.read_committed import ReadCommittedConsumer
from eosframework.kafka.consumer.rebalance import Rebalancing, Refuse
from eosframework.kafka.taxonomy import Call, exception_for
from eosframework.records import Position, TopicPartition
from eosframework.transactions.ports import Fetched, RebalanceListener

FEW_RECORDS = 500
"""With this many records at hand, processing them is worth more than waiting for others."""

FENCE_SECONDS = 0.5
"""The longest delay until librdkafka reports a fence that has emptied the assignment already."""

LEAVE_SECONDS = 5.0
"""The longest wait of `close(leave=True)` for the group to be left."""

_BEGINNING, _END = -2, -1
"""Timestamps of ListOffsets for the first offset and the last stable one."""


class KafkaInputLog:
    """A member of a consumer group; implements `transactions.ports.InputLog`.

    Args:
        client: librdkafka properties that reach the cluster, with the user's own.
        group: the membership.
        request_timeout_seconds: for requests to brokers.
        repositioning: the command that sets the positions, wherever they are kept.
        statistics: collects the consumer's statistics; None: there are no metrics.
        refuse: raises if a member must not take over the partitions; None: it takes all.
        admin: asked for ends of logs and decided positions; None: they are not needed.
    """

    def __init__(
        self,
        client: Mapping[str, Any],
        group: GroupSettings,
        *,
        request_timeout_seconds: float = 10.0,
        repositioning: str = "eosframework positions set APP",
        statistics: ClientStatistics | None = None,
        refuse: Refuse | None = None,
        admin: ClusterAdmin | None = None,
    ) -> None:
        self._group = group
        self._admin = admin
        self._refuse = refuse
        self._repositioning = repositioning
        self._request_timeout_seconds = request_timeout_seconds
        self._topics: tuple[str, ...] = ()
        self._fatal: KafkaError | None = None
        self._reported: set[int] = set()
        self._rebalancing: Rebalancing | None = None
        self._starts: dict[TopicPartition, KafkaPartition] = {}
        self._next: dict[TopicPartition, int] = {}
        self._empty: dict[TopicPartition, tuple[int, int]] = {}
        """By partition, a range of offsets that was read and holds no record."""
        self._moved: set[TopicPartition] = set()
        """Partitions that were assigned during the current fetch."""
        self._events = structlog.get_logger("eosframework.kafka").bind(
            group=group.group_id, instance=group.instance
        )
        self._consumer = new_client(
            ReadCommittedConsumer,
            {
                **client,
                **group.properties(),
                **(statistics.consumer_properties() if statistics else {}),
                "enable.partition.eof": True,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "error_cb": self._remember,
                "throttle_cb": Throttling(CONSUMER),
            },
        )

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        """Join the group. New partitions are assigned paused."""
        self._topics = tuple(topics)
        rebalancing = self._rebalancing = Rebalancing(listener, self._refuse, self._note_starts)
        self._consumer.subscribe(
            list(topics),
            on_assign=rebalancing.assigned,
            on_revoke=rebalancing.revoked,
            on_lost=rebalancing.lost,
        )

    def fetch(self, limit: int, timeout_seconds: float, gather_seconds: float = 0.0) -> Fetched:
        """Return at most `limit` messages; see `InputLog`.

        Raises:
            PositionLost: a position is no longer in the log.
            InstanceFenced: another member joined with this one's instance name.
            RunError: a topic or the group may not be read.
        """
        self._moved.clear()
        messages = self._consume(limit, 0)
        if not messages and timeout_seconds > 0:
            messages = self._consume(1, timeout_seconds)
            if messages and limit > 1:
                messages += self._consume(limit - 1, 0)
        few = min(limit, FEW_RECORDS)
        if gather_seconds > 0 and 0 < len(messages) < few:
            messages += self._consume(few - len(messages), gather_seconds)
        ends: dict[TopicPartition, int] = {}
        damaged: dict[TopicPartition, RunError] = {}
        if any(map(error_of, messages)):
            messages = self._without_errors(messages, ends, damaged)
        for partition in damaged:  # Its end follows records that are not read.
            ends.pop(partition, None)
        found = by_partition(messages, self._topics)
        for partition, read in found.items():
            self._starts.pop(partition, None)
            self._next[partition] = read[-1].offset() + 1
        # 1. the end of a partition is consumed  2. a callback of the same fetch assigns it anew, at
        # an earlier offset  3. the range between both has records, which a rewind would leave out.
        for partition in ends.keys() - self._moved:
            self._empty[partition] = self._next.get(partition, ends[partition]), ends[partition]
        return Fetched(found, ends, self.membership(), sizes_of(found), damaged)

    def membership(self) -> Any:
        """Return the membership of the assignment; None: no partitions are assigned."""
        return None if self._rebalancing is None else self._rebalancing.current_membership()

    def member_id(self) -> str:
        """Return the member id that has the assignment, for any thread; empty: there is none."""
        return "" if self._rebalancing is None else self._rebalancing.member_id

    def confirm_assignment(self, partitions: Sequence[TopicPartition]) -> None:
        """Make sure that the group assigns partitions to this member, inside `assigned`.

        librdkafka may have joined again before the callback, so that the membership is of a later
        generation than the partitions (see `Rebalancing`).

        Raises:
            AssignmentLapsed: it does not; another assignment follows.
            ClusterUnreachable: the group cannot be described now.
        """
        if self._rebalancing is None or self._admin is None or not partitions:
            return
        found = self._admin.describe_group(self._group.group_id)
        if not self._rebalancing.is_confirmed(partitions, found):
            raise AssignmentLapsed(f"group {self._group.group_id} has another assignment by now")

    def committed(self, partitions: Sequence[TopicPartition]) -> list[Position]:
        """Return the stable committed positions (waits for pending transactional offsets).

        Raises:
            Retriable: they could not be read within the request timeout.
        """
        wanted = partitions_to_kafka(partitions)
        try:
            try:
                answers = self._consumer.committed(wanted, timeout=self._request_timeout_seconds)
            except KafkaException as error:
                self._raise(error, Call.COMMITTED)
            self._raise_any(answers, Call.COMMITTED)
        except Retriable as error:
            # librdkafka repeats the request while offsets are pending, until the timeout.
            raise Retriable(
                f"{error}. If this lasts, a transaction may hold the offsets: `eosframework txn "
                "hanging --topic __consumer_offsets` shows whose it is, and how to end it"
            ) from error
        return [committed_position(answer) for answer in answers]

    def decided(self, partitions: Sequence[TopicPartition]) -> list[Position]:
        """Return the committed positions, without waiting for the offsets of open transactions.

        A suspended worker may have left some, for as long as its transaction lasts.
        """
        assert self._admin is not None, "composed without an admin client"
        return self._admin.committed(self._group.group_id, partitions, stable=False)

    def commit(self, positions: Sequence[Position]) -> None:
        """Commit positions outside any transaction, for at-least-once processing.

        Raises:
            TransactionError: they may not have been committed.
        """
        offsets = [to_kafka(position) for position in positions]
        try:
            answers = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            self._raise(error, Call.SEND_OFFSETS)
        self._raise_any(answers, Call.SEND_OFFSETS)

    def tell(self, positions: Sequence[Position]) -> None:
        """Commit to the consumer group for lag monitoring only; never waits and may fail silently.

        The authoritative positions are kept elsewhere.
        """
        offsets = [to_kafka(position) for position in positions]
        with suppress(KafkaException):
            self._consumer.commit(offsets=offsets, asynchronous=True)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Deliver messages of these partitions again.

        A partition that was assigned or moved while it was paused is moved to its position once
        more, because librdkafka would start to fetch it up to a second later:

        1. All partitions of a broker are paused, so librdkafka's thread for it finds none to fetch
           and sleeps for up to a second (`rd_kafka_broker_consumer_serve`).
        2. A resume clears a flag and wakes no thread (`rd_kafka_toppar_pause_resume`).
        3. A seek above offset 0 wakes it (`rd_kafka_toppar_set_fetch_state`), and then it fetches
           every partition of the broker.
        """
        self._consumer.resume(partitions_to_kafka(partitions))
        for start in filter(None, [self._starts.pop(p, None) for p in partitions]):
            # Refused: the partition is not started yet, and its start wakes the thread.
            with suppress(KafkaException):
                self._consumer.seek(start)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Deliver no message of these partitions until `resume`."""
        self._consumer.pause(partitions_to_kafka(partitions))

    def seek(self, positions: Sequence[Position]) -> None:
        """Resume at these positions; the partitions are assigned to this member.

        Raises:
            RunError: a partition is not assigned.
            InstanceFenced: nor will it be: another member joined with this one's instance name.
        """
        positions = list(map(self._past_markers, positions))
        for position in positions:
            self._seek(to_kafka(position))
        self._note_starts(positions)

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition's log."""
        return self._offsets(partitions, _BEGINNING)

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the last stable offset of each partition."""
        return self._offsets(partitions, _END)

    def high_watermarks(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of each partition's log; a `read_committed` consumer cannot ask for it."""
        assert self._admin is not None, "composed without an admin client"
        return self._admin.high_watermarks(partitions)

    def partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
        """Return every partition of `topics`.

        Raises:
            RunError: a topic does not exist or may not be described.
        """
        found: list[TopicPartition] = []
        for topic in topics:
            try:
                metadata = self._consumer.list_topics(topic, timeout=self._request_timeout_seconds)
            except KafkaException as error:
                self._raise(error, Call.COMMITTED)
            description = metadata.topics[topic]
            if description.error is not None:
                raise RunError(
                    f"topic {topic} cannot be described ({description.error}); create it, or "
                    f"grant Describe on it"
                )
            found += [TopicPartition(topic, number) for number in sorted(description.partitions)]
        return found

    def lag(self, positions: Mapping[TopicPartition, int]) -> int:
        """Return the number of offsets after `positions`, as of the last fetches.

        Transaction markers count as well, so leave out partitions that are read to their end.
        """
        lag = 0
        for (topic, number), position in positions.items():
            partition = KafkaPartition(topic, number)
            # A partition that was added just now is not in the client's metadata yet.
            with suppress(KafkaException):
                _, high = self._consumer.get_watermark_offsets(partition, cached=True)
                lag += max(0, high - position)
        return lag

    def close(self, *, leave: bool) -> None:
        """Stop consuming. With `leave` the partitions go to other members at once.

        1. Wait until a pending join is answered: otherwise the broker would keep a static member
           that has gone meanwhile, with partitions, until its session times out.
        2. Unsubscribe, and serve the callbacks until the listener has let the partitions go.
        3. Only then close: a static member that closes at once stays in the group until its session
           times out (KIP-345); one that has unsubscribed before leaves it.

        Raises:
            Exception: the listener's exception; the consumer is closed nevertheless.
        """
        try:
            if leave and self._rebalancing is not None and self._fatal is None:
                self._rebalancing.take_no_more()
                self._leave()
        finally:
            self._consumer.close()
            if self._rebalancing is not None:
                self._rebalancing.raise_pending()

    def _leave(self) -> None:
        deadline = Deadline(LEAVE_SECONDS)
        while not self._consumer.memberid() and not deadline.is_over:
            self._consumer.poll(deadline.timeout(at_most=0.02))
        try:
            self._consumer.unsubscribe()
        except KafkaException as error:
            # A member fenced by another of its name is in no group, whether it knows or not.
            self._events.warning("group_not_left", error=str(error))
            return
        while not deadline.is_over:
            self._consumer.poll(deadline.timeout(at_most=0.02))
            if not self._consumer.assignment() and not self._consumer.memberid():
                return
        self._events.warning("group_not_left", waited_seconds=LEAVE_SECONDS)

    def _consume(self, limit: int, timeout_seconds: float) -> list[Message]:
        try:
            messages = self._consumer.consume(limit, timeout_seconds)
        except KafkaException as error:
            self._raise(error, Call.CONSUME)
        if self._rebalancing is not None:
            self._rebalancing.raise_pending()
        if self._fatal is not None:
            self._raise(KafkaException(self._fatal), Call.CONSUME)
        return messages

    def _without_errors(
        self,
        messages: list[Message],
        ends: dict[TopicPartition, int],
        damaged: dict[TopicPartition, RunError],
    ) -> list[Message]:
        """Return the messages without errors.

        Note partition ends and unreadable batches; raise other permanent errors.
        """
        proper: list[Message] = []
        for message in messages:
            error = message.error()
            if error is None:
                proper.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                ends[_coordinates(message)] = cast("int", message.offset())
            elif error.code() in UNREADABLE and message.topic() is not None:
                partition = _coordinates(message)
                damaged[partition] = RunError(unreadable(partition, message.offset(), error))
            else:
                self._judge(error, message)
        return proper

    def _judge(self, error: KafkaError, message: Message) -> None:
        if error.code() in (
            KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001
            KafkaError.OFFSET_OUT_OF_RANGE,
        ):
            position = cast("int", message.offset())
            if self._is_read_from(partition := _coordinates(message), position):
                raise self._position_lost(partition, position)
            self._events.info("position_left_behind", partition=str(partition), offset=position)
            return
        if error.code() in (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.GROUP_AUTHORIZATION_FAILED,
        ):
            self._fatal = error
            raise RunError(
                f"group {self._group.group_id} may not read"
                f"{' topic ' + topic if (topic := message.topic()) else ''} ({error.str()}); grant "
                f"Read on the topic and Read on the group"
            )
        if error.code() == KafkaError._FATAL:  # noqa: SLF001
            error = self._fatal = _cause_of_fatal(error)
        raised = exception_for(error, Call.CONSUME, transactional_id=None)
        if not isinstance(raised, Retriable):
            raise RunError(str(raised)) if isinstance(raised, TransactionError) else raised
        self._report_once(error)

    def _is_read_from(self, partition: TopicPartition, offset: int) -> bool:
        """Return whether a partition is read from an offset now, and not before it was given up.

        1. a member is suspended; another one gets its partitions, reads on, and what is read of
        them is purged  2. it resumes: librdkafka notes that they are lost, and requests the old
        offset once more  3. the callback of the loss is served, and the next message is the error:
        librdkafka never takes this one for outdated (`rd_kafka_offset_reset`: version 0).
        """
        is_held = self._rebalancing is None or self._rebalancing.holds(partition)
        return is_held and offset >= self._next.get(partition, offset)

    def _past_markers(self, position: Position) -> Position:
        """Return a position after markers that were read already.

        1. a transaction is aborted before the marker after its last record is committed  2. its
        worker rewinds to that marker, which retention has removed meanwhile. Nothing is lost.
        """
        since, until = self._empty.get(position.topic_partition, (0, 0))
        is_known = position.offset is not None and since <= position.offset < until
        return replace(position, offset=until) if is_known else position

    def _position_lost(self, partition: TopicPartition, position: int) -> PositionLost:
        try:
            first = self.beginning_offsets([partition])[partition]
            last = self.end_offsets([partition])[partition]
            holds = f"the log holds {first} to {last}"
        except EosError as error:
            holds = f"its bounds could not be read: {error}"
        return PositionLost(
            f"{partition}: the next offset to read, {position}, is not in the log ({holds}). "
            f"Records may be lost to retention or with a broker, or the topic was made anew. Stop "
            f"all workers and set where to go on: {self._repositioning} '{partition}=OFFSET'"
        )

    def _offsets(
        self, partitions: Sequence[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        wanted = [KafkaPartition(topic, number, timestamp) for topic, number in partitions]
        try:
            answers = self._consumer.offsets_for_times(
                wanted, timeout=self._request_timeout_seconds
            )
        except KafkaException as error:
            self._raise(error, Call.COMMITTED)
        self._raise_any(answers, Call.COMMITTED)
        return {from_kafka(answer): answer.offset for answer in answers}

    def _note_starts(self, positions: Sequence[Position]) -> None:
        """Note the positions from which partitions are read next, where a seek wakes librdkafka."""
        for position in positions:
            self._starts.pop(position.topic_partition, None)
            self._next.pop(position.topic_partition, None)
            self._moved.add(position.topic_partition)
            if position.offset is not None:
                self._next[position.topic_partition] = position.offset
            if position.offset:
                self._starts[position.topic_partition] = to_kafka(position)

    def _seek(self, partition: KafkaPartition) -> None:
        """Seek; a partition assigned just now cannot be moved for a moment."""
        deadline = Deadline(self._request_timeout_seconds)
        while True:
            try:
                self._consumer.seek(partition)
                return
            except KafkaException as error:
                starting = error.args[0].code() == KafkaError._STATE  # noqa: SLF001
                if not starting or deadline.is_over or not self._consumer.assignment():
                    self.fetch(1, FENCE_SECONDS)  # Raises a fence that is not reported yet.
                    raise RunError(
                        f"{from_kafka(partition)} cannot be moved to offset {partition.offset}: "
                        f"{error.args[0].str()}"
                    ) from error
            time.sleep(0.005)

    def _raise_any(self, answers: Sequence[KafkaPartition], call: Call) -> None:
        for answer in answers:
            if answer.error is not None:
                self._raise(KafkaException(answer.error), call)

    def _raise(self, error: KafkaException, call: Call) -> NoReturn:
        raise exception_for(
            error, call, transactional_id=None, detail=f"group {self._group.group_id}"
        ) from error

    def _remember(self, error: KafkaError) -> None:
        """Record an error that librdkafka reports outside any call; it reconnects by itself."""
        if error.fatal() or error.code() == KafkaError._FATAL:  # noqa: SLF001
            self._fatal = _cause_of_fatal(error)
        else:
            self._report_once(error)

    def _report_once(self, error: KafkaError) -> None:
        if error.code() not in self._reported:
            self._reported.add(error.code())
            self._events.warning("consumer_error", code=error.name(), error=error.str())


def _cause_of_fatal(error: KafkaError) -> KafkaError:
    """Return the cause of a consumer's _FATAL, for which librdkafka has only the text."""
    text = error.str() or ""
    fenced = KafkaError(KafkaError.FENCED_INSTANCE_ID).str() or ""
    return KafkaError(KafkaError.FENCED_INSTANCE_ID, text) if fenced in text else error


def _coordinates(message: Message) -> TopicPartition:
    return TopicPartition(cast("str", message.topic()), cast("int", message.partition()))
