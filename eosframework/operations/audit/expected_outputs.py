"""Runs the topology over input records again, to know the outputs that must be there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from eosframework.errors import RecordFailed, RunError
from eosframework.operations.audit.digest import digest_of
from eosframework.operations.audit.ledger import Ledger
from eosframework.processing.codegen.compile_context import CompileContext
from eosframework.processing.codegen.compiler import compile_source
from eosframework.processing.failures.failure_headers import RetriedRecord
from eosframework.processing.failures.failures import FailureHandler, Site, dead_letter
from eosframework.processing.ports import Message, Output
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import Graph

OUTPUT_STEP = "output"
"""Step that a dead letter names when the broker refused what the functions had made."""

UNKNOWN_TIME = -1
"""Stands for the timestamp of records whose topic has the broker set it."""


class Derivation:
    """Derives outputs with the functions that the worker runs, compiled the same way.

    Args:
        graph: the application.
        has_broker_time: tells whether the broker sets the timestamps of a topic.
        is_missing: tells whether a topic that a function chose does not exist; None: nobody can.
    """

    def __init__(
        self,
        graph: Graph,
        has_broker_time: Callable[[str], bool],
        is_missing: Callable[[str], bool] | None = None,
    ) -> None:
        sources = [source for part in graph.sub_topologies for source in part.sources]
        context = CompileContext(closed_topics=graph.internal_topics, is_missing=is_missing)
        self._compiled = {source.topic: compile_source(source, context) for source in sources}
        self._has_broker_time = has_broker_time
        self._failures = FailureHandler()
        self.refused: dict[tuple[str, int, int], Site] = {}
        """By the places of input records whose fate their functions do not tell, where their dead
        letters say that they failed: what the broker refused, and what was replayed since, maybe
        with other functions."""
        self.left_out: set[str] = set()
        """Topics whose records are removed once they were used, so none has to be there."""
        self.topics: set[str] = set()
        """Topics that the outputs so far go to."""

    def derive(self, partition: TopicPartition, messages: Sequence[Message], into: Ledger) -> None:
        """Add the outputs of input records of one partition, each at its input's place.

        Raises:
            RunError: a record that was processed fails now, with the policy to fail.
        """
        compiled = self._compiled[partition.topic]
        is_again = compiled.source.again is not None
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
        """Yield the outputs of each batch; a record that fails ends its partition."""
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
