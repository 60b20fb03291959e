"""A record that failed waits for its next attempt, and nothing waits for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from eosframework.engine.failures.failure_handler import FailureHandler, Site
from eosframework.engine.failures.failure_headers import RetriedRecord
from eosframework.engine.task.input_queues import BUFFER_RECORDS, ArrivalQueue, Pending
from eosframework.engine.worker.retries import RetryQueue, delays_of
from eosframework.errors import DataRejected
from eosframework.records import TopicPartition
from eosframework.serialization.serdes import serde_of
from eosframework.topology.graph.graph import OnError, Policy, RetryOf, Source, SubTopology
from eosframework.transactions.ports import Output
from tests.unit.engine.messages import Sent, Written

MAIN, RETRY = TopicPartition("in", 3), TopicPartition("app-in.10s-retry", 3)
DELAYS = {"in": {10_000: "app-in.10s-retry", 60_000: "app-in.1m-retry"}}
SITE = Site("work", OnError(Policy.DEAD_LETTER, "dead", (10_000, 60_000), replay=True))


@dataclass
class Clock:
    seconds: float = 1000.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Failing:
    """A handler with what it gave."""

    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.handler = FailureHandler(DELAYS, self.clock)

    def fail(self, message: Sent | RetriedRecord, error: Exception | None = None) -> Output:
        out: list[Output] = []
        self.handler(SITE, message, error or ValueError("not yet"), out)
        [output] = out
        return output


RECORD = Sent(b"42", 11, b"key", 1234, [("trace", b"1")])


def said(output: Output) -> dict[str, bytes]:
    return dict(output[7])


def test_a_record_waits_each_delay_in_turn_and_is_a_dead_letter_then() -> None:
    failing = Failing()
    first = failing.fail(RECORD)
    assert first[:4] == ("app-in.10s-retry", b"42", b"key", 3)
    assert said(first)["__eos.errors.due"] == b"1010000"
    failing.clock.seconds = 1011
    second = failing.fail(RetriedRecord(Written(first)))
    assert second[0] == "app-in.1m-retry"
    assert said(second)["__eos.errors.due"] == b"1071000"
    failing.clock.seconds = 1072
    third = failing.fail(RetriedRecord(Written(second)))
    assert third[0] == "dead"
    assert (failing.handler.retries, failing.handler.dead_letters) == (2, 1)
    headers = said(third)
    assert headers.pop("__streams.errors.stacktrace").endswith(b"ValueError: not yet\n")
    assert headers == {
        "trace": b"1",
        "__streams.errors.message": b"not yet",
        "__streams.errors.topic": b"in",
        "__streams.errors.partition": b"3",
        "__streams.errors.offset": b"11",
        "__streams.errors.exception": b"ValueError: not yet",
        "__eos.errors.step": b"work",
        "__eos.errors.failed": b"1072000",
        "__eos.errors.attempts": b"3",
        "__eos.errors.first_failed": b"1000000",
    }


def test_steps_see_the_record_as_it_came() -> None:
    again = RetriedRecord(Written(Failing().fail(RECORD), 5))
    assert (again.key(), again.value(), again.timestamp()) == (b"key", b"42", (1, 1234))
    assert again.headers() == [("trace", b"1")]
    assert (again.topic(), again.partition(), again.offset()) == ("app-in.10s-retry", 3, 5)
    assert again.origin == ("in", 3, 11)


def test_what_the_broker_refuses_does_not_wait() -> None:
    assert Failing().fail(RECORD, DataRejected("too large"))[0] == "dead"


def test_without_topics_to_wait_in_a_record_is_a_dead_letter_at_once() -> None:
    out: list[Output] = []
    FailureHandler()(SITE, RECORD, ValueError(), out)
    assert out[0][0] == "dead"


def waiting(due_seconds: float, offset: int) -> Written:
    headers = [("__eos.errors.due", str(round(due_seconds * 1000)).encode())]
    return Written(("app-in.10s-retry", b"again", b"k", 3, None, None, 1, headers), offset)


def test_nothing_waits_for_what_is_not_due() -> None:
    clock = Clock()
    queue = RetryQueue(ArrivalQueue(), [RETRY], clock)
    queue.add(Pending(RETRY, [waiting(1010, 0), waiting(1020, 1)], "member"))
    assert not queue.is_ready()
    assert queue.sizes()
    queue.add(Pending(MAIN, [Sent(b"1", 1), Sent(b"2", 2)], "member"))
    assert queue.take(10).partition == MAIN
    assert not queue.is_ready()
    clock.seconds = 1010
    taken = queue.take(10)
    assert (taken.partition, [m.offset() for m in taken.messages]) == (RETRY, [0])
    assert not queue.is_ready()
    clock.seconds = 1020
    assert [m.offset() for m in queue.take(10).messages] == [1]
    assert not queue.sizes()


def test_what_is_due_and_what_is_new_take_turns() -> None:
    clock = Clock()
    queue = RetryQueue(ArrivalQueue(), [RETRY], clock)
    queue.add(Pending(RETRY, [waiting(1000, n) for n in range(4)], None))
    queue.add(Pending(MAIN, [Sent(b"1", n) for n in range(4)], None))
    taken = [queue.take(2).partition for _ in range(4)]
    assert taken == [RETRY, MAIN, RETRY, MAIN]
    assert not queue.sizes()


def test_of_what_waits_only_so_much_is_fetched() -> None:
    queue = RetryQueue(ArrivalQueue(), [RETRY], Clock())
    queue.add(Pending(RETRY, [waiting(2000, n) for n in range(BUFFER_RECORDS)], None))
    assert queue.full() == [RETRY]
    queue.clear()
    assert queue.full() == []
    assert not queue.sizes()


def test_delays_are_found_by_the_source_that_failed() -> None:
    sources = [
        Source("in", "in", serde_of("bytes"), serde_of("json"), None, OnError()),
        *(
            Source(
                f"in.{delay}",
                topic,
                serde_of("bytes"),
                serde_of("json"),
                None,
                OnError(),
                retry_of=RetryOf("in", delay),
            )
            for delay, topic in [*DELAYS["in"].items(), (None, "app-in-replay")]
        ),
    ]
    assert delays_of(SubTopology("x", tuple(sources), ())) == DELAYS
