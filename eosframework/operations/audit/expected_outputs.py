"""Expected outputs, derived by running the topology over input records again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from eosframework.errors import RecordFailed, RunError
from eosframework.operations.audit.digest_ledger import Ledger
from eosframework.operations.audit.record_digest import digest_of
from eosframework.processing.codegen.compile_context import CompileContext
from eosframework.processing.codegen.compiler import compile_source
from eosframework.processing.failures.failure_handler import FailureHandler, Site, dead_letter
from eosframework.processing.failures.failure_headers import RetriedRecord
from eosframework.processing.ports import Message, Output
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import Graph

OUTPUT_STEP = "output"
"""Step named in a dead letter if the broker refused the output of the functions."""

UNKNOWN_TIME = -1
"""Timestamp placeholder for records of topics whose broker sets the timestamps."""


class Derivation:
    """Derives outputs with the worker's functions, compiled the same way.

    Args:
        graph: the application.
        has_broker_time: returns whether the broker sets the timestamps of a topic.
        is_missing: returns whether a topic chosen by a function does not exist; None: unknown.
    """

    def __init__(
        self,
        graph: Graph,
        has_broker_time: Callable[[str], bool],
        is_missing: Callable[[str], bool] | None = None,
    ) -> None:
        sources = graph.sources
        context = CompileContext(
            is_missing=is_missing,
            own_topics=graph.repartition_topics,
        )
        self._compiled = {source.topic: compile_source(source, context) for source in sources}
        self._has_broker_time = has_broker_time
        self._failures = FailureHandler()
        self.refused: dict[tuple[str, int, int], Site] = {}
        """Error sites by place of input records that dead letters report as failed although the
        functions do not fail: records refused by the broker, and replayed ones, possibly with
        other functions."""
        self.left_out: set[str] = set()
        """Topics whose records are deleted after use, so no record of them is required."""
        self.topics: set[str] = set()
        """Topics of the outputs derived so far."""

    def derive(self, partition: TopicPartition, messages: Sequence[Message], into: Ledger) -> None:
        """Add the outputs of input records of one partition, each at its input's place.

        Raises:
            RunError: a processed record fails now, and its policy is to fail.
        """
        compiled = self._compiled[partition.topic]
        is_again = compiled.source.retry_of is not None
        for message in messages:
            offset = message.offset()
            outputs: list[Output] = []
            if self.refused and (*partition, offset) in self.refused:
                site = self.refused[partition.topic, partition.partition, offset]
                outputs.append(dead_letter(site, message, Exception()))
            else:
                record = RetriedRecord(message) if is_again else message
                try:
                    compiled.run((record,), outputs, 0, self._failures)
                except RecordFailed as error:
                    raise RunError(
                        f"record {partition}@{offset} was processed, but fails now: "
                        f"{error.__cause__!r}. Audit with the functions that the workers ran"
                    ) from error
            self._add(partition, offset, outputs, into)

    def derive_while_it_works(
        self, batches: Iterable[tuple[TopicPartition, list[Message]]]
    ) -> Iterator[Ledger]:
        """Yield the outputs of each batch; a failing record ends its partition."""
        stopped: set[TopicPartition] = set()
        for partition, messages in batches:
            if partition in stopped:
                continue
            derived = Ledger()
            try:
                self.derive(partition, messages, derived)
            except RunError:
                stopped.add(partition)
            yield derived

    def _add(
        self, partition: TopicPartition, offset: int, outputs: Iterable[Output], into: Ledger
    ) -> None:
        for topic, value, key, _, _, _, timestamp, headers in outputs:
            if topic in self.left_out:
                continue
            self.topics.add(topic)
            if self._has_broker_time(topic):
                timestamp = UNKNOWN_TIME
            into.add(partition, offset, digest_of(topic, key, value, timestamp, headers))
