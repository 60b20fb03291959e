"""The audit of an application on a real cluster, stopped or running.

1. read the positions C1: the committed offsets of the group (stable ones), and the progress of
   backfill jobs. They and the scope determine the judged input
2. judge by receipts where the outputs have them; elsewhere derive the outputs with the functions.
   Input of stateful tasks that was processed without receipts is left out; the verdict says so
3. read the end offsets E of the output topics, once every transaction open at C1 is decided
4. read the positions C2: outputs of the input from C1 to C2 may exist
5. read the output topics up to E; receipts go into books, other records are compared
6. where an output belongs to no input before C2: derive the outputs of the input from C2 on. This
   distinguishes an output without its committed offset from one without any input
7. where a book has a hole or a copy: read the outputs again to name the records
8. compare the number of rows that jobs processed with the records of internal topics, and the rows
   of tables that are decided together with outputs

Every output that is visible before E belongs to a transaction that is decided by then. The
positions of that transaction are at most C2, because reading them also waits for the decision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from functools import partial

from eosframework.config import KafkaSettings, Settings
from eosframework.engine.failures.failure_handler import Site
from eosframework.engine.failures.failure_headers import (
    HEADER_OFFSET,
    HEADER_PARTITION,
    HEADER_REPLAYED,
    HEADER_STEP,
    HEADER_TOPIC,
)
from eosframework.engine.operators.watermarks import WATERMARK_KEY
from eosframework.engine.task.receipts import Receipt
from eosframework.errors import StartRefused
from eosframework.kafka.admin.auto_creation import ChosenTopics
from eosframework.kafka.consumer.range_reader import Ranges
from eosframework.operations.audit.audit_logs import Logs, ProcessedInput, notes_on_jobs
from eosframework.operations.audit.audit_verdict import Scope, Verdict
from eosframework.operations.audit.judged_ranges import Portions, divide
from eosframework.operations.audit.output_comparison import (
    OUTPUT_STEP,
    UNKNOWN_TIME,
    Derivation,
    Ledger,
    Matching,
    compare,
    digest_of,
    match,
)
from eosframework.operations.audit.receipt_books import Books
from eosframework.operations.audit.row_audit import audit_rows
from eosframework.process.steps import OnProgress, ignore_progress
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import (
    Aggregate,
    Emit,
    Graph,
    JoinSide,
    OnError,
    Policy,
    Processor,
    Sink,
    StreamJoin,
    SubTopology,
    TableOutput,
)
from eosframework.topology.graph.timed_topics import timed_topics, waits_for_time
from eosframework.topology.graph.walk import (
    AnyNode,
    dead_letter_topics,
    followers_of,
    has_state,
    nodes_of,
)
from eosframework.topology.spec.topology_spec import matches
from eosframework.transactions.ports import Message


def receipted_topics(graph: Graph) -> frozenset[str]:
    """Return the topics whose records only receipts can judge.

    Functions cannot derive the outputs of a stateful task, or of a first attempt with retries; and
    records of a repartition topic are deleted after use.
    """
    writers = {own.writer for own in graph.repartitions if own.retry_of is None}
    return frozenset(
        source.topic
        for part in graph.sub_topologies
        if has_state(part) or part.name in writers or _retries(part)
        for source in part.sources
    )


def unproved_topics(graph: Graph) -> dict[str, str]:
    """Return the topics of results of many inputs, each with the step that emits them.

    A step emits such results at a commit (`emit: commit`), when the wall clock closes a window
    (`close_when_idle`) or calls a function, or when stream time passes idle sources, of a task that
    reads a repartition topic. The outputs of the following steps have no receipts either, dead
    letters and late records included. A record that another sub-topology reads from such a topic is
    an ordinary input.
    """
    found: dict[str, str] = {}
    timed = timed_topics(graph)
    for part in graph.sub_topologies:
        passes = any(source.topic in timed for source in part.sources)
        for node in nodes_of(part):
            if (reason := _reason(node, passes=passes)) is not None:
                for topic in _topics_behind(node, part):
                    found.setdefault(topic, f"{node.name} ({reason})")
    return found


def _reason(node: AnyNode, *, passes: bool) -> str | None:
    if isinstance(node, Aggregate) and node.emit is Emit.COMMIT:
        return "emit: commit"
    if isinstance(node, Processor) and node.wall_clock:
        return "called by the wall clock"
    if not waits_for_time(node):
        return None
    window = node.store.window if isinstance(node, Aggregate) else None
    if window is not None and window.close_idle_ms is not None:
        return "close_when_idle"
    return "idle sources of a repartition topic" if passes else None


def _topics_behind(first: AnyNode, part: SubTopology) -> Iterator[str]:
    seen: set[int] = set()
    todo: list[AnyNode] = [first]
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        policy = getattr(node, "on_error", None)
        if isinstance(policy, OnError) and policy.topic is not None:
            yield policy.topic
        if (late := _late_topic(node)) is not None:
            yield late
        if isinstance(node, Sink):
            # A function chooses among the topics that the part lists; others are not audited.
            yield from (node.topic,) if isinstance(node.topic, str) else part.sink_topics
        todo.extend(child for _, child in followers_of(node))


def _late_topic(node: AnyNode) -> str | None:
    match node:
        case Aggregate() if node.store.window is not None:
            return node.store.window.late
        case JoinSide(join=StreamJoin() as join):
            return join.late
        case _:
            return None


def _retries(part: SubTopology) -> bool:
    return any(source.retry_of is not None and source.retry_of.delay_ms for source in part.sources)


_SHOWN_PARTITIONS = 5
"""Partitions of each topic that a note lists."""


JudgeRows = Callable[[Logs, Derivation], Verdict]
"""Judges the rows of tables."""


class Proof(StrEnum):
    """The evidence by which an audit determines the expected outputs."""

    AUTO = "auto"
    """Receipts where the outputs have them, functions elsewhere."""
    RECEIPTS = "receipts"
    FUNCTIONS = "functions"


def audit_application(
    graph: Graph,
    settings: KafkaSettings,
    on_progress: OnProgress = ignore_progress,
    *,
    scope: Scope | None = None,
    proof: Proof = Proof.AUTO,
    rows: JudgeRows | None = None,
) -> Verdict:
    """Prove that each input record took effect exactly once, or count the records that did not.

    Without receipts, the topology's functions run again over the input, including their side
    effects.

    Args:
        graph: the application.
        settings: connection to the cluster.
        on_progress: see `OnProgress`.
        scope: the input records to judge. None: all processed records.
        proof: judge by receipts or by functions.
        rows: judges tables that are decided together with outputs; None: they are not judged.

    Raises:
        ConfigurationError: the scope ends before it begins, or names a partition that is not an
            input.
        StartRefused: a topic is missing, no offset of the scope was ever committed, or the receipts
            that `proof` or the whole scope requires do not exist.
        RunError: a transaction stays open, or a processed record fails now.
        ClusterUnreachable: the cluster did not answer.
    """
    if not graph.sub_topologies:
        raise StartRefused(
            f"application {graph.application!r} only fills tables, and an audit compares topics; "
            f"compare the tables with {', '.join(p.topic for p in graph.table_sinks)} in the "
            f"database"
        )
    return _Audit(graph, settings, on_progress, scope or Scope(), proof, rows).run()


def audit_topology(
    graph: Graph,
    settings: Settings,
    on_progress: OnProgress = ignore_progress,
    *,
    scope: Scope | None = None,
    proof: Proof = Proof.AUTO,
) -> Verdict:
    """Audit an application with the settings of its workers; see `audit_application`.

    Raises:
        EosError: as `audit_application`; also if the schema registry cannot be used.
    """
    graph = graph.with_times_within(settings.worker.max_event_time_ahead)
    if graph.codecs:
        from eosframework.kafka.schema_registry.schema_codecs import open_schemas

        open_schemas(graph.codecs, settings.schema_registry)
    judges = partial(_judge_rows, graph, settings, scope or Scope(), proof)
    rows = judges if graph.together else None
    return audit_application(
        graph, settings.kafka, on_progress, scope=scope, proof=proof, rows=rows
    )


def _judge_rows(
    graph: Graph,
    settings: Settings,
    scope: Scope,
    proof: Proof,
    logs: Logs,
    derivation: Derivation,
) -> Verdict:
    """Compare the rows of tables, or say why not."""
    if proof is Proof.RECEIPTS:
        reason = "--by receipts runs no function"
    elif not scope.is_whole:
        reason = "the audit is of a part of the input"
    elif settings.database.dsn is None:
        reason = "no database is configured (database.dsn)"
    else:
        return audit_rows(graph, settings, logs, derivation)
    tables = ", ".join(table.table for sink in graph.together for table in sink.tables)
    return Verdict(notes=(f"rows of table {tables} are not compared: {reason}",))


class _Audit:
    def __init__(
        self,
        graph: Graph,
        settings: KafkaSettings,
        on_progress: OnProgress,
        scope: Scope,
        proof: Proof,
        judge_rows: JudgeRows | None,
    ) -> None:
        self._graph = graph
        self._judge_rows = judge_rows
        self._scope = scope
        self._proof = proof
        sources = (source.topic for part in graph.sub_topologies for source in part.sources)
        self._input_topics = list(dict.fromkeys(sources))
        self._logs = Logs(graph.application, self._input_topics, settings, on_progress)
        chosen = ChosenTopics(settings, self._logs.admin)
        self._derivation = Derivation(graph, self._logs.has_broker_time, chosen.is_missing)
        self._derivation.topics |= set(graph.sink_topics)
        self._expected, self._found = Ledger(), Ledger()
        self._notes: list[str] = []
        self._own = graph.repartition_topics
        self._unproved = unproved_topics(graph)
        self._not_judged: Counter[str] = Counter()
        """By topic: the number of outputs left out."""
        self._of_deleted: Counter[str] = Counter()
        """By deleted topic that a pattern matched: the number of its outputs."""
        self._replayed: dict[str, str] = {}
        """By place of each replayed dead letter: the source topic of its record."""

    def run(self) -> Verdict:
        logs = self._logs
        portions = self._divided()
        self._leave_removed_rows_out()
        self._read_dead_letters()
        records = self._derive(portions.derived)
        required = len(self._expected)
        self._learn_topics(portions)

        outputs, missing = logs.partitions(self._derivation.topics)
        self._notes += [f"topic {topic} does not exist" for topic in missing]
        # 1. `_divided` reads the committed positions  2. workers commit more  3. the ends of the
        # outputs are read, which contain outputs of 2  4. the positions are read again. Input
        # between 1 and 4 explains the outputs of 2. Its outputs need not all be there, since a
        # commit after 3 moved only the positions; so `required` was counted before.
        ends = logs.settled_ends(outputs)
        now = logs.processed()
        if portions.is_whole:
            self._derive(portions.since_then(now))
        books = Books(self._graph.application, portions.spans(now))
        self._read_inputs(books, portions)
        portions.rows.count(books)
        ranges = {p: (first, ends[p]) for p, first in logs.firsts(outputs).items()}
        self._read_outputs(ranges, books, portions)

        matching = match(self._expected, self._found)
        ahead = self._look_elsewhere(matching, portions, now)
        if books.prepare_second_pass():
            for partition, messages in logs.read(ranges, "output again"):
                for message in messages:
                    books.look_up(partition, message)
        rows = portions.rows.compare_with_log(logs)
        if self._judge_rows is not None:
            rows += self._judge_rows(logs, self._derivation)
        verdict = (
            rows
            + books.verdict()
            + compare(
                self._expected,
                self._found,
                matching,
                input_records=records,
                required=required,
                ahead=ahead,
                input_trimmed=bool(portions.trimmed),
                only_a_part=not portions.is_whole,
                borders=portions.borders,
            )
        )
        self._note(portions, ranges, lost=verdict.lost)
        return replace(
            verdict,
            notes=(*self._notes, *rows.notes),
            share=portions.share,
            not_judged=self._not_judged.total(),
        )

    def _divided(self) -> Portions:
        """Return the input to judge, split by receipts and functions.

        Raises:
            StartRefused: an explicitly requested part, or the whole scope, can be judged by
                neither.
        """
        remembered = receipted_topics(self._graph)
        divided = partial(
            divide,
            self._scope,
            self._logs.processed(),
            self._logs,
            receipts=self._proof is not Proof.FUNCTIONS,
        )
        if self._proof is not Proof.AUTO:
            portions = divided()
            is_for_all = self._proof is Proof.RECEIPTS
            portions.refuse_functions(self._input_topics if is_for_all else remembered)
            if is_for_all:
                portions.rows.refuse_left_out()
            return replace(portions, remembered=remembered)
        portions = divided(remembered=remembered)
        portions.refuse_functions(remembered)
        portions.refuse_nothing()
        return portions

    def _leave_removed_rows_out(self) -> None:
        """Exclude row topics from which rows were deleted because the database has them."""
        own = {p.topic for p in self._graph.table_sinks if p.sub_topology is not None}
        partitions, _ = self._logs.partitions(own)
        removed = {p.topic for p, first in self._logs.firsts(partitions).items() if first}
        self._derivation.left_out |= removed
        self._derivation.topics -= removed
        self._notes += [
            f"topic {topic} is not compared: rows that the database has were removed"
            for topic in sorted(removed)
        ]

    def _read_dead_letters(self) -> None:
        """Collect results that functions cannot derive: refused and replayed records."""
        by_others = {OUTPUT_STEP, *_decided_steps(self._graph)}
        topics = dead_letter_topics(self._graph)
        partitions, _ = self._logs.partitions(topics)
        marked = self._logs.replayed(topics)
        known = set(self._logs.inputs)
        for partition, messages in self._logs.read(self._logs.bounds(partitions), "dead letters"):
            marks = marked.get(partition)
            for message in messages:
                headers = dict(message.headers() or ())
                step = _text(headers, HEADER_STEP)
                replayed = marks is not None and message.offset() in marks
                if step not in by_others and not replayed:
                    continue
                topic = _text(headers, HEADER_TOPIC)
                number = _number(headers, HEADER_PARTITION)
                if TopicPartition(topic, number) in known:
                    offset = _number(headers, HEADER_OFFSET)
                    site = Site(step, OnError(Policy.DEAD_LETTER, partition.topic))
                    self._derivation.refused[topic, number, offset] = site
                if replayed:
                    self._replayed[f"{partition}@{message.offset()}"] = topic

    def _is_replay(self, partition: TopicPartition, message: Message) -> bool:
        """Return whether a record of an internal topic is a replayed dead letter."""
        if not self._replayed or partition.topic not in self._own:
            return False
        place = _text(dict(message.headers() or ()), HEADER_REPLAYED)
        if self._replayed.get(place) != partition.topic:
            return False
        del self._replayed[place]  # a second one is a copy
        return True

    def _derive(self, layers: Iterable[Ranges]) -> int:
        records = 0
        for ranges in layers:
            for partition, messages in self._logs.read(ranges, "input"):
                self._derivation.derive(partition, messages, self._expected)
                records += len(messages)
        return records

    def _learn_topics(self, portions: Portions) -> None:
        """Run the functions once more to collect the output topics that they choose at run time."""
        choosing = [part for part in self._graph.sub_topologies if part.dynamic_sinks]
        # The state of stateful tasks is not available here, so their functions cannot run.
        stateless = {
            source.topic for part in choosing if not part.stores for source in part.sources
        }
        ranges = {p: bounds for p, bounds in portions.receipted.items() if p.topic in stateless}
        for partition, messages in self._logs.read(ranges, "topics"):
            self._derivation.derive(partition, messages, Ledger())
        self._notes += [
            f"sub-topology {part.name} is stateful, so topics chosen by "
            f"{', '.join(part.dynamic_sinks)} are read only where the topology lists them; give "
            f"the sink topics: [...]"
            for part in choosing
            if part.stores
        ]

    def _read_inputs(self, books: Books, portions: Portions) -> None:
        for partition, messages in self._logs.read(portions.receipted, "input"):
            books.add_inputs(partition, messages)

    def _read_outputs(self, ranges: Ranges, books: Books, portions: Portions) -> None:
        """Pass each output to its book, or compare it; with a partial scope, only possible matches.

        An output that neither receipts nor functions can prove is counted, unless an expected
        output equals it.
        """
        sieve = self._expected.sieve()
        for partition, messages in self._logs.read(ranges, "output"):
            by_broker = self._logs.has_broker_time(partition.topic)
            for message in messages:
                if message.key() == WATERMARK_KEY and partition.topic in self._own:
                    continue
                if books.add(partition, message) or self._is_replay(partition, message):
                    continue
                if (deleted := self._deleted_input(message)) is not None:
                    self._of_deleted[deleted] += 1
                    continue
                digest = digest_of(
                    partition.topic,
                    message.key(),
                    message.value(),
                    UNKNOWN_TIME if by_broker else message.timestamp()[1],
                    message.headers(),
                )
                if partition.topic in self._unproved and not sieve(digest):
                    self._not_judged[partition.topic] += 1
                elif portions.is_whole or sieve(digest):
                    self._found.add(partition, message.offset(), digest)

    def _deleted_input(self, message: Message) -> str | None:
        """Return the topic of an output's input that a pattern matched, and that is gone."""
        receipt = Receipt.of(message)
        if receipt is None or receipt.application != self._graph.application:
            return None
        is_matched = any(matches(one.pattern, receipt.topic) for one in self._graph.patterns)
        return receipt.topic if is_matched and receipt.topic not in self._graph.readers else None

    def _look_elsewhere(
        self, matching: Matching, portions: Portions, now: ProcessedInput
    ) -> Ledger | None:
        """Derive outputs of input that is not judged, to explain records that were found.

        Returns:
            With a whole scope: the outputs of input from the committed offsets on.
        """
        if not portions.is_whole:
            if matching.copies:
                for ranges in portions.not_judged(now):
                    others = self._logs.read(ranges, "other input")
                    for derived in self._derivation.derive_while_it_works(others):
                        matching.explain(self._found, derived.digests())
            return None
        if not matching.unexplained:
            return None
        ahead = Ledger()
        without_receipts = {p for ranges in portions.since_then(now) for p in ranges}
        last = self._logs.stable_ends(sorted(without_receipts))
        behind = {p: (now.positions[p].offset or 0, end) for p, end in last.items()}
        batches = self._logs.read(behind, "input ahead")
        for derived in self._derivation.derive_while_it_works(batches):
            ahead.extend(derived)
        return ahead

    def _note(self, portions: Portions, outputs: Ranges, *, lost: int) -> None:
        """Add notes on logs that lost records relevant to the counts, and on excluded input."""
        for table_sink in self._graph.table_sinks:
            tables = ", ".join(sink.table for sink in table_sink.tables)
            self._notes.append(
                f"rows of topic {table_sink.topic} in table {tables} are not compared"
            )
        self._note_left_out(portions)
        firsts = {p: portions.firsts[p] for p in portions.trimmed}
        if self._scope.is_whole or lost:
            firsts |= {p: first for p, (first, _) in outputs.items() if first}
        for partition, first in firsts.items():
            self._notes.append(f"{partition} begins at offset {first}: earlier records are gone")
        for topic in self._logs.compacted({p.topic for p in outputs}):
            self._notes.append(
                f"topic {topic} is compacted: records that a later one of their key replaced are "
                f"gone, and count as lost"
            )

    def _note_left_out(self, portions: Portions) -> None:
        """Add notes on input and outputs that neither receipts nor functions can judge."""
        by_topic: dict[str, list[str]] = {}
        for p, intervals in portions.left_out.items():
            places = [f"{p}@{start} to @{end - 1}" for start, end in intervals]
            by_topic.setdefault(p.topic, []).extend(places)
        for places in by_topic.values():
            more = len(places) - _SHOWN_PARTITIONS
            shown = ", ".join(places[:_SHOWN_PARTITIONS]) + (
                f" and {more} more" if more > 0 else ""
            )
            self._notes.append(
                f"{shown}: not judged; processed without receipts (worker.receipts), and functions "
                f"cannot judge stateful tasks or tasks that write a repartition topic"
            )
        self._notes += [*notes_on_jobs(portions.processed.jobs), *portions.rows.notes()]
        self._notes += [
            f"topic {topic} was deleted: its {count:,} outputs are not judged"
            for topic, count in sorted(self._of_deleted.items())
        ]
        for topic, step in self._unproved.items():
            self._notes.append(
                f"topic {topic}: {self._not_judged[topic]:,} outputs without a receipt are not "
                f"judged; {step} gives them, and they come from many inputs"
            )


def _decided_steps(graph: Graph) -> set[str]:
    """Return the steps whose records the database may refuse."""
    nodes = (node for part in graph.sub_topologies if part.together for node in nodes_of(part))
    return {node.name for node in nodes if isinstance(node, TableOutput)}


def _text(headers: Mapping[str, bytes | None], name: str) -> str:
    return (headers.get(name) or b"").decode(errors="replace")


def _number(headers: Mapping[str, bytes | None], name: str) -> int:
    """Return a header's number; -1: this framework did not write the header."""
    try:
        return int(headers.get(name) or -1)
    except ValueError:
        return -1
