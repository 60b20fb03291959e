"""Records that keep coming, and a reader that reads along, while a test breaks things."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from tests.support.applications.pipeline import Pipeline, wait_until

PAUSE_SECONDS = 0.05


class Feeder:
    """Appends numbers to a pipeline's input, for as long as it is entered.

    Args:
        batch: how many at a time, about ten times a second.
    """

    def __init__(self, pipeline: Pipeline, batch: int = 40) -> None:
        self._pipeline = pipeline
        self._batch = batch
        self._end = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._feed, name="feeder", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()
        if self._failure is not None:  # Whatever the test waited for, it may have waited for this.
            raise self._failure

    def _feed(self) -> None:
        try:
            while not self._end.wait(PAUSE_SECONDS):
                self._pipeline.feed(self._batch)
        except BaseException as failure:
            self._failure = failure


class ConcurrentReader:
    """Reads the outputs `read_committed` while they are written, as an application does.

    A position it has passed it never reads again, so whatever a reader could see by mistake in
    between stays in what it has.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.records: dict[str, list[Message]] = {topic: [] for topic in pipeline.outputs}
        self._partitions = [
            TopicPartition(topic, number, OFFSET_BEGINNING)
            for topic in pipeline.outputs
            for number in range(pipeline.partitions)
        ]
        self._consumer = Consumer(
            {
                "bootstrap.servers": pipeline.bootstrap_servers,
                "group.id": f"{pipeline.name}.reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        self._end = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._read, name="reader", daemon=True)

    @property
    def count(self) -> int:
        """How many records it has read so far."""
        return sum(map(len, self.records.values()))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()
        self._consumer.close()
        if self._failure is not None and error is None:
            raise self._failure

    def read_to(self, count: int) -> None:
        """Wait until it has read `count` records; what comes beyond them is kept as well."""

        def came() -> bool:
            if self._failure is not None:
                raise self._failure
            return self.count >= count

        wait_until(came, f"the concurrent reader's record {count}")

    def _read(self) -> None:
        try:
            self._consumer.assign(self._partitions)
            while not self._end.is_set():
                for message in self._consumer.consume(1000, 0.1):
                    self._take(message)
        except BaseException as failure:
            self._failure = failure

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self.records[message.topic() or ""].append(message)
        # Anything else is told while leaders move, and librdkafka goes on by itself.
        elif error.code() == KafkaError._AUTO_OFFSET_RESET or error.fatal():
            raise AssertionError(f"the concurrent reader lost its place: {error}")
