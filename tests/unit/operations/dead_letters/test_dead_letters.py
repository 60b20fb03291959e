"""A letter is read back into the record that it was, and is chosen by what it says."""

from __future__ import annotations

import pytest

from eosframework.engine.failures.failure_handler import Site, dead_letter
from eosframework.errors import ConfigurationError
from eosframework.operations.dead_letters import Choice, DeadLetter, DeadLetterPlace, moment_of
from eosframework.records import TopicPartition
from tests.unit.engine.messages import DEAD, Sent


class Lying:
    """A dead letter as its topic gives it."""

    def __init__(self, record: Sent, at_ms: int = 5000, offset: int = 7) -> None:
        output = dead_letter(Site("late.to(out)", DEAD), record, ValueError("no"), at_ms)
        self._topic, self._value, self._key, _, _, _, self._timestamp, self._headers = output
        self._offset = offset

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return 1

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return 1, self._timestamp

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self._headers


def letter_of(record: Sent, at_ms: int = 5000, offset: int = 7) -> DeadLetter:
    letter = DeadLetter.parse(Lying(record, at_ms, offset))
    assert letter is not None
    return letter


RECORD = Sent(b"42", 11, b"key", 1234, [("trace", b"1"), ("trace", None)])


def test_a_letter_says_what_failed_where_and_when() -> None:
    letter = letter_of(RECORD)
    assert (letter.place, letter.input) == ("dead[1]@7", "in[3]@11")
    assert (letter.step, letter.error, letter.kind) == (
        "late.to(out)",
        "ValueError: no",
        "ValueError",
    )
    assert (letter.failed_at, letter.attempts, letter.timestamp) == (5000, 1, 1234)


def test_a_replayed_record_is_what_it_was_and_says_which_letter_it_was() -> None:
    output = letter_of(RECORD).again("app", "in", partitions=4)
    topic, value, key, partition, _, _, timestamp, headers = output
    assert (topic, value, key, partition, timestamp) == ("in", b"42", b"key", 3, 1234)
    assert headers == [("trace", b"1"), ("trace", None), ("__eos.errors.replayed", b"dead[1]@7")]


def test_where_there_are_fewer_partitions_the_key_decides() -> None:
    assert letter_of(RECORD).again("app", "in", partitions=3)[3] == -1


def test_what_failed_elsewhere_before_keeps_those_headers() -> None:
    upstream = [
        ("__streams.errors.topic", b"theirs"),
        ("__streams.errors.exception", b"their error"),
    ]
    letter = letter_of(Sent(b"1", headers_=upstream))
    assert letter.headers == upstream
    assert letter.origin == TopicPartition("in", 3)


def test_the_receipt_of_the_application_does_not_come_back() -> None:
    ours, theirs = (
        ("__eos.receipt", f"1/{name}/0/in/3/11/0/1/0/0/1".encode()) for name in ("app", "other")
    )
    for receipt, stays in ((ours, False), (theirs, True)):
        headers = letter_of(Sent(b"1", headers_=[receipt])).again("app", "in", 4)[7]
        assert (receipt in headers) is stays


def test_a_record_that_is_no_letter_is_none() -> None:
    assert DeadLetter.parse(RECORD) is None


def test_a_dead_letter_of_kafka_streams_is_none_also_of_a_dead_letter_of_ours() -> None:
    theirs = [
        ("__streams.errors.exception", b"java.lang.ArithmeticException"),
        ("__streams.errors.message", b"/ by zero"),
        ("__streams.errors.stacktrace", b"at com.example.Main"),
        ("__streams.errors.topic", b"in"),
        ("__streams.errors.partition", b"0"),
        ("__streams.errors.offset", b"3"),
    ]
    ours = Lying(RECORD).headers() or []
    assert DeadLetter.parse(Sent(b"1", headers_=theirs)) is None
    assert DeadLetter.parse(Sent(b"1", headers_=[*ours, *theirs])) is None
    assert letter_of(Sent(b"1", headers_=theirs)).headers == theirs


@pytest.mark.parametrize(
    ("choice", "takes"),
    [
        (Choice(), True),
        (Choice(topic="dead"), True),
        (Choice(topic="other"), False),
        (Choice(error="no"), True),
        (Choice(error="yes"), False),
        (Choice(since_ms=5000), True),
        (Choice(since_ms=5001), False),
        (Choice(places=(DeadLetterPlace.parse("dead[1]@7"),)), True),
        (Choice(places=(DeadLetterPlace.parse("dead[1]@5-6"),)), False),
        (Choice(places=tuple(map(DeadLetterPlace.parse, ("dead[0]@7", "dead[1]@5-9")))), True),
        (Choice(error="no", since_ms=6000), False),
    ],
)
def test_a_choice_takes_what_all_of_it_holds_for(choice: Choice, takes: bool) -> None:
    assert choice.takes(letter_of(RECORD)) is takes


@pytest.mark.parametrize("text", ["", "dead", "dead[0]", "dead[0]@x", "dead[0]@9-3", "7"])
def test_a_place_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a place of dead letters"):
        DeadLetterPlace.parse(text)


def test_a_time_without_a_zone_is_utc() -> None:
    assert moment_of("1970-01-01T00:00:05") == moment_of("1970-01-01T01:00:05+01:00") == 5000
    with pytest.raises(ConfigurationError, match="ISO 8601"):
        moment_of("yesterday")
