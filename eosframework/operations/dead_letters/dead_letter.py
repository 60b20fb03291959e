"""One dead letter: its original record, and its data for display."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import orjson
from pydantic import BaseModel

from eosframework.application.context import ApplicationContext
from eosframework.application.replay_marks import Marks, Range
from eosframework.config import KafkaSettings
from eosframework.engine.failures.dead_letter_forms import Form, digest, unpacked
from eosframework.engine.failures.failure_headers import (
    HEADER_ATTEMPTS,
    HEADER_DIGEST,
    HEADER_EXCEPTION,
    HEADER_FAILED,
    HEADER_FORM,
    HEADER_OFFSET,
    HEADER_PARTITION,
    HEADER_REPLAYED,
    HEADER_SIZE,
    HEADER_STEP,
    HEADER_TOPIC,
    Headers,
    as_it_came,
)
from eosframework.engine.task.receipts import HEADER_RECEIPT, Receipt
from eosframework.engine.task.transaction_receipts import HEADER_TRANSACTION, TransactionReceipt
from eosframework.errors import ConfigurationError, PositionLost, RunError, raised_by_functions
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import TopicDescription
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.records import EARLIEST_OUTPUT_MS, TopicPartition
from eosframework.serialization.moments import moment_ms, moment_text
from eosframework.serialization.serdes import BYTES, Serde
from eosframework.topology.graph.graph import Graph
from eosframework.topology.graph.walk import dead_letter_topics
from eosframework.transactions.ports import Message, Output


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be processed, as stored in its dead-letter topic.

    Args:
        partition: of the dead-letter topic.
        offset: in the dead-letter topic.
        origin: source partition of the record.
        origin_offset: its offset there.
        step: the failed step; its name begins with that of its stream or source.
        error: in one line.
        failed_at: milliseconds since the epoch; None: written by a version without this header.
        attempts: number of failed attempts.
        replayed_from: place of the dead letter that was replayed as this record; None: not a
            replay.
        stored: value of the dead letter, in its form.
        timestamp: event time of the record, in milliseconds.
        headers: original headers of the record.
        form: bare: key and headers of the record are unknown here.
        size: bytes of the record's value, unless the form is whole.
        digest: of the record, likewise.
    """

    partition: TopicPartition
    offset: int
    origin: TopicPartition
    origin_offset: int
    step: str
    error: str
    failed_at: int | None
    attempts: int
    replayed_from: str | None
    key: bytes | None
    stored: bytes | None
    timestamp: int
    headers: Headers
    form: Form = Form.WHOLE
    size: int = 0
    digest: str = ""

    @property
    def place(self) -> str:
        """Place of the dead letter: `TOPIC[PARTITION]@OFFSET`."""
        return f"{self.partition}@{self.offset}"

    @property
    def input(self) -> str:
        """Place of the source record, in the same format."""
        return f"{self.origin}@{self.origin_offset}"

    @property
    def value(self) -> bytes | None:
        """The record's value; None: it has none, or the dead letter does not hold it."""
        if self.form is Form.GZIP:
            return unpacked(self.stored or b"", self.size)
        return self.stored

    @property
    def left_out(self) -> str | None:
        """Text about the parts of the record that the dead letter does not hold."""
        if self.form not in (Form.PLACE, Form.BARE):
            return None
        parts = "value" if self.form is Form.PLACE else "key, value and headers"
        return f"{parts}: the record was too large ({self.size:,} bytes of value)"

    @property
    def kind(self) -> str:
        """Type of the error."""
        return self.error.partition(":")[0]

    @classmethod
    def parse(cls, message: Message) -> DeadLetter | None:
        """Parse a dead letter; None: the record is not a dead letter of this framework."""
        pairs = message.headers() or []
        if not _is_ours(pairs):
            return None
        said = {name: (value or b"").decode(errors="replace") for name, value in pairs}
        try:
            origin = TopicPartition(said[HEADER_TOPIC], int(said[HEADER_PARTITION]))
            offset = int(said[HEADER_OFFSET])
            failed_at = int(said[HEADER_FAILED]) if HEADER_FAILED in said else None
            attempts = int(said.get(HEADER_ATTEMPTS, 1))
            # A record may have come with such headers; only those after the error are ours.
            names = [name for name, _ in pairs]
            form = Form.WHOLE
            if HEADER_FORM in names[_last(names, HEADER_EXCEPTION) :]:
                form = Form(said[HEADER_FORM])
            size = int(said.get(HEADER_SIZE, 0)) if form is not Form.WHOLE else 0
        except (KeyError, ValueError):
            return None
        return cls(
            partition=TopicPartition(message.topic(), message.partition()),
            offset=message.offset(),
            origin=origin,
            origin_offset=offset,
            step=said.get(HEADER_STEP, ""),
            error=said.get(HEADER_EXCEPTION, ""),
            failed_at=failed_at,
            attempts=attempts,
            replayed_from=said.get(HEADER_REPLAYED),
            key=message.key(),
            stored=message.value(),
            timestamp=max(message.timestamp()[1], EARLIEST_OUTPUT_MS),
            headers=as_it_came(pairs),
            form=form,
            size=size,
            digest=said.get(HEADER_DIGEST, "") if form is not Form.WHOLE else "",
        )

    def restored(self, record: Message | None) -> DeadLetter | None:
        """Return it with its whole record; None: that is neither here nor given.

        Args:
            record: found at the place of the record in its source; None: there is none.
        """
        if self.form is Form.WHOLE:
            return self
        if self.form is Form.GZIP and (value := self.value) is not None:
            return replace(self, stored=value, form=Form.WHOLE)
        if record is None:
            return None
        key, value, found = record.key(), record.value(), list(record.headers() or ())
        # In a topic of retries or replays it has headers that its steps did not see.
        for headers in (found, as_it_came(found)):
            if digest(key, value, headers) == self.digest:
                return replace(self, key=key, stored=value, headers=headers, form=Form.WHOLE)
        return None

    def again(self, application: str, topic: str, partitions: int) -> Output:
        """Return the original record as an output, to be processed again.

        It goes to the partition of the source record if the topic has that partition, and has a
        header with the place of the dead letter.

        Args:
            application: receipts of this application are removed.
            topic: target topic.
            partitions: number of partitions of that topic.
        """
        number = self.origin.partition if 0 <= self.origin.partition < partitions else -1
        kept = [(n, v) for n, v in self.headers if not _is_receipt_of(application, n, v)]
        headers = [*kept, (HEADER_REPLAYED, self.place.encode())]
        return (topic, self.value, self.key, number, None, None, self.timestamp, headers)


def _last(names: list[str], name: str) -> int:
    return len(names) - 1 - names[::-1].index(name) if name in names else 0


def _is_ours(headers: Iterable[tuple[str, bytes | None]]) -> bool:
    """Return whether this framework wrote a dead letter last.

    Kafka Streams writes the same headers (KIP-1034), also after those of a dead letter of ours that
    it read. It has no header for the step, which follows the others here.
    """
    names = [name for name, _ in headers if name in (HEADER_TOPIC, HEADER_STEP)]
    return bool(names) and names[-1] == HEADER_STEP


def _is_receipt_of(application: str, name: str, value: bytes | None) -> bool:
    if name == HEADER_TRANSACTION:
        found = TransactionReceipt.parse(value)
        return found is not None and found.application == application
    if name != HEADER_RECEIPT:
        return False
    receipt = Receipt.parse(value)
    return receipt is not None and receipt.application == application


def shown(graph: Graph, letter: DeadLetter, *, was_replayed: bool) -> dict[str, Any]:
    """Return the data of a dead letter for display.

    Key and value are decoded with the serdes of the record's source topic. Where that fails, or no
    source reads this topic, they are text; bytes that are not UTF-8 become `{"hex": …}`.

    Args:
        graph: of the application.
        letter: the dead letter.
        was_replayed: the dead letter has a replay mark.
    """
    sources = {s.topic: s for part in graph.sub_topologies for s in part.sources}
    source = sources.get(letter.origin.topic)
    return {
        "letter": letter.place,
        "input": letter.input,
        "step": letter.step,
        "error": letter.error,
        "failed_at": None if letter.failed_at is None else moment_text(letter.failed_at),
        "attempts": letter.attempts,
        "replayed": was_replayed,
        "replayed_from": letter.replayed_from,
        "timestamp": moment_text(letter.timestamp),
        "key": _decoded(letter.key, source.key if source else BYTES),
        "value": _decoded(letter.value, source.value if source else BYTES),
        "left_out": letter.left_out,
        "headers": [{"name": name, "value": _plain(value)} for name, value in letter.headers],
    }


def _decoded(data: bytes | None, serde: Serde) -> Any:
    if data is None or serde.decode is None:
        return _plain(data)
    try:
        value = serde.decode(data)
        plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
        orjson.dumps(plain)
    except raised_by_functions():  # the undecodable value may be the reason of the dead letter
        return _plain(data)
    return plain


def _plain(data: Any) -> Any:
    if not isinstance(data, bytes):
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}


_PLACES = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]+)\[(?P<partition>[0-9]{1,9})\]@(?P<first>[0-9]{1,18})(-(?P<last>[0-9]{1,18}))?"
)


@dataclass(frozen=True, slots=True)
class DeadLetterPlace:
    """One dead letter, or consecutive ones, of one partition of a dead-letter topic.

    Args:
        first: offset of the first one.
        last: offset of the last one.
    """

    partition: TopicPartition
    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `TOPIC[PARTITION]@OFFSET` or `TOPIC[PARTITION]@FIRST-LAST`.

        Raises:
            ConfigurationError: the text is neither.
        """
        match = _PLACES.fullmatch(text.strip())
        if match is None or int(match["last"] or match["first"]) < int(match["first"]):
            raise ConfigurationError(
                f"{text!r} is not a place of dead letters; expected TOPIC[PARTITION]@OFFSET, or "
                f"TOPIC[PARTITION]@FIRST-LAST for several, as `dead-letters list` shows them"
            )
        first = int(match["first"])
        partition = TopicPartition(match["topic"], int(match["partition"]))
        return cls(partition, first, int(match["last"] or first))

    def covers(self, letter: DeadLetter) -> bool:
        """Return whether a dead letter lies in this range."""
        return letter.partition == self.partition and self.first <= letter.offset <= self.last


@dataclass(frozen=True, slots=True)
class Choice:
    """Criteria for dead letters; an empty criterion selects all.

    Args:
        topic: dead-letter topic.
        error: a part of the error's text.
        places: ranges of offsets.
        since_ms: earliest time of failure; excludes dead letters without a time.
    """

    topic: str | None = None
    error: str | None = None
    places: tuple[DeadLetterPlace, ...] = ()
    since_ms: int | None = None

    @property
    def is_all(self) -> bool:
        """True without any criterion."""
        return self == Choice()

    def takes(self, letter: DeadLetter) -> bool:
        """Return whether a dead letter is selected."""
        if self.topic is not None and letter.partition.topic != self.topic:
            return False
        if self.error is not None and self.error not in letter.error:
            return False
        if self.since_ms is not None and (letter.failed_at or 0) < self.since_ms:
            return False
        return not self.places or any(place.covers(letter) for place in self.places)

    def refuse_unknown_topics(self, known: Iterable[str]) -> None:
        """Raise if a criterion names a topic that is not a dead-letter topic.

        Raises:
            ConfigurationError: lists the dead-letter topics.
        """
        known = sorted(known)
        for topic in filter(None, (self.topic, *(p.partition.topic for p in self.places))):
            if topic not in known:
                raise ConfigurationError(
                    f"{topic!r} is not a dead-letter topic of this application; it has "
                    f"{', '.join(known) or 'none'}"
                )


def moment_of(text: str) -> int:
    """Parse a time in ISO 8601, to milliseconds since the epoch; without a zone it is UTC.

    Raises:
        ConfigurationError: the text is not a time.
    """
    try:
        return moment_ms(text.strip())
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is not a time; expected ISO 8601, for example 2026-01-31T12:00:00Z"
        ) from None


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
