"""The audit of Kafka sinks: each row of each complete batch is in its topic once, by receipts.

1. read the last batch of each sink: the rows up to its positions are judged
2. read the end offsets E of the topics, once every transaction open then is decided
3. read the batches and the progress of their shards again: rows up to there may be visible
4. read the topics up to E; receipts go into the books of their shards
5. where a book has a hole or a copy: read the topics again to name the records

A row is committed with the progress of its shard, and the batch becomes complete later. So every
row that is judged was decided before step 2, and every row that step 4 finds is in step 3.

The audit starts from the rows that Spark offered. It does not read the sources of a query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from eosframework.application.journal import KafkaJournal
from eosframework.config import KafkaSettings
from eosframework.engine.task.receipts import Series
from eosframework.errors import StartRefused
from eosframework.kafka.consumer.range_reader import Ranges
from eosframework.operations.audit import Verdict
from eosframework.operations.audit.audit_logs import OPEN_TRANSACTION_SECONDS, Logs
from eosframework.operations.audit.receipt_books import Books, Span
from eosframework.process.steps import OnProgress, ignore_progress
from eosframework.records import TopicPartition
from eosframework.spark.sinks.kafka.sink_log import receipts_topic
from eosframework.spark.sinks.sink_entry import (
    ShardProgress,
    SinkBatch,
    batch_key,
    is_batch_key,
    position,
    shard_key,
)


def audit_sinks(
    application: str,
    settings: KafkaSettings,
    on_progress: OnProgress = ignore_progress,
) -> Verdict:
    """Prove that each row of the complete batches of an application's Kafka sinks is there once.

    Args:
        application: owner of the sinks.
        settings: connection to the cluster.
        on_progress: see `OnProgress`.

    Raises:
        StartRefused: the application has no sinks in Kafka, or none of them has receipts.
        RunError: a transaction stays open.
        ClusterUnreachable: the cluster did not answer.
    """
    logs = Logs(application, (), settings, on_progress)
    journal = KafkaJournal(
        application, settings, logs.admin, settle_seconds=OPEN_TRANSACTION_SECONDS
    )
    entries = journal.settled_under(batch_key(""))
    batches = _batches(entries)
    _refuse(application, journal.topic, batches)
    receipted = {sink: one for sink, one in batches.items() if one.receipts_since is not None}

    outputs, missing = logs.partitions({t for one in receipted.values() for t in one.topics})
    ends = logs.settled_ends(outputs)
    now = journal.settled_under(batch_key(""))
    spans = [span for sink, one in receipted.items() for span in _spans(sink, one, now)]
    books = Books(application, spans, counted="batch")
    books.take_ranges_as_inputs()
    ranges = {p: (first, ends[p]) for p, first in logs.firsts(outputs).items()}
    strangers = _read(logs, ranges, books)
    if books.prepare_second_pass():
        for partition, messages in logs.read(ranges, "output again"):
            for message in messages:
                books.look_up(partition, message)
    notes = [
        *(f"topic {topic} does not exist" for topic in missing),
        *_notes_on_sinks(batches),
        *_notes_on_topics(logs, ranges, strangers),
    ]
    verdict = books.verdict()
    return replace(verdict, notes=tuple(notes), share=_share(batches))


def _batches(entries: Mapping[str, object]) -> dict[str, SinkBatch]:
    prefix = batch_key("")
    return {
        key.removeprefix(prefix): SinkBatch.from_entry(entry)
        for key, entry in sorted(entries.items())
        if is_batch_key(key)
    }


def _refuse(application: str, topic: str, batches: Mapping[str, SinkBatch]) -> None:
    if not batches:
        raise StartRefused(
            f"application {application!r} has no sinks of Spark in Kafka: {topic} has no "
            f"entry of one. Correct the name or kafka.bootstrap_servers; for an application with "
            f"a topology, name the topology instead of --sinks"
        )
    if all(one.receipts_since is None for one in batches.values()):
        raise StartRefused(
            f"the sinks of application {application!r} write no receipts ({', '.join(batches)}), "
            f"so there is nothing to judge by. Set worker.receipts to true in the settings of the "
            f"sinks; the rows from then on can be judged"
        )


def _spans(sink: str, batch: SinkBatch, now: Mapping[str, object]) -> Iterable[Span]:
    """Yield the span of each shard; shards that are new since then are not judged."""
    later = SinkBatch.from_entry(now[batch_key(sink)])
    for shard, end in enumerate(batch.positions):
        since = position(batch.receipts_since or (), shard)
        series = Series(since, end - since, end - 1 if end > since else None)
        yield Span(
            TopicPartition(receipts_topic(sink), shard),
            start=since,
            end=end,
            position=end,
            series=series,
            transaction=batch.sequence,
            position_now=_position_now(sink, later, shard, now),
        )


def _position_now(sink: str, batch: SinkBatch, shard: int, now: Mapping[str, object]) -> int:
    found = now.get(shard_key(sink, shard))
    base = position(batch.positions, shard)
    if batch.complete or found is None:
        return base
    progress = ShardProgress.from_entry(found)
    return base + progress.rows if progress.sequence == batch.sequence else base


def _read(logs: Logs, ranges: Ranges, books: Books) -> Counter[str]:
    """Add all records to the books; return the number of others by topic."""
    strangers: Counter[str] = Counter()
    for partition, messages in logs.read(ranges, "output"):
        for message in messages:
            if not books.add(partition, message):
                strangers[partition.topic] += 1
    return strangers


def _notes_on_sinks(batches: Mapping[str, SinkBatch]) -> Iterable[str]:
    for sink, one in batches.items():
        if not one.complete:
            yield f"sink {sink}: {one.batch} is incomplete, so its rows are not judged"
        if one.receipts_since is None:
            yield f"sink {sink} writes no receipts (worker.receipts), so it is not judged"


def _notes_on_topics(logs: Logs, ranges: Ranges, strangers: Mapping[str, int]) -> Iterable[str]:
    for topic, count in sorted(strangers.items()):
        yield (f"topic {topic}: {count:,} records without a receipt of these sinks are not judged")
    for partition, (first, _) in ranges.items():
        if first:
            yield f"{partition} begins at offset {first}: earlier records are gone"
    for topic in logs.compacted({p.topic for p in ranges}):
        yield (
            f"topic {topic} is compacted: records that a later one of their key replaced are gone, "
            f"and count as lost"
        )


def _share(batches: Mapping[str, SinkBatch]) -> float:
    """Return the share of rows with receipts, from 0 to 1."""
    rows = sum(sum(one.positions) for one in batches.values())
    receipted = sum(
        end - position(one.receipts_since, shard)
        for one in batches.values()
        if one.receipts_since is not None
        for shard, end in enumerate(one.positions)
    )
    return receipted / rows if rows else 1.0
