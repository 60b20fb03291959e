"""The status of a running application, read from Kafka or from a process's `/status`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import Any, cast

import orjson

from eosframework.application.backfill_jobs import JobStanding, backfill_jobs
from eosframework.application.context import ApplicationContext
from eosframework.application.control_topic import ControlState
from eosframework.application.failed_records import failed_records
from eosframework.application.monitoring.http.http_server import host_and_port
from eosframework.application.worker_addresses import worker_addresses
from eosframework.config import KafkaSettings
from eosframework.errors import ConfigurationError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import GroupMember
from eosframework.kafka.consumer.range_reader import without_records
from eosframework.records import Position, TopicPartition, partitions_of
from eosframework.serialization.bounds import ASKED_BYTES
from eosframework.topology.graph.graph import Graph
from eosframework.txnid import tables_group

ASK_SECONDS = 10.0

MARKERS = 1000
"""Largest lag of a partition for which the unread offsets are checked for records. Markers of
transactions also occupy offsets."""


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """The progress of a partition.

    Args:
        committed: the group's committed offset; None: there is none.
        lag: unread offsets up to the last stable offset, including those of markers between
            records. 0: a `read_committed` reader sees no further record.
        held_back: offsets beyond the last stable offset, held back by an open transaction.
    """

    partition: str
    committed: int | None
    lag: int
    held_back: int


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """The progress of a task.

    Args:
        owner: the member that it is assigned to; None: it is not assigned.
    """

    task: str
    process: str
    owner: str | None
    partitions: tuple[PartitionStatus, ...]

    @property
    def lag(self) -> int:
        """Lag of all source partitions."""
        return sum(partition.lag for partition in self.partitions)

    @property
    def held_back(self) -> int:
        """Offsets held back in all source partitions."""
        return sum(partition.held_back for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """A task that is stopped at a record.

    Args:
        record: its place, as `TOPIC[PARTITION]@OFFSET`.
        error: names the record, the step, the error and what to do.
        instance: name of the worker that stopped there last.
        at: time of that, in milliseconds since the epoch.
    """

    task: str
    process: str
    record: str
    error: str
    instance: str
    at: int


@dataclass(frozen=True, slots=True)
class ApplicationStatus:
    """The status of an application, read from Kafka.

    Args:
        members: members of the groups, by kind of worker: `transforms` or `tables`.
        addresses: HTTP addresses that workers announce, by the members' names.
        jobs: backfill jobs of the application.
        failures: tasks that are stopped at a record, because their `on_error` is `fail`.
    """

    application: str
    members: Mapping[str, tuple[GroupMember, ...]]
    tasks: tuple[TaskStatus, ...]
    jobs: tuple[JobStanding, ...] = ()
    failures: tuple[TaskFailure, ...] = ()
    addresses: Mapping[str, str] = field(default_factory=dict[str, str])

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return {
            "application": self.application,
            "members": {
                process: [
                    {
                        "name": m.name,
                        "host": m.host,
                        "http_address": self.addresses.get(m.name),
                        "partitions": list(map(str, m.partitions)),
                    }
                    for m in members
                ]
                for process, members in self.members.items()
            },
            "tasks": [
                {**asdict(task), "lag": task.lag, "held_back": task.held_back}
                for task in self.tasks
            ],
            "failures": [asdict(failure) for failure in self.failures],
            "backfill_jobs": [job.as_data() for job in self.jobs],
        }


@dataclass(frozen=True, slots=True)
class _Part:
    """The tasks of one consumer group."""

    process: str
    group: str
    tasks: Mapping[str, Sequence[TopicPartition]]


def overview(context: ApplicationContext) -> ApplicationStatus:
    """Return the status of an application from Kafka.

    Args:
        context: of the application.

    Raises:
        ConfigurationError: a topic does not exist.
        ClusterUnreachable: no broker answered in time.
    """
    graph, admin = context.graph, context.admin
    parts = list(_parts(graph, admin))
    members = {part.process: admin.describe_group(part.group).members for part in parts}
    tasks = [
        standing
        for part in parts
        for standing in _standings(part, members[part.process], context.settings.kafka, admin)
    ]
    jobs = _jobs(context)
    control = context.control_topic.state
    failures = tuple(_failures(parts, tasks, control))
    addresses = worker_addresses(control)
    return ApplicationStatus(graph.application, members, tuple(tasks), jobs, failures, addresses)


def _failures(
    parts: Iterable[_Part], tasks: Iterable[TaskStatus], control: ControlState
) -> Iterator[TaskFailure]:
    readers = {
        partition: (task, part.process)
        for part in parts
        for task, partitions in part.tasks.items()
        for partition in partitions
    }
    offsets = {p.partition: p.committed for task in tasks for p in task.partitions}
    committed = {partition: offsets.get(str(partition)) for partition in readers}
    for found in failed_records(control, committed):
        task, process = readers[found.partition]
        yield TaskFailure(task, process, found.record, found.error, found.instance, found.at)


def asked(address: str) -> dict[str, Any]:
    """Return a process's answer to `/status`.

    Raises:
        ConfigurationError: there is no answer, or not one of eosframework.
    """
    content = ask(address, "/status")[1]
    if "process" not in content:
        raise _not_ours(address)
    return content


def ask(address: str, path: str) -> tuple[int, dict[str, Any]]:
    """Return the status and the JSON of a process's answer.

    Args:
        address: its HTTP address, as HOST:PORT.
        path: quoted, with the query.

    Raises:
        ConfigurationError: there is no answer, or not one of eosframework.
    """
    status, data = fetch(address, path)
    try:
        content: Any = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise _not_there(address, error) from error
    if not isinstance(content, dict):
        raise _not_ours(address)
    return status, dict(cast("dict[str, Any]", content))


def fetch(address: str, path: str) -> tuple[int, bytes]:
    """Return the status and the content of a process's answer.

    Args:
        address: its HTTP address, as HOST:PORT.
        path: quoted, with the query.

    Raises:
        ConfigurationError: there is no answer.
    """
    try:
        connection = HTTPConnection(*host_and_port(address), timeout=ASK_SECONDS)
    except ValueError:
        raise ConfigurationError(f"--ask {address!r}: expected HOST:PORT") from None
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read(ASKED_BYTES.value)
    except (OSError, HTTPException) as error:
        raise _not_there(address, error) from error
    finally:
        connection.close()


def _not_there(address: str, error: Exception) -> ConfigurationError:
    return ConfigurationError(
        f"--ask {address!r}: no process of eosframework answers there ({error}); give what its "
        f"event http_serving says, from worker.http_address or outbox.http_address"
    )


def _not_ours(address: str) -> ConfigurationError:
    return ConfigurationError(f"--ask {address!r}: what answers there is not eosframework")


def _jobs(context: ApplicationContext) -> tuple[JobStanding, ...]:
    graph = context.graph
    topics = context.admin.describe_topics(graph.source_topics)
    partitions = {name: topic.partitions for name, topic in topics.items()}
    return tuple(backfill_jobs(graph, context.control_topic.refresh(), partitions))


def _parts(graph: Graph, admin: ClusterAdmin) -> Iterator[_Part]:
    wanted = {*graph.source_topics, *graph.table_sink_topics}
    topics = admin.describe_topics(wanted)
    missing = sorted(name for name in wanted if not topics[name].exists)
    if sources := [name for name in missing if name not in graph.written_topics]:
        raise ConfigurationError(
            f"source topic {', '.join(sources)} does not exist; its producers create it, or "
            f"`eosframework topics create {sources[0]}`"
        )
    if missing:
        raise ConfigurationError(
            f"topic {', '.join(missing)} does not exist; create it with `eosframework apply APP`"
        )
    counts = {name: facts.partitions for name, facts in topics.items()}
    if graph.sub_topologies:
        tasks = {
            f"{part.name}[{number}]": [
                TopicPartition(source.topic, number)
                for source in part.sources
                if number < counts[source.topic]
            ]
            for part in graph.sub_topologies
            for number in range(max(counts[source.topic] for source in part.sources))
        }
        yield _Part("transforms", graph.application, tasks)
    if graph.table_sinks:
        tasks = {
            str(partition): [partition]
            for partition in partitions_of({t: counts[t] for t in graph.table_sink_topics})
        }
        yield _Part("tables", tables_group(graph.application), tasks)


def _standings(
    part: _Part, members: Sequence[GroupMember], settings: KafkaSettings, admin: ClusterAdmin
) -> Iterator[TaskStatus]:
    partitions = [partition for of_task in part.tasks.values() for partition in of_task]
    owners = {partition: member.name for member in members for partition in member.partitions}
    committed = admin.committed(part.group, partitions, stable=False)
    positions = {position.topic_partition: position for position in committed}
    bounds, ends = admin.log_bounds(partitions), admin.high_watermarks(partitions)
    unread = {p: (_read_to(positions[p], first), end) for p, (first, end) in bounds.items()}
    few = {p: (start, end) for p, (start, end) in unread.items() if end - start <= MARKERS}
    read = without_records(settings, few)
    for task, of_task in part.tasks.items():
        yield TaskStatus(
            task,
            part.process,
            owners.get(of_task[0]),
            tuple(_standing(positions[p], unread[p], ends[p], p in read) for p in of_task),
        )


def _read_to(position: Position, first: int) -> int:
    return first if position.offset is None else max(first, position.offset)


def _standing(
    position: Position, unread: tuple[int, int], end: int, is_read: bool
) -> PartitionStatus:
    start, stable = unread
    return PartitionStatus(
        str(position.topic_partition),
        position.offset,
        0 if is_read else max(0, stable - start),
        max(0, end - max(stable, start)),
    )
