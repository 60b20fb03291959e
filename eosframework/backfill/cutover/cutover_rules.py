"""Reasons against a cutover; each rule is a pure function of cluster and control topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from eosframework.application.control_topic import ControlState
from eosframework.backfill.job.fingerprint import differences, fingerprint
from eosframework.backfill.job.job_entry import Job, JobState
from eosframework.errors import ConfigurationError, StartRefused
from eosframework.kafka.admin.metadata import GroupDescription, TopicDescription
from eosframework.records import Position, TopicPartition
from eosframework.topology.graph.graph import Graph

NAMED = 5
"""Number of tasks that a message lists."""


def live_positions(graph: Graph, state: JobState) -> list[Position]:
    """Return the start of live workers in every source partition of a complete job.

    An internal topic resumes at its fixed end; a topic replaced by files at the job's live start.
    Receipts of these count rows, so that live workers begin another numbering there. That of a
    range of the log continues. Sources added to the topology later are left out.
    """
    job = state.job
    in_rows = {*job.own_starts, *job.files}
    return [
        Position(
            source.topic,
            number,
            end,
            progress.metadata
            if source.topic in in_rows
            else progress.metadata_of(TopicPartition(source.topic, number)),
        )
        for part in graph.sub_topologies
        for source in part.sources
        for number, end in enumerate(range_ends(state, source.topic))
        if (progress := state.tasks.get((part.name, number))) is not None
    ]


def range_ends(state: JobState, topic: str) -> tuple[int, ...]:
    """Return the end of the job's range in each partition of a topic; empty: not read."""
    if topic in state.job.own_starts:
        return state.ends.get(topic, ())
    return tuple(one.end for one in state.job.ranges.get(topic, ()))


def range_starts(state: JobState, topic: str) -> tuple[int, ...]:
    """Return the start of the job's range in each partition of a topic."""
    if topic in state.job.own_starts:
        return state.job.own_starts[topic]
    return tuple(one.first for one in state.job.ranges[topic])


def refuse_suffix(job: Job) -> None:
    """Raise if a job writes suffixed topics and tables."""
    if job.suffix is not None:
        raise ConfigurationError(
            f"job {job.name!r} fills topics and tables with the suffix {job.suffix!r}, so there "
            f"is nothing to cut over; compare them with the live ones: `eosframework backfill diff`"
        )


def refuse_another_topology(graph: Graph, job: Job) -> None:
    """Raise if live workers would run another topology than the job."""
    if changed := differences(job.fingerprint, fingerprint(graph)):
        raise StartRefused(
            f"job {job.name!r} ran another topology: {', '.join(changed)} changed since, so live "
            f"workers would resume from another topology's state; restore the job's topology, cut "
            f"over, and change it then"
        )


def refuse_incomplete(
    graph: Graph, state: JobState, topics: Mapping[str, TopicDescription]
) -> None:
    """Raise unless the job has processed every source of the live workers to its end."""
    name = state.job.name
    for topic, topic_id in sorted(state.job.topic_ids.items()):
        found = topics[topic]
        if not found.exists or found.topic_id != topic_id:
            raise StartRefused(
                f"topic {topic!r} was deleted{' and created again' if found.exists else ''} since "
                f"job {name!r} started: its offsets mean other records now; start a new job"
            )
        count = _partitions_read(state.job, topic)
        if count is not None and found.partitions != count:
            raise StartRefused(
                f"topic {topic!r} has {found.partitions} partitions, and job {name!r} has read it "
                f"with {count}: keys have moved to other partitions; start a new job"
            )
    if missing := list(dict.fromkeys(incomplete(graph, state))):
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        raise StartRefused(
            f"job {name!r} is not complete: {', '.join(missing[:NAMED])}{more}; run it to its end "
            f"with `eosframework backfill run APP --job {name}`"
        )


def incomplete(graph: Graph, state: JobState) -> Iterator[str]:
    """Yield descriptions of unfinished work."""
    for part in graph.sub_topologies:
        for source in part.sources:
            ends = range_ends(state, source.topic)
            if not ends:
                yield f"the end of topic {source.topic} is not fixed yet"
            for number in range(len(ends)):
                progress = state.tasks.get((part.name, number))
                if progress is None:
                    yield f"task {part.name}[{number}] has not begun"
                elif not progress.complete:
                    yield f"task {part.name}[{number}] is after {progress.records:,} records"
    if graph.table_sinks and state.tables_at is None:
        yield "the tables do not have all rows yet"


def refuse_members(group: str, facts: GroupDescription, instance: str) -> None:
    """Raise if an application runs.

    Args:
        group: its name.
        facts: the coordinator's description of the group.
        instance: of the cutover, which may be left in the group by a killed one.
    """
    others = [one for one in facts.instances if one != instance]
    if others:
        raise StartRefused(
            f"group {group!r} has {len(others)} running workers; stop them before the cutover (a "
            f"killed one counts until worker.session_timeout_seconds have passed)"
        )


def refuse_positions(
    graph: Graph,
    wanted: Sequence[Position],
    committed: Sequence[Position],
    registered: ControlState,
) -> None:
    """Raise if an application has processed records live."""
    targets = {position.topic_partition: position.offset for position in wanted}
    for position in sorted(committed, key=lambda p: p.topic_partition):
        partition = position.topic_partition
        is_elsewhere = position.offset is not None and position.offset != targets.get(partition)
        is_forgotten = position.offset is None and partition in registered.committed
        if is_elsewhere or is_forgotten:
            where = "before" if position.offset is None else f"up to offset {position.offset}"
            raise StartRefused(
                f"application {graph.application!r} has processed {partition} live {where}, and "
                f"the cutover would set it to {targets.get(partition)}: records would be left out "
                f"or processed twice. A backfill is cut over into an application that never ran: "
                f"give the topology another application name and backfill that. Where live "
                f"workers already process the records after the range, there is nothing to cut over"
            )


def refuse_live_ends(
    graph: Graph, state: JobState, wanted: Sequence[Position], committed: Sequence[Position]
) -> None:
    """Raise if a worker processed the range live, exactly to its end.

    Only for offsets that are decided, of a job that is not cut over: before that, an equal offset
    may come from a cutover whose other partitions are not decided yet.
    """
    targets = {position.topic_partition: position.offset for position in wanted}
    for position in sorted(committed, key=lambda p: p.topic_partition):
        partition, offset = position.topic_partition, position.offset
        if offset is None or offset != targets.get(partition):
            continue
        if offset > range_starts(state, partition.topic)[partition.partition]:
            raise StartRefused(
                f"application {graph.application!r} has processed {partition} live up to offset "
                f"{offset}, the end of the range of job {state.job.name!r}: the records of the "
                f"range took effect twice. A backfill is cut over into an application that never "
                f"ran: give the topology another application name and backfill that"
            )


def refuse_outside_log(
    positions: Sequence[Position],
    bounds: Mapping[TopicPartition, tuple[int, int]],
    *,
    accept_lost: bool,
) -> None:
    """Raise if the next record to process was deleted, or the log is another one."""
    for position in positions:
        partition, offset = position.topic_partition, position.offset
        assert offset is not None, "a range has an end"
        first, end = bounds[partition]
        if offset > end:
            raise StartRefused(
                f"{partition} ends at offset {end}, before offset {offset}, the end of the job's "
                f"range: the log was truncated, and the next records may be other ones; start a "
                f"new job"
            )
        if offset < first and not accept_lost:
            raise StartRefused(
                f"{partition} begins at offset {first} by now, and the job has read up to offset "
                f"{offset}: retention deleted the records between them. Start a new job that reads "
                f"up to now; or, to resume without them: --accept-lost"
            )


def lost_ranges(
    positions: Sequence[Position], bounds: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the ranges of deleted records, by partition."""
    return {
        position.topic_partition: (position.offset, first)
        for position in positions
        if position.offset is not None
        and position.offset < (first := bounds[position.topic_partition][0])
    }


def _partitions_read(job: Job, topic: str) -> int | None:
    if topic in job.own_starts:
        return len(job.own_starts[topic])
    return len(job.ranges[topic]) if topic in job.ranges else None
