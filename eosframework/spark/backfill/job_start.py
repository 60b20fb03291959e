"""The start of a job: its input is fixed and recorded before anything is processed.

1. refuse an application that cannot start live either, as a worker does
2. for an existing job: refuse another topology or range under its name, and resume
3. resolve the ranges, fix their ends, list the files
4. for a stateful application: refuse running workers, fence its ids, refuse existing state
5. write the job, unless another driver has done so meanwhile

A crash before 5 leaves nothing, and the next start fixes its own ends.

The input ranges of a job: `--from` and `--to` parsed, and resolved to offsets.
WHERE         beginning, end, or a time: 2024-01-01, 2024-01-01T06:00:00Z
TOPIC=WHERE   for one topic
TOPIC[N]=OFFSET

Writes a job to the control topic once, even if several drivers start it at the same time.

It is an owned key (`transactions/session/owned_keys`): a driver claims the id of the job, and
writes it if there is none. A fenced driver claims it again, and finds the job.

Each driver determines its own ends. If the last writer won, tasks that have processed the first
driver's ranges would count as complete for those of the last, and the difference would be lost.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from eosframework.application.composition.ids import id_source
from eosframework.application.context import ApplicationContext
from eosframework.application.fencing import fence_workers
from eosframework.application.internal_topics import task_counts
from eosframework.application.journal import KafkaJournal
from eosframework.application.partitioner_checks import require_fitting_partitioners
from eosframework.application.start_checks import Facts, check_start
from eosframework.application.start_wait import waiting_for_brokers
from eosframework.config import Settings
from eosframework.errors import ConfigurationError, InstanceFenced, StartRefused
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.schema_registry.schema_codecs import open_schemas
from eosframework.kafka.worker_clients import producers
from eosframework.records import TopicPartition, partitions_of, whole_number
from eosframework.serialization.moments import moment_ms
from eosframework.spark.job.job_entry import (
    Files,
    Job,
    JobState,
    OffsetRange,
    PinnedFile,
    PinnedTable,
    check_name,
    decided_job,
    settled_job,
    to_entries,
)
from eosframework.spark.job.stages import (
    FileRequest,
    Request,
    Stage,
    differences,
    fingerprint,
    request_differences,
    stages,
    writers_of,
)
from eosframework.topology.graph.graph import Graph
from eosframework.transactions.ports import Journal, TransactionalOutputs
from eosframework.transactions.session.owned_keys import Claim, OwnedKey, OwnedKeys
from eosframework.transactions.session.session_states import Policy
from eosframework.txnid import TransactionalId, tables_group

BEGINNING, END = "beginning", "end"

_ONE = re.compile(r"(?P<topic>[^\[\]=]+)(\[(?P<number>[0-9]{1,9})\])?=(?P<where>.+)")
_EXPECTED = (
    "expected beginning, end, a time such as 2024-01-31 or 2024-01-31T06:00:00Z, TOPIC= with one "
    "of these, or TOPIC[PARTITION]=OFFSET"
)


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range.

    Args:
        topic: None: every topic.
        partition: None: every one of the topic; else `where` is an offset.
        where: beginning, end, milliseconds since the epoch, or an offset.
    """

    topic: str | None
    partition: int | None
    where: str | int
    text: str


def parse_bound(text: str) -> Bound:
    """Parse one argument of `--from` or `--to`.

    Raises:
        ConfigurationError: the argument has another form.
    """
    match = _ONE.fullmatch(text)
    where = match["where"] if match else text
    topic = match["topic"] if match else None
    if match and match["number"] is not None:
        if (offset := whole_number(where)) is None:
            raise ConfigurationError(f"{text!r} is not a bound: {where!r} is not an offset")
        return Bound(topic, int(match["number"]), offset, text)
    if where in (BEGINNING, END):
        return Bound(topic, None, where, text)
    try:
        return Bound(topic, None, moment_ms(where), text)
    except ValueError:
        raise ConfigurationError(f"{text!r} is not a bound; {_EXPECTED}") from None


def _offset_ranges(
    topics: Mapping[str, int],
    whole: frozenset[str],
    starts: Sequence[str],
    ends: Sequence[str],
    admin: ClusterAdmin,
) -> dict[str, tuple[OffsetRange, ...]]:
    """Return the range of every partition, with fixed ends.

    Args:
        topics: number of partitions by topic.
        whole: topics of tables, which are read from their beginning.
        starts: arguments of `--from`; later ones override earlier ones.
        ends: arguments of `--to`.
        admin: admin client of the cluster.

    Raises:
        ConfigurationError: the job does not read a topic, a range is reversed or not in the log, or
            records of it were deleted.
    """
    asked = [parse_bound(text) for text in starts], [parse_bound(text) for text in ends]
    for bound in (*asked[0], *asked[1]):
        _refuse_unknown(bound, topics)
    partitions = [TopicPartition(t, n) for t, count in sorted(topics.items()) for n in range(count)]
    log = admin.log_bounds(partitions)
    first = _resolved([Bound(None, None, BEGINNING, BEGINNING), *asked[0]], partitions, log, admin)
    last = _resolved([Bound(None, None, END, END), *asked[1]], partitions, log, admin)
    ranges: dict[str, list[OffsetRange]] = {topic: [] for topic in topics}
    for partition in partitions:
        begin, end = log[partition]
        (start, start_bound), (stop, stop_bound) = first[partition], last[partition]
        if partition.topic in whole:
            start = begin
        else:
            _refuse_gone(partition, start_bound, start, begin)
        for offset, bound in ((start, start_bound), (stop, stop_bound)):
            if not begin <= offset <= end:
                raise ConfigurationError(
                    f"{bound.text}: offset {offset} of {partition} is not in the log, which holds "
                    f"{begin} to {end}; give one of these"
                )
        if start > stop:
            raise ConfigurationError(
                f"the range of {partition} is reversed: --from {start_bound.text} is offset "
                f"{start}, and --to {stop_bound.text} is offset {stop}"
            )
        ranges[partition.topic].append(OffsetRange(first=start, end=stop))
    return {topic: tuple(found) for topic, found in ranges.items()}


def _refuse_effects(graph: Graph) -> None:
    """Refuse effects outside of Kafka, which history would repeat."""
    if graph.effects_topics:
        raise ConfigurationError(
            f"application {graph.application!r} has steps with call_once "
            f"({', '.join(graph.effects_topics)}), whose effects a backfill would make for all of "
            f"its history; backfill a topology without them, or one that ends at the topic before"
        )


def refuse_empty(ranges: Mapping[str, Sequence[OffsetRange]]) -> None:
    """Raise if there is nothing to process.

    Raises:
        ConfigurationError: no partition has a record in its range.
    """
    if all(one.first == one.end for found in ranges.values() for one in found):
        listed = ", ".join(
            f"{topic}[{number}] {one.first} to {one.end}"
            for topic, found in sorted(ranges.items())
            for number, one in enumerate(found)
        )
        raise ConfigurationError(
            f"the range holds no record: {listed or 'there is no topic'}; widen --from and --to"
        )


def _refuse_unknown(bound: Bound, topics: Mapping[str, int]) -> None:
    if bound.topic is None:
        return
    if bound.topic not in topics:
        raise ConfigurationError(
            f"{bound.text!r}: {bound.topic!r} is not a topic that the job reads from Kafka; it "
            f"reads {', '.join(sorted(topics)) or 'none'}"
        )
    if bound.partition is not None and bound.partition >= topics[bound.topic]:
        raise ConfigurationError(
            f"{bound.text!r}: topic {bound.topic!r} has {topics[bound.topic]} partitions, counted "
            f"from 0"
        )


def _refuse_gone(partition: TopicPartition, bound: Bound, start: int, begin: int) -> None:
    """Raise if retention deleted requested records.

    For a time, the loss cannot be determined: if the log has lost its beginning and all remaining
    records are newer than that time, records in between may have been deleted.
    """
    if bound.partition is None and isinstance(bound.where, int) and start == begin > 0:
        raise ConfigurationError(
            f"{partition}: the records from {bound.text} on are not all there any more: the log "
            f"begins at offset {begin}, later than that. To take the rest: --from "
            f"{partition.topic}={BEGINNING}"
        )
    if bound.partition is not None and start < begin:
        raise ConfigurationError(
            f"{partition}: offset {start} was deleted by retention; the log begins at offset "
            f"{begin}. To take the rest: --from  {partition.topic}[{partition.partition}]={begin}"
        )


def _resolved(
    bounds: Sequence[Bound],
    partitions: Sequence[TopicPartition],
    log: Mapping[TopicPartition, tuple[int, int]],
    admin: ClusterAdmin,
) -> dict[TopicPartition, tuple[int, Bound]]:
    found: dict[TopicPartition, tuple[int, Bound]] = {}
    for bound in bounds:
        meant = [p for p in partitions if bound.topic in (None, p.topic)]
        if bound.partition is not None:
            meant = [p for p in meant if p.partition == bound.partition]
            found.update({p: (int(bound.where), bound) for p in meant})
        elif isinstance(bound.where, str):
            side = 0 if bound.where == BEGINNING else 1
            found.update({p: (log[p][side], bound) for p in meant})
        else:
            offsets = admin.offsets_at(meant, bound.where)
            for partition in meant:
                offset = offsets[partition]
                end = log[partition][1]
                found[partition] = (end if offset is None else min(offset, end), bound)
    return found


_ATTEMPTS = 20
_PAUSE_SECONDS = 0.5
"""Largest random pause, so that two drivers do not fence each other repeatedly."""


def register(
    job: Job,
    journal: KafkaJournal,
    settings: Settings,
    *,
    pause: Callable[[float], None] = time.sleep,
) -> JobState:
    """Write a job unless another driver has, and return the written one.

    Args:
        job: this driver's version.
        journal: of the application.
        settings: connection to the cluster.
        pause: waits for a number of seconds.

    Raises:
        ClusterUnreachable: the brokers do not commit it; whether it is written is unknown.
        RunError: the brokers refuse the id or the entries, and would again.
        InstanceFenced: other drivers took the id again and again.
    """
    outputs = producers(settings)
    try:
        return registered(
            job, journal, outputs, settings.worker.transaction_timeout_seconds, sleep=pause
        )
    finally:
        outputs.stop()


def registered(
    job: Job,
    journal: Journal,
    outputs: TransactionalOutputs,
    timeout_seconds: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> JobState:
    """Write a job by some producers; see `register`."""
    *files, (key, entry) = to_entries(job).items()
    id_ = str(TransactionalId.backfill(job.application, job.name, 0))
    name = f"the start of job {job.name!r}"
    claim: Claim[Any] = Claim(id_, name, key, lambda it: it, lambda it: it)
    policy = Policy(
        timeout_seconds,
        successor="another driver",
        advice="Start the job again: it resumes if it is written",
    )
    events = structlog.get_logger("eosframework.backfill").bind(job=job.name)
    keys: OwnedKeys[Any] = OwnedKeys(
        outputs, journal, policy, events, lost="Start it again", clock=clock, sleep=sleep
    )
    for attempt in range(1, _ATTEMPTS + 1):
        owned: list[OwnedKey[Any]] = []
        try:
            # 1. two drivers find no job  2. both init the job's id, and the later one fences the
            # earlier one  3. the earlier one's commit fails, and in its next attempt it reads the
            # job of the later one.
            [one] = owned = keys.claim([claim])
            while one.known is None:
                keys.write(one, [[journal.output(*file) for file in files]], entry)
            break
        except InstanceFenced as error:
            if attempt == _ATTEMPTS:
                raise
            events.warning("job_start_repeated", error=str(error))
        finally:
            keys.close(owned)
        sleep(random.uniform(0, _PAUSE_SECONDS))
    state = settled_job(journal, job.name)
    assert state is not None, "the job is written"
    return state


_SCHEMAS_PATIENCE_SECONDS = 60.0
"""Longest wait of a record on an executor for an unavailable schema registry."""

_SPLIT_BYTES = 64 * 1024 * 1024
"""Size of file splits; fixed, so that a row has the same number in each read."""

Pin = Callable[[FileRequest], "tuple[PinnedFile, ...] | PinnedTable"]
"""Lists the files of a request, sorted, or finds the current version of its table."""


@dataclass(frozen=True, slots=True)
class StartedJob:
    """A job that may run.

    Args:
        facts: of the cluster.
        stages: in execution order.
        tasks: number of tasks by sub-topology.
    """

    graph: Graph
    settings: Settings
    admin: ClusterAdmin
    journal: KafkaJournal
    facts: Facts
    state: JobState
    stages: Sequence[Stage]
    tasks: Mapping[str, int]


def start(context: ApplicationContext, name: str, request: Request, pin: Pin) -> StartedJob:
    """Start a job, or resume an existing one.

    Args:
        context: of the application, with the suffix in the names of its outputs.
        name: of the job.
        request: the user's input ranges and files.
        pin: lists files.

    Raises:
        StartRefused: a worker could not start either, or the application has state already.
        ConfigurationError: the range is not available, or the job was started with another one or
            by another topology.
        DatabaseUnusable: there are table sinks, and the database cannot be queried.
    """
    graph, settings, admin = context.graph, context.settings, context.admin
    check_name(name)
    _refuse_effects(graph)
    journal = KafkaJournal(graph.application, settings.kafka, admin)
    facts = waiting_for_brokers(
        lambda: check_start(context, id_source(settings)), settings.kafka.start_timeout_seconds
    )
    require_fitting_partitioners(graph, settings, admin, facts.partitions)
    open_schemas(graph.codecs, settings.schema_registry, patience_seconds=_SCHEMAS_PATIENCE_SECONDS)
    _require_tables(graph, settings)
    tasks = task_counts(graph, facts.partitions)
    # A visible job needs no wait for open transactions.
    state = decided_job(journal, name) or settled_job(journal, name)
    if state is None:
        job = _new_job(context, name, request, facts, pin)
        stages(graph, tasks, job.files)  # cycles are refused before the job exists
        _refuse_running(context, facts)
        state = register(job, journal, settings)
    _refuse_another(state.job, context, request, facts)
    graph = graph.with_times_within(settings.worker.max_event_time_ahead, state.job.files)
    ordered = stages(graph, tasks, state.job.files)
    return StartedJob(graph, settings, admin, journal, facts, state, ordered, tasks)


def _require_tables(graph: Graph, settings: Settings) -> None:
    """Check the requirements of the last stage now; the job may take hours until then."""
    if graph.table_sinks:
        # Imported here: without table sinks no database driver is needed.
        from eosframework.application.composition.table_writer import require_tables

        require_tables(graph, settings)


def _new_job(
    context: ApplicationContext, name: str, request: Request, facts: Facts, pin: Pin
) -> Job:
    graph, admin = context.graph, context.admin
    own = writers_of(graph)
    read = {
        *graph.source_topics,
        *(table_sink.topic for table_sink in graph.table_sinks if table_sink.sub_topology is None),
    } - own.keys()
    files = {one.topic: one for one in request.files}
    _refuse_files(graph, files, read)
    counts = {topic: facts.partitions[topic] for topic in read}
    in_kafka = {topic: count for topic, count in counts.items() if topic not in files}
    ranges = _offset_ranges(in_kafka, graph.whole_topics, request.start, request.end, admin)
    if not files:
        refuse_empty(ranges)
    replaced = {topic: counts[topic] for topic in files}
    return Job(
        application=graph.application,
        name=name,
        fingerprint=fingerprint(graph),
        request=request.written(),
        suffix=request.suffix[0] if request.suffix else None,
        receipts=context.settings.worker.receipts,
        created_at=round(time.time() * 1000),
        ranges={**ranges, **_live_starts(replaced, request.live_from, admin)},
        files={topic: _fixed(one, counts[topic], pin) for topic, one in files.items()},
        own_starts=_ends({topic: facts.partitions[topic] for topic in own}, admin),
        topic_ids={topic: facts.topics[topic].topic_id for topic in {*read, *own}},
    )


def _fixed(request: FileRequest, partitions: int, pin: Pin) -> Files:
    found = pin(request)
    if not found:
        raise ConfigurationError(
            f"there is no file at {', '.join(request.paths)} to stand for topic "
            f"{request.topic!r}; correct the path"
        )
    return Files(
        format=request.format,
        options=request.spark_options,
        key=request.key,
        record=request.record,
        partitions=partitions,
        partitioner=request.partitioner,
        split_bytes=_SPLIT_BYTES,
        files=() if isinstance(found, PinnedTable) else found,
        table=found if isinstance(found, PinnedTable) else None,
    )


def _live_starts(
    topics: Mapping[str, int], live_from: Sequence[str], admin: ClusterAdmin
) -> dict[str, tuple[OffsetRange, ...]]:
    """Return the starts of live workers in topics replaced by files.

    Raises:
        ConfigurationError: such a topic has records, and `--live-from` is missing.
    """
    if not topics:
        return {}
    found = _offset_ranges(topics, frozenset(), live_from, (), admin)
    if not live_from:
        for topic, ranges in sorted(found.items()):
            if any(one.first != one.end for one in ranges):
                raise ConfigurationError(
                    f"files stand for topic {topic!r}, which holds records too: set the start of "
                    f"live workers, so that no record is processed twice or left out, for "
                    f"example --live-from {topic}=beginning, or =2024-12-01, or =end"
                )
    return {
        topic: tuple(OffsetRange(first=one.first, end=one.first) for one in ranges)
        for topic, ranges in found.items()
    }


def _ends(topics: Mapping[str, int], admin: ClusterAdmin) -> dict[str, tuple[int, ...]]:
    log = admin.log_bounds(partitions_of(topics))
    return {
        topic: tuple(log[TopicPartition(topic, n)][1] for n in range(count))
        for topic, count in topics.items()
    }


def _refuse_files(graph: Graph, files: Mapping[str, FileRequest], read: set[str]) -> None:
    persisted = {p.topic for p in graph.table_sinks if p.sub_topology is None}
    for topic in sorted(files):
        if topic not in read:
            raise ConfigurationError(
                f"files are given for topic {topic!r}, which application {graph.application!r} "
                f"does not read; it reads {', '.join(sorted(read)) or 'none'}"
            )
        if topic in persisted:
            raise ConfigurationError(
                f"files are given for topic {topic!r}, which goes to tables as it is, by its "
                f"offsets; load the files into the table with COPY instead, and leave the topic "
                f"out of the topology for the backfill"
            )


def _refuse_another(job: Job, context: ApplicationContext, request: Request, facts: Facts) -> None:
    """Raise if the job to resume was started differently."""
    graph, receipts = context.graph, context.settings.worker.receipts
    how = (
        f"a job resumes only as it was started; give another name to --job to start a new one, "
        f"or repeat the arguments of {job.name!r}"
    )
    if changed := differences(job.fingerprint, fingerprint(graph)):
        raise ConfigurationError(
            f"job {job.name!r} was started by another topology: {', '.join(changed)} changed "
            f"since. Its output belongs to the old one, so the new one starts over: under "
            f"another --job and, if the application is stateful, under another application name. "
            f"Or restore the topology of {job.name!r}, and it resumes"
        )
    if changed := request_differences(job.request, request.written()):
        raise ConfigurationError(
            f"job {job.name!r} was started with another request: {'; '.join(changed)} ({how})"
        )
    if job.receipts != receipts:
        raise ConfigurationError(
            f"job {job.name!r} was started with worker.receipts={str(job.receipts).lower()}, and "
            f"worker.receipts is {str(receipts).lower()} now: its outputs have receipts from the "
            f"first one on, or none has any ({how})"
        )
    for topic, topic_id in sorted(job.topic_ids.items()):
        if facts.topics[topic].topic_id != topic_id:
            raise StartRefused(
                f"topic {topic!r} was deleted and created again since job {job.name!r} started: "
                f"its offsets mean other records now, so the job cannot resume; start a new one"
            )


def _refuse_running(context: ApplicationContext, facts: Facts) -> None:
    """Raise if a stateful application has workers or state already.

    A worker paused before its EndTxn would add to the state that the job fills, so it is fenced
    before the state is read.
    """
    graph, admin, name = context.graph, context.admin, context.graph.application
    if not graph.stores and not writers_of(graph):
        return
    why = (
        f"application {name!r} keeps state, and a backfill requires one without state: give the "
        f"topology another application name, backfill that, and let `eosframework backfill "
        f"cutover` take over"
    )
    clients = {*facts.group.client_ids, *admin.describe_group(tables_group(name)).client_ids}
    if clients:
        raise StartRefused(f"{len(clients)} workers of it are running. {why}")
    fence_workers(context)
    partitions = [position.topic_partition for position in facts.committed]
    committed = [p for p in admin.committed(name, partitions) if p.offset is not None]
    if committed:
        raise StartRefused(f"it has processed {committed[0].topic_partition} before. {why}")
    changelogs = partitions_of({topic: facts.partitions[topic] for topic in graph.changelog_topics})
    ends = admin.high_watermarks(changelogs)
    filled = [p for p, (first, _) in admin.log_bounds(changelogs).items() if first < ends[p]]
    if filled:
        raise StartRefused(f"changelog {sorted(filled)[0]} holds records. {why}")
