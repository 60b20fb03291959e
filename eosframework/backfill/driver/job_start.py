"""The start of a job: its input is fixed and recorded before anything is processed.

1. refuse an application that cannot start live either, as a worker does
2. for an existing job: refuse another topology or range under its name, and resume
3. resolve the ranges, fix their ends, list the files
4. for a stateful application: refuse running workers, fence its ids, refuse existing state
5. write the job, unless another driver has done so meanwhile

A crash before 5 leaves nothing, and the next start fixes its own ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from eosframework.application.context import ApplicationContext
from eosframework.application.fencing import fence_workers
from eosframework.application.internal_topics import task_counts
from eosframework.application.partitioner_checks import require_fitting_partitioners
from eosframework.application.start_checks import Facts, check_start
from eosframework.application.start_wait import waiting_for_brokers
from eosframework.backfill.job.fingerprint import differences, fingerprint
from eosframework.backfill.job.job_entry import (
    Files,
    Job,
    JobState,
    OffsetRange,
    PinnedFile,
    check_name,
)
from eosframework.backfill.job.job_log import JobLog
from eosframework.backfill.job.ranges import offset_ranges, refuse_empty
from eosframework.backfill.job.registration import register
from eosframework.backfill.job.request import FileRequest, Request, request_differences
from eosframework.backfill.job.stages import Stage, stages, writers_of
from eosframework.config import Settings
from eosframework.errors import ConfigurationError, StartRefused
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.schema_registry.schema_codecs import open_schemas
from eosframework.records import TopicPartition, partitions_of
from eosframework.runtime.ids import id_source
from eosframework.topology.graph.graph import Graph
from eosframework.txnid import tables_group

SCHEMAS_PATIENCE_SECONDS = 60.0
"""Longest wait of a record on an executor for an unavailable schema registry."""

SPLIT_BYTES = 64 * 1024 * 1024
"""Size of file splits; fixed, so that a row has the same number in each read."""

Pin = Callable[[FileRequest], tuple[PinnedFile, ...]]
"""Lists the files of a request, sorted."""


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
    log: JobLog
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
    log = JobLog(check_name(name), graph.application, settings.kafka, admin)
    facts = waiting_for_brokers(
        lambda: check_start(context, id_source(settings)), settings.kafka.start_timeout_seconds
    )
    require_fitting_partitioners(graph, settings, admin, facts.partitions)
    open_schemas(graph.codecs, settings.schema_registry, patience_seconds=SCHEMAS_PATIENCE_SECONDS)
    _require_tables(graph, settings)
    tasks = task_counts(graph, facts.partitions)
    state = log.watch() or log.read()  # a visible job needs no wait for open transactions
    if state is None:
        job = _new_job(context, name, request, facts, pin)
        stages(graph, tasks, job.files)  # cycles are refused before the job exists
        _refuse_running(context, facts)
        state = register(job, log, settings)
    _refuse_another(state.job, context, request, facts)
    graph = graph.with_times_within(settings.worker.max_event_time_ahead, state.job.files)
    ordered = stages(graph, tasks, state.job.files)
    return StartedJob(graph, settings, admin, log, facts, state, ordered, tasks)


def _require_tables(graph: Graph, settings: Settings) -> None:
    """Check the requirements of the last stage now; the job may take hours until then."""
    if graph.table_sinks:
        # Imported here: without table sinks no database driver is needed.
        from eosframework.runtime.table_writer import require_tables

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
    ranges = offset_ranges(in_kafka, graph.whole_topics, request.start, request.end, admin)
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
        split_bytes=SPLIT_BYTES,
        files=found,
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
    found = offset_ranges(topics, frozenset(), live_from, (), admin)
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
