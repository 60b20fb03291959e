"""The cause of an output: its input, transaction, steps and state, found in the cluster's logs.

1. the record, its producer's transaction and the marker that committed it
2. the receipt in its header: the input record, the task and the task's transaction
3. the changelogs: the state with which that transaction began (`state_history`)
4. the input of that transaction up to the record runs again (`rerun`), then the record itself; the
   entries that it reads are the state that it met
5. the output is compared with the log: only if key, value and time are equal is the state proved
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from eosframework.application.composition.ids import known_leases
from eosframework.config import Settings
from eosframework.engine.operators.watermarks import WATERMARK_KEY
from eosframework.engine.task.receipts import Receipt
from eosframework.engine.task.transaction_receipts import transaction_of
from eosframework.errors import ConfigurationError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.kafka.inspect.wire import Wire
from eosframework.kafka.inspect.written_record import RecordPlace, transaction_of_record
from eosframework.operations.why.explanation import Explanation, bytes_shown
from eosframework.operations.why.passed_steps import decoded, serdes_of, steps_to
from eosframework.operations.why.rerun import TaskCode, refusal
from eosframework.operations.why.scene import Scene, scene_of
from eosframework.operations.why.state_history import (
    RECORD_RECEIPTS,
    HistoryMissing,
    StateHistory,
)
from eosframework.process.steps import OnProgress, ignore_progress
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import Graph, SubTopology
from eosframework.transactions.ports import Message

_MOST_LINKS = 20
"""Most internal topics that a record is followed through."""


NO_RECEIPT = f"the record has no receipt, which names its input and its task; {RECORD_RECEIPTS}"


@dataclass(frozen=True, slots=True)
class Cause:
    """An explanation, with the scene in which the record can run again.

    Args:
        scene: None: the functions cannot run again; `found.missing` has the reason.
    """

    found: Explanation
    scene: Scene | None = None


def cause_of(
    place: RecordPlace,
    settings: Settings,
    graph: Graph | None = None,
    on_progress: OnProgress = ignore_progress,
    *,
    run: bool = True,
) -> Cause:
    """Return the cause of an output.

    Args:
        place: of the output.
        settings: of the application's workers.
        graph: the application; None: the answer has no steps, and nothing runs.
        on_progress: see `OnProgress`.
        run: the functions run again, with their side effects.

    Raises:
        ConfigurationError: there is no such record, no committed transaction wrote it, or the
            application does not write its topic.
        RecordFailed: a function fails now, and its policy is to fail.
        ClusterUnreachable: the cluster did not answer.
    """
    with Wire(settings.kafka, known_leases(settings)) as wire:
        if graph is not None:
            graph = _ready(graph, settings)
            _require_output(graph, place)
        transaction = transaction_of_record(wire, place)
        message = _record_at(settings, place)
        headers = message.headers() or ()
        receipt, of_transaction = Receipt.of(message), transaction_of(headers)
        found = Explanation(
            place=place,
            key=bytes_shown(message.key()),
            value=bytes_shown(message.value()),
            timestamp=message.timestamp()[1],
            transaction=transaction,
            receipt=receipt,
            of_transaction=None if receipt is not None else of_transaction,
        )
        if receipt is None and of_transaction is None:
            return Cause(replace(found, missing=(NO_RECEIPT,)))
        if receipt is not None:
            input_ = RecordPlace(TopicPartition(receipt.topic, receipt.partition), receipt.offset)
            found = replace(found, input=input_)
        if graph is None:
            return Cause(
                replace(found, missing=("steps and state: name the topology to see them",))
            )
        return _Search(wire, settings, graph, found, message, on_progress).run(run=run)


def _ready(graph: Graph, settings: Settings) -> Graph:
    graph = graph.with_times_within(settings.worker.max_event_time_ahead)
    if graph.codecs:
        from eosframework.kafka.schema_registry.schema_codecs import open_schemas

        open_schemas(graph.codecs, settings.schema_registry)
    return graph


def _require_output(graph: Graph, place: RecordPlace) -> None:
    """Raise unless a step may write the topic of a record."""
    topic = place.partition.topic
    if topic in graph.changelog_topics:
        store = next(store.name for store in graph.stores if store.changelog == topic)
        raise ConfigurationError(
            f"{place} is a record of the changelog of store {store!r}; ask for an output, and the "
            f"answer shows the state that it met"
        )
    written = set(graph.written_topics) - set(graph.changelog_topics)
    if topic not in written and not any(part.dynamic_sinks for part in graph.sub_topologies):
        raise ConfigurationError(
            f"no step of {graph.application!r} writes topic {topic!r}; it writes "
            f"{', '.join(sorted(written)) or 'none'}. Name another topology, or none"
        )


def _record_at(settings: Settings, place: RecordPlace) -> Message:
    ranges = {place.partition: (place.offset, place.offset + 1)}
    for _, messages in read_ranges(settings.kafka, ranges, undecided=True):
        return messages[0]
    raise ConfigurationError(f"{place} is not there any more; it was removed meanwhile")


@dataclass(frozen=True, slots=True)
class _Chain:
    """The records before an input in an internal topic."""

    places: Sequence[RecordPlace]
    begins_with_watermark: bool = False


@dataclass(slots=True)
class _Search:
    """The part of the answer that needs the topology."""

    wire: Wire
    settings: Settings
    graph: Graph
    found: Explanation
    message: Message
    on_progress: OnProgress
    missing: list[str] = field(default_factory=list[str])

    def run(self, *, run: bool) -> Cause:
        """Return the cause."""
        part, number = self._task()
        source = None if self.found.input is None else self.found.input.partition.topic
        topic = self.found.place.partition.topic
        key_serde, value_serde = serdes_of(part, topic)
        found = replace(
            self.found,
            task=f"{part.name}[{number}]",
            steps=steps_to(part, source, topic, self.message.headers() or ()),
            chain=(chain := self._chain()).places,
            is_watermark=chain.begins_with_watermark,
            key=decoded(self.message.key(), key_serde),
            value=decoded(self.message.value(), value_serde),
        )
        if not run:
            return Cause(found)
        try:
            scene = self._scene(found, part, number)
            rerun = scene.rerun()
            self.missing += scene.doubts
        except HistoryMissing as error:
            return Cause(replace(found, missing=(str(error),)))
        return Cause(replace(found, rerun=rerun, missing=tuple(self.missing)), scene)

    def _task(self) -> tuple[SubTopology, int]:
        """Return the sub-topology and the partition of the task that wrote the record.

        Raises:
            ConfigurationError: the present topology has no such task.
        """
        receipt, of = self.found.receipt, self.found.of_transaction
        place, graph = self.found.place, self.graph
        written_by = receipt.application if receipt is not None else of and of.application
        if written_by != graph.application:
            raise ConfigurationError(
                f"{place} was written by application {written_by!r}, and the topology is of "
                f"{graph.application!r}; name the topology of the former"
            )
        if receipt is not None:
            part = graph.readers.get(receipt.topic)
            origin, number = f"reads {receipt.topic!r}", receipt.partition
        else:
            assert of is not None, "a record has a receipt"
            parts = {part.name: part for part in graph.sub_topologies}
            part, number = parts.get(of.sub_topology), of.partition
            origin = f"is named {of.sub_topology!r}"
        topic = place.partition.topic
        if part is None or not (topic in _written_by(graph, part) or part.dynamic_sinks):
            raise ConfigurationError(
                f"{place} is older than the present topology, in which no sub-topology {origin} "
                f"and writes {topic!r}; name the topology that the workers ran then"
            )
        return part, number

    def _chain(self) -> _Chain:
        """Return the records from which an input in an internal topic came."""
        places: list[RecordPlace] = []
        at = self.found.input
        while at is not None and len(places) < _MOST_LINKS:
            if at.partition.topic not in self.graph.repartition_topics:
                break
            first, end = ClusterAdmin(self.settings.kafka).log_bounds([at.partition])[at.partition]
            if not first <= at.offset < end:
                self.missing.append(f"{at} was removed from the internal topic")
                break
            message = _record_at(self.settings, at)
            if message.key() == WATERMARK_KEY:
                return _Chain(places, begins_with_watermark=not places)
            receipt = Receipt.of(message)
            if receipt is None:
                break
            at = RecordPlace(TopicPartition(receipt.topic, receipt.partition), receipt.offset)
            places.append(at)
        return _Chain(places)

    def _scene(self, found: Explanation, part: SubTopology, number: int) -> Scene:
        """Return the scene of the record.

        Raises:
            HistoryMissing: a part of it is not recorded, or cannot run again.
        """
        admin = ClusterAdmin(self.settings.kafka)
        counts = admin.partition_counts({source.topic for source in self.graph.sources})
        code = TaskCode(self.graph, part, number, counts)
        if (reason := refusal(code.compiled)) is not None:
            raise HistoryMissing(f"the functions did not run again: {reason}")
        history = None
        if part.stores:
            history = StateHistory(
                self.wire, self.settings.kafka, self.graph.application, part, number
            )
        return scene_of(
            code, history, found, self.message, self.settings.kafka, admin, self.on_progress
        )


def _written_by(graph: Graph, part: SubTopology) -> set[str]:
    own = {one.topic for one in graph.repartitions if one.writer == part.name}
    return {*part.sink_topics, *own}
