"""What speaks against a cutover; each rule is a pure function of what cluster and registry say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from eosframework.application.control_topic import ControlState
from eosframework.backfill.job.fingerprint import differences, fingerprint
from eosframework.backfill.job.job_entry import Job
from eosframework.backfill.job.job_state import JobState
from eosframework.errors import ConfigurationError, StartRefused
from eosframework.kafka.admin.metadata import GroupFacts, TopicFacts
from eosframework.records import Position, TopicPartition
from eosframework.topology.graph.graph import Graph

NAMED = 5
"""How many tasks a message names."""


def live_positions(graph: Graph, state: JobState) -> list[Position]:
    """Return where live workers go on in every source partition of a complete job.

    A topic of the application's own goes on at its fixed end; one for which files stand where the
    job says that its first live record is. What a later topology has besides is left out.
    """
    return [
        Position(source.topic, number, end, progress.metadata)
        for part in graph.sub_topologies
        for source in part.sources
        for number, end in enumerate(range_ends(state, source.topic))
        if (progress := state.tasks.get((part.name, number))) is not None
    ]


def range_ends(state: JobState, topic: str) -> tuple[int, ...]:
    """Return behind which offset of each partition the job has read a topic; empty: not at all."""
    if topic in state.job.own_starts:
        return state.ends.get(topic, ())
    return tuple(one.end for one in state.job.ranges.get(topic, ()))


def refuse_suffix(job: Job) -> None:
    """Raise if a job fills topics beside the live ones."""
    if job.suffix is not None:
        raise ConfigurationError(
            f"job {job.name!r} fills topics and tables with the suffix {job.suffix!r}, beside the "
            f"live ones, so there is nothing to cut over; compare them with `eosframework backfill "
            f"diff`"
        )


def refuse_another_topology(graph: Graph, job: Job) -> None:
    """Raise if live workers would go on with another topology than the job's."""
    if changed := differences(job.fingerprint, fingerprint(graph)):
        raise StartRefused(
            f"job {job.name!r} ran another topology: {', '.join(changed)} changed since, so live "
            f"workers would go on from what this one has not made; go back to what the job ran, "
            f"cut over, and change it then"
        )


def refuse_incomplete(graph: Graph, state: JobState, topics: Mapping[str, TopicFacts]) -> None:
    """Raise unless everything that live workers would read was read to the end of its range."""
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
    """Give what a job has not processed yet, in words."""
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
    if graph.persisters and state.tables_at is None:
        yield "the tables do not have all rows yet"


def refuse_members(group: str, facts: GroupFacts, instance: str) -> None:
    """Raise if an application runs.

    Args:
        group: its name.
        facts: what the coordinator says.
        instance: of the cutover, which may be a member that was killed.
    """
    others = [one for one in facts.instances if one != instance]
    if others:
        raise StartRefused(
            f"group {group!r} has {len(others)} running workers; stop them before the cutover (one "
            f"that was killed counts until worker.session_timeout_seconds have passed)"
        )


def refuse_positions(
    graph: Graph,
    wanted: Sequence[Position],
    committed: Sequence[Position],
    registered: ControlState,
) -> None:
    """Raise if an application has processed something live, from which nothing could go on."""
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
                f"workers process what comes behind the range already, nothing is to be cut over"
            )


def refuse_outside_log(
    positions: Sequence[Position],
    bounds: Mapping[TopicPartition, tuple[int, int]],
    *,
    accept_lost: bool,
) -> None:
    """Raise if the next record to process is not in the log any more, or the log is another."""
    for position in positions:
        partition, offset = position.topic_partition, position.offset
        assert offset is not None, "a range has an end"
        first, end = bounds[partition]
        if offset > end:
            raise StartRefused(
                f"{partition} ends at offset {end}, before offset {offset}, up to which the job "
                f"has read: the log was cut short, and what comes next may be other records; start "
                f"a new job"
            )
        if offset < first and not accept_lost:
            raise StartRefused(
                f"{partition} begins at offset {first} by now, and the job has read up to offset "
                f"{offset}: retention removed what lies between, and nothing can process it. Start "
                f"a new job that reads up to now; or, to go on without it: --accept-lost"
            )


def lost_ranges(
    positions: Sequence[Position], bounds: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return, by partition, from which offset to before which one records are gone."""
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
