"""Audits an application on a real cluster, at rest or while it runs.

1. read the committed positions C1 (stable ones); they and the scope fix the input that is judged
2. where it has receipts, these judge; elsewhere derive its outputs with the functions, but where
   tasks remember: what these processed without receipts is left out, and the verdict says so
3. take the ends E of the output topics, once every transaction is decided that was open at C1
4. read the committed positions C2: the outputs of the input from C1 to C2 may be there
5. read the output topics up to E; receipts go into books, the others are compared
6. where an output comes from no input before C2: derive what lies behind, to tell an output
   without its position from one that nothing explains
7. where a book has a hole or a copy: read the outputs again, to name the records

Every output that is visible before E belongs to a transaction that is decided by then, and the
positions of that transaction are at most C2, because reading them waits for it too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from functools import partial

from eosframework.config import KafkaSettings
from eosframework.errors import StartRefused
from eosframework.kafka.admin.auto_creation import ChosenTopics
from eosframework.kafka.consumer.range_reader import Ranges
from eosframework.operations.audit.audit_logs import Logs, OnProgress
from eosframework.operations.audit.books import Books
from eosframework.operations.audit.bounds import Scope
from eosframework.operations.audit.comparison import compare
from eosframework.operations.audit.digest import digest_of
from eosframework.operations.audit.expected_outputs import OUTPUT_STEP, UNKNOWN_TIME, Derivation
from eosframework.operations.audit.ledger import Ledger
from eosframework.operations.audit.matching import Matching, match
from eosframework.operations.audit.portions import Portions, divide
from eosframework.operations.audit.unproved import receipted_topics, unproved_topics
from eosframework.operations.audit.verdict import Verdict
from eosframework.processing.failures.failure_headers import (
    HEADER_OFFSET,
    HEADER_PARTITION,
    HEADER_REPLAYED,
    HEADER_STEP,
    HEADER_TOPIC,
)
from eosframework.processing.failures.failures import Site
from eosframework.processing.ports import Message
from eosframework.records import Position, TopicPartition
from eosframework.topology.graph.graph import Graph, OnError, Policy
from eosframework.topology.graph.walk import dead_letter_topics

SHOWN_PARTITIONS = 5
"""Of each topic, in a note."""


class Proof(StrEnum):
    """What tells which outputs must be there."""

    AUTO = "auto"
    """Receipts where there are, functions elsewhere."""
    RECEIPTS = "receipts"
    FUNCTIONS = "functions"


def audit_application(
    graph: Graph,
    settings: KafkaSettings,
    on_progress: OnProgress = lambda what, done: None,
    *,
    scope: Scope | None = None,
    proof: Proof = Proof.AUTO,
) -> Verdict:
    """Prove that each input record took effect exactly once, or count where not.

    Without receipts the topology's functions run again over the input, so those with side
    effects repeat them.

    Args:
        graph: the application.
        settings: how to reach the cluster.
        on_progress: see `OnProgress`.
        scope: which input records are judged. None: all that were processed.
        proof: whether receipts or functions judge.

    Raises:
        ConfigurationError: the scope ends before it begins, or names no input partition.
        StartRefused: a topic is missing, nothing of the scope was ever committed, or there are none
            of the receipts that `proof` asks for or the whole scope needs.
        RunError: a transaction stays open, or a record that was processed fails now.
        ClusterUnreachable: the cluster did not answer.
    """
    if not graph.sub_topologies:
        raise StartRefused(
            f"application {graph.application!r} only fills tables, and an audit compares topics; "
            f"compare the tables with {', '.join(p.topic for p in graph.persisters)} in the "
            f"database"
        )
    return _Audit(graph, settings, on_progress, scope or Scope(), proof).run()


class _Audit:
    def __init__(
        self,
        graph: Graph,
        settings: KafkaSettings,
        on_progress: OnProgress,
        scope: Scope,
        proof: Proof,
    ) -> None:
        self._graph = graph
        self._scope = scope
        self._proof = proof
        sources = (source.topic for part in graph.sub_topologies for source in part.sources)
        self._input_topics = list(dict.fromkeys(sources))
        self._logs = Logs(graph.application, self._input_topics, settings, on_progress)
        chosen = ChosenTopics(settings, self._logs.admin)
        self._derivation = Derivation(graph, self._logs.has_broker_time, chosen.is_missing)
        self._derivation.topics |= {t for part in graph.sub_topologies for t in part.sink_topics}
        self._expected, self._found = Ledger(), Ledger()
        self._notes: list[str] = []
        self._own = {repartition.topic for repartition in graph.repartitions}
        self._unproved = unproved_topics(graph)
        self._not_judged: Counter[str] = Counter()
        """By topic among these, how many outputs were left out."""
        self._replayed: dict[str, str] = {}
        """By the place of each dead letter that was replayed, the topic that its record is of."""

    def run(self) -> Verdict:
        logs = self._logs
        portions = self._divided()
        self._leave_removed_rows_out()
        self._read_letters()
        records = self._derive(portions.derived)
        required = len(self._expected)
        self._learn_topics(portions)

        outputs, missing = logs.partitions(self._derivation.topics)
        self._notes += [f"topic {topic} does not exist" for topic in missing]
        ends = logs.settled_ends(outputs)
        now = logs.committed()
        if portions.is_whole:
            self._derive(portions.since_then(now))
        books = Books(self._graph.application, portions.spans(now))
        self._read_inputs(books, portions)
        ranges = {p: (first, ends[p]) for p, first in logs.firsts(outputs).items()}
        self._read_outputs(ranges, books, portions)

        matching = match(self._expected, self._found)
        ahead = self._look_elsewhere(matching, portions, now)
        if books.ask():
            for partition, messages in logs.read(ranges, "output again"):
                for message in messages:
                    books.look_again(partition, message)
        verdict = books.verdict() + compare(
            self._expected,
            self._found,
            matching,
            input_records=records,
            required=required,
            ahead=ahead,
            input_trimmed=bool(portions.trimmed),
            only_a_part=not portions.is_whole,
        )
        self._note(portions, ranges, lost=verdict.lost)
        return replace(
            verdict,
            notes=tuple(self._notes),
            share=portions.share,
            not_judged=self._not_judged.total(),
        )

    def _divided(self) -> Portions:
        """Return what is judged, and by what.

        Raises:
            StartRefused: a part that was asked for, or everything, can be judged by nothing.
        """
        remembered = receipted_topics(self._graph)
        divided = partial(
            divide,
            self._scope,
            self._logs.committed(),
            self._logs,
            receipts=self._proof is not Proof.FUNCTIONS,
        )
        if self._proof is not Proof.AUTO:
            portions = divided()
            is_for_all = self._proof is Proof.RECEIPTS
            portions.refuse_functions(self._input_topics if is_for_all else remembered)
            return replace(portions, remembered=remembered)
        portions = divided(remembered=remembered)
        portions.refuse_functions(remembered)
        portions.refuse_nothing()
        return portions

    def _leave_removed_rows_out(self) -> None:
        """Judge no topic of rows whose rows were removed because the database has them."""
        own = {p.topic for p in self._graph.persisters if p.sub_topology is not None}
        partitions, _ = self._logs.partitions(own)
        removed = {p.topic for p, first in self._logs.firsts(partitions).items() if first}
        self._derivation.left_out |= removed
        self._derivation.topics -= removed
        self._notes += [
            f"topic {topic} is not compared: rows that the database has were removed"
            for topic in sorted(removed)
        ]

    def _read_letters(self) -> None:
        """Learn from dead letters what functions cannot tell: what was refused, or replayed."""
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
                if step != OUTPUT_STEP and not replayed:
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
        """Tell whether a record of an own topic is a dead letter that was replayed into it."""
        if not self._replayed or partition.topic not in self._own:
            return False
        place = _text(dict(message.headers() or ()), HEADER_REPLAYED)
        if self._replayed.get(place) != partition.topic:
            return False
        del self._replayed[place]  # a second one is a copy
        return True

    def _derive(self, ranges: Ranges) -> int:
        records = 0
        for partition, messages in self._logs.read(ranges, "input"):
            self._derivation.derive(partition, messages, self._expected)
            records += len(messages)
        return records

    def _learn_topics(self, portions: Portions) -> None:
        """Run functions for the topics that they choose, where receipts are to judge."""
        choosing = [part for part in self._graph.sub_topologies if part.dynamic_sinks]
        # What tasks remember is not here, so the functions behind it cannot be run.
        forgetful = {
            source.topic for part in choosing if not part.stores for source in part.sources
        }
        ranges = {p: bounds for p, bounds in portions.receipted.items() if p.topic in forgetful}
        for partition, messages in self._logs.read(ranges, "topics"):
            self._derivation.derive(partition, messages, Ledger())
        self._notes += [
            f"sub-topology {part.name} remembers, so topics that {', '.join(part.dynamic_sinks)} "
            f"chose are read only where the topology lists them; give the sink topics: [...]"
            for part in choosing
            if part.stores
        ]

    def _read_inputs(self, books: Books, portions: Portions) -> None:
        for partition, messages in self._logs.read(portions.receipted, "input"):
            books.take_inputs(partition, messages)

    def _read_outputs(self, ranges: Ranges, books: Books, portions: Portions) -> None:
        """Give each output to whom it is for; of a part of the input only what may be of it.

        What nothing can prove is counted, unless it is what a function's record must have given.
        """
        sieve = self._expected.sieve()
        for partition, messages in self._logs.read(ranges, "output"):
            by_broker = self._logs.has_broker_time(partition.topic)
            for message in messages:
                if books.take(partition, message) or self._is_replay(partition, message):
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

    def _look_elsewhere(
        self, matching: Matching, portions: Portions, now: dict[TopicPartition, Position]
    ) -> Ledger | None:
        """Derive the outputs of input that is not judged, where they may explain what was found.

        Returns:
            Of the whole input: what lies behind the committed positions.
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
        last = self._logs.stable_ends(list(portions.since_then(now)))
        behind = {p: (now[p].offset or 0, end) for p, end in last.items()}
        batches = self._logs.read(behind, "input ahead")
        for derived in self._derivation.derive_while_it_works(batches):
            ahead.extend(derived)
        return ahead

    def _note(self, portions: Portions, outputs: Ranges, *, lost: int) -> None:
        """Note which logs have lost records that may explain the numbers, and what is left out."""
        for persister in self._graph.persisters:
            tables = ", ".join(sink.table for sink in persister.tables)
            self._notes.append(f"what topic {persister.topic} gave table {tables} is not compared")
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
        """Note what of the input, and which outputs, nothing can judge."""
        by_topic: dict[str, list[str]] = {}
        for p, (start, end) in portions.left_out.items():
            by_topic.setdefault(p.topic, []).append(f"{p}@{start} to @{end - 1}")
        for places in by_topic.values():
            more = len(places) - SHOWN_PARTITIONS
            shown = ", ".join(places[:SHOWN_PARTITIONS]) + (f" and {more} more" if more > 0 else "")
            self._notes.append(
                f"{shown}: processed without receipts (worker.receipts) by tasks that functions "
                f"cannot judge, for they remember or write a repartition topic; not judged"
            )
        for topic, step in self._unproved.items():
            self._notes.append(
                f"topic {topic}: {self._not_judged[topic]:,} outputs without a receipt are not "
                f"judged; {step} gives them, and they come from many inputs"
            )


def _text(headers: Mapping[str, bytes | None], name: str) -> str:
    return (headers.get(name) or b"").decode(errors="replace")


def _number(headers: Mapping[str, bytes | None], name: str) -> int:
    """Return what a header says; -1: it was written by somebody else."""
    try:
        return int(headers.get(name) or -1)
    except ValueError:
        return -1
