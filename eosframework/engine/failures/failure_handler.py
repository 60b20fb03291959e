"""Handling of records that fail or are late: fail, skip, retry, or dead letter."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from eosframework.engine.conversions import moment
from eosframework.engine.failures.dead_letter_forms import fitted
from eosframework.engine.failures.failure_headers import (
    HEADER_ATTEMPTS,
    HEADER_DUE,
    HEADER_EXCEPTION,
    HEADER_FAILED,
    HEADER_FIRST_FAILED,
    HEADER_MESSAGE,
    HEADER_OFFSET,
    HEADER_PARTITION,
    HEADER_REPLAYED,
    HEADER_STACKTRACE,
    HEADER_STEP,
    HEADER_TOPIC,
    Headers,
    RetriedRecord,
)
from eosframework.engine.failures.refused_outputs import NO_LIMITS, OutputLimits
from eosframework.errors import (
    DataRejected,
    InstanceFenced,
    RecordFailed,
    RunError,
    TransactionError,
    raised_by_functions,
)
from eosframework.records import EARLIEST_OUTPUT_MS
from eosframework.topology.graph.graph import OnError, Policy
from eosframework.transactions.ports import Message, Output

Delays = Mapping[str, Mapping[int, str]]
"""By source topic and delay in milliseconds, the retry topic with this delay."""


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the topology where a record can fail, with its error policy."""

    name: str
    on_error: OnError


STACK_TRACE_BYTES = 4000
"""The longest stack trace of a dead letter; its end says what failed, so its beginning is cut."""

STACK_TRACE_CALLS = 20
"""So many calls of an error, and of each error that it came from, are in a stack trace."""


class FailureHandler:
    """Applies the policy of the step that failed, and counts.

    Attributes:
        skipped: records dropped by `skip`.
        dead_letters: records written by `dead_letter`.
        retries: records sent to a retry topic.

    Args:
        delays: see `Delays`; if it lacks the delay of a policy, a record becomes a dead letter at
            once.
        now: returns seconds since the epoch.
        internal_topics: topics that only the application writes.
        limits: known limits of output topics, by topic.
    """

    def __init__(
        self,
        delays: Delays | None = None,
        now: Callable[[], float] = time.time,
        internal_topics: Collection[str] = (),
        limits: Mapping[str, OutputLimits] | None = None,
    ) -> None:
        self.skipped = 0
        self.dead_letters = 0
        self.retries = 0
        self._delays = delays or {}
        self._now = now
        self._internal_topics = internal_topics
        self._limits = limits or {}

    def __call__(
        self, site: Site, message: Message, error: BaseException, out: list[Output]
    ) -> None:
        """Drop the record, append its dead letter or retry, or raise.

        Raises:
            RecordFailed: the policy is to fail; records before this one are complete.
            EosError: the framework raised it, so it does not depend on the record.
        """
        if is_of_the_framework(error):
            raise error
        match site.on_error.policy:
            case Policy.SKIP:
                self.skipped += 1
            case Policy.DEAD_LETTER:
                out.append(self._put_aside(site, message, error))
            case Policy.FAIL:
                raise RecordFailed(
                    f"{describe(message)} failed in step {site.name!r}: {summary(error)}. "
                    f"Nothing after it was processed. {self._next_step(error)}",
                    offset=message.offset(),
                ) from error

    def _next_step(self, error: BaseException) -> str:
        if isinstance(error, DataRejected) and error.topic in self._internal_topics:
            return (
                f"Raise max.message.bytes of {error.topic}, an internal topic: kafka-configs "
                f"--alter --topic {error.topic} --add-config max.message.bytes=BYTES. Then start "
                f"the workers again"
            )
        return (
            "Fix the function or the record, or let the stream continue without it: on_error: "
            "skip, or {dead_letter: TOPIC}"
        )

    def refuse_unfit_topic(self, error: DataRejected) -> None:
        """Raise if an internal topic rejects a record for another reason than its size.

        Its settings are at fault then: with those that a start requires it takes every record.

        Raises:
            RunError: names the topic.
        """
        if error.topic in self._internal_topics and not error.is_too_large:
            raise RunError(
                f"internal topic {error.topic!r} rejects a record of this application ({error}). "
                f"No record is at fault, but a setting of the topic, which is not as it was "
                f"created: `eosframework doctor APP` names it, and how to set it. Then start the "
                f"workers again; nothing is lost"
            ) from error

    def _put_aside(self, site: Site, message: Message, error: BaseException) -> Output:
        """Return the record for its retry topic, or as a dead letter.

        Data that the broker rejects is never retried: it would be rejected each time.
        """
        now_ms = round(self._now() * 1000)
        attempts = message.attempts if isinstance(message, RetriedRecord) else 0
        left = site.on_error.retry_ms[attempts:]
        topics = self._delays.get(_origin(message)[0], {})
        if left and left[0] in topics and not isinstance(error, DataRejected):
            self.retries += 1
            return _next_attempt(site, message, error, topics[left[0]], now_ms, left[0])
        self.dead_letters += 1
        most_bytes = self._limits.get(site.on_error.topic or "", NO_LIMITS).value_bytes
        if isinstance(error, DataRejected) and error.is_of_dead_letter:
            most_bytes = 0
        return dead_letter(site, message, error, now_ms, most_bytes)


def is_of_the_framework(error: BaseException) -> bool:
    """Return whether a store, a broker or the schema registry failed, regardless of the record.

    User functions raise none of these, and a rejection of data by the broker belongs to the record.
    """
    found = isinstance(error, (RunError, InstanceFenced, TransactionError))
    return found and not isinstance(error, DataRejected)


def dead_letter(
    site: Site,
    message: Message,
    error: BaseException,
    now_ms: int | None = None,
    most_bytes: int | None = None,
) -> Output:
    """Return the record as it came, with headers for the place and reason of its failure.

    If it does not fit the topic, it has another form (`dead_letter_forms`).

    Args:
        site: the step, with the topic of its policy.
        message: the record.
        error: the reason.
        now_ms: the time in milliseconds since the epoch; None: now.
        most_bytes: the largest record that the topic takes; None: unknown.
    """
    topic = site.on_error.topic
    assert topic is not None, "a dead_letter policy has a topic"
    now_ms = round(time.time() * 1000) if now_ms is None else now_ms
    original = list(message.headers() or ())
    added = _said_of(site, message, error, now_ms)
    key, value, headers = fitted(message.key(), message.value(), original, added, most_bytes)
    timestamp = max(message.timestamp()[1], EARLIEST_OUTPUT_MS)
    return (topic, value, key, -1, None, None, timestamp, headers)


def _next_attempt(
    site: Site, message: Message, error: BaseException, topic: str, now_ms: int, delay_ms: int
) -> Output:
    """Return a record for a retry topic, in the partition of its task."""
    headers = [*(message.headers() or ()), *_said_of(site, message, error, now_ms)]
    if not isinstance(message, RetriedRecord):
        headers += [(HEADER_ATTEMPTS, b"1"), (HEADER_FIRST_FAILED, str(now_ms).encode())]
    headers.append((HEADER_DUE, str(now_ms + delay_ms).encode()))
    timestamp, partition = max(message.timestamp()[1], EARLIEST_OUTPUT_MS), message.partition()
    return (topic, message.value(), message.key(), partition, None, None, timestamp, headers)


def _said_of(site: Site, message: Message, error: BaseException, now_ms: int) -> Headers:
    topic, partition, offset = _origin(message)
    headers: Headers = [
        (HEADER_EXCEPTION, summary(error).encode()),
        (HEADER_MESSAGE, _text_of(error).encode()),
        (HEADER_STACKTRACE, stack_trace(error)),
        (HEADER_TOPIC, topic.encode()),
        (HEADER_PARTITION, str(partition).encode()),
        (HEADER_OFFSET, str(offset).encode()),
        (HEADER_STEP, site.name.encode()),
        (HEADER_FAILED, str(now_ms).encode()),
    ]
    if isinstance(message, RetriedRecord):
        headers.append((HEADER_ATTEMPTS, str(message.attempts + 1).encode()))
        headers.append((HEADER_FIRST_FAILED, message.first_failed_at or str(now_ms).encode()))
        if message.replayed is not None:
            headers.append((HEADER_REPLAYED, message.replayed))
    return headers


def _origin(message: Message) -> tuple[str, int, int]:
    if isinstance(message, RetriedRecord):
        return message.origin
    return message.topic(), message.partition(), message.offset()


def describe(message: Message) -> str:
    """Return the name of a record for messages."""
    return f"record {message.topic()}[{message.partition()}]@{message.offset()}"


def summary(error: BaseException) -> str:
    """Return an error as one line of bounded length that every encoding and database accepts."""
    text = _text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _text_of(error: BaseException) -> str:
    try:
        text = " ".join(writable(str(error)).split())
    except raised_by_functions():  # Of a user's own class.
        text = "it has no text"
    return text if len(text) <= 300 else text[:297] + "..."


def stack_trace(error: BaseException) -> bytes:
    """Return the innermost calls in which an error was raised, up to `STACK_TRACE_BYTES`."""
    try:
        lines = traceback.format_exception(error, limit=-STACK_TRACE_CALLS)
    except raised_by_functions():  # Of a user's own class.
        lines = [summary(error)]
    text = writable("".join(lines)).encode()
    if len(text) <= STACK_TRACE_BYTES:
        return text
    cut = text[3 - STACK_TRACE_BYTES :].decode(errors="ignore")
    return f"...{cut}".encode()


def writable(text: str) -> str:
    """Return a text with escapes for invalid UTF-8 and for NUL, which PostgreSQL rejects."""
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")


class LatePlace(NamedTuple):
    """A step that leaves records out, and their topic."""

    step: str
    topic: str


class LeftOut:
    """Counts the records that steps of a task leave out; a dropped transaction counts none."""

    def __init__(self) -> None:
        self.committed: Counter[LatePlace] = Counter()
        self._open: Counter[LatePlace] = Counter()

    @property
    def count(self) -> int:
        """The number of records, including those of the open transaction."""
        return self.committed.total() + self._open.total()

    def settle(self) -> None:
        """Take the records of the open transaction as committed."""
        self.committed += self._open
        self._open.clear()

    def drop(self) -> None:
        """Discard the records of the open transaction; they run again."""
        self._open.clear()

    def note(self, step: str, message: Message) -> None:
        """Count a record that a step leaves out."""
        self._open[LatePlace(step, _origin(message)[0])] += 1


class LateRecords(LeftOut):
    """Counts the late records of a task.

    Args:
        limits: known limits of output topics, by topic.
    """

    def __init__(self, limits: Mapping[str, OutputLimits] | None = None) -> None:
        super().__init__()
        self._limits = limits or {}

    def __call__(self, site: Site, message: Message, stream_time: int, out: list[Output]) -> None:
        """Count a record, and send it to the topic of late records, if there is one.

        It is sent as it came if it fits, else in another form, as a dead letter is.

        Args:
            site: the step for which it is late, with that topic.
            message: the record.
            stream_time: stream time of the task, in milliseconds.
            out: takes the record.
        """
        self.note(site.name, message)
        if site.on_error.topic is not None:
            behind_ms = stream_time - message.timestamp()[1]
            error = LateRecord(f"stream time is {moment(stream_time)}, {behind_ms} ms ahead")
            most_bytes = self._limits.get(site.on_error.topic, NO_LIMITS).value_bytes
            out.append(dead_letter(site, message, error, most_bytes=most_bytes))


class LateRecord(Exception):
    """The reason in the headers of a late record."""
