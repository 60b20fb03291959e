"""The entries of a backfill job in the control topic: its fixed input, and its progress.

backfill/JOB                      the job: its input and its topology
backfill/JOB/files/TOPIC/NUMBER   a part of the list of files that replace a topic
backfill/JOB/ends/TOPIC           ends of an internal topic, once all its writers are complete
backfill/JOB/task/SUB/PARTITION   a task's progress, written in its transactions
backfill/JOB/tables               rows are in their tables
backfill/JOB/cutover              live workers resume from the job's end
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from eosframework.application.control_entries import damaged
from eosframework.application.journal import KafkaJournal
from eosframework.config import KafkaSettings
from eosframework.errors import ConfigurationError, ControlTopicDamaged
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.records import TopicPartition, whole_number
from eosframework.transactions.ports import Journal

_VERSION = 1
FILES_PER_ENTRY = 1000

_NAME = re.compile(r"[a-z0-9_]{1,60}")

Offsets = tuple[int, ...]
"""One for each partition of a topic, from 0."""


class ControlEntry(BaseModel):
    """Base of the entries; unknown fields of later versions are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    def to_entry(self) -> Any:
        """Return it as JSON data."""
        return self.model_dump(mode="json")

    @classmethod
    def from_entry(cls, entry: Any) -> Self:
        """Parse the result of `to_entry`.

        Raises:
            ControlTopicDamaged: another program wrote the entry.
        """
        try:
            return cls.model_validate(entry)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "entry"
            raise damaged(
                f"entry {entry!r:.80} of the control topic",
                f"{cls.__name__} ({place}: {first['msg']})",
            ) from error


class OffsetRange(ControlEntry):
    """Offsets of one partition: from `first` to before `end`."""

    first: int
    end: int


class PinnedFile(ControlEntry):
    """A file at the start of the job; another size or time means another file."""

    path: str
    size_bytes: int
    modified_at: int
    """In milliseconds since the epoch."""


class PinnedTable(ControlEntry):
    """A version of a table with snapshots; it has the same files whenever it is read."""

    name: str
    """Path of a Delta table; name or path of an Iceberg table."""

    version: int
    """Version of a Delta table, id of an Iceberg snapshot."""

    committed_at: int
    """In milliseconds since the epoch; another time means another table of the same name."""


class Files(ControlEntry):
    """Files that replace a source topic, in the order (event time, path, row).

    Each row is a record: its columns as a JSON object, or the result of `record`.
    """

    format: str
    """parquet, json (lines) or csv; delta or iceberg for a table."""

    options: Mapping[str, str] = {}
    """Options of Spark for the format."""

    key: str | None = None
    """Column whose value is the record's key."""

    record: str | None = None
    """module:function that takes a row as a dict and returns a `records.Record`."""

    partitions: int
    """Number of partitions of the topic."""

    partitioner: str
    """Assigns a key to the partition of a live producer."""

    split_bytes: int
    """Size of Spark's splits of files; rows are ordered within one."""

    files: tuple[PinnedFile, ...] = ()
    """Sorted by path; empty for a table."""

    table: PinnedTable | None = None
    """The table whose files these are; None: they are listed."""


class Job(ControlEntry):
    """The input and topology of a backfill, fixed when it starts.

    Tables are read whole, from the beginning of their topics up to the end of the range.
    """

    version: int = _VERSION
    application: str
    name: str
    fingerprint: Mapping[str, str]
    """Digests of the topology and of its functions' modules, by name."""

    request: Mapping[str, tuple[str, ...]] = {}
    """The user's arguments, by option."""

    suffix: str | None = None
    """Suffix of the names of its output topics and tables; None: the live names."""

    receipts: bool = False
    """Outputs have receipts; fixed, so that a job has receipts for all of them or for none."""

    created_at: int
    """In milliseconds since the epoch."""

    ranges: Mapping[str, tuple[OffsetRange, ...]] = {}
    """By source topic in Kafka: one for each partition."""

    files: Mapping[str, Files] = {}
    """By the source topic that they replace."""

    own_starts: Mapping[str, Offsets] = {}
    """By internal source topic: end offset of each partition when the job started."""

    topic_ids: Mapping[str, str] = {}
    """By input topic: a topic that was created again is another topic."""


class TaskProgress(ControlEntry):
    """Progress of one task of a job, as of its last committed transaction."""

    positions: Mapping[str, int]
    """The next offset of each source partition, keyed by `TOPIC/PARTITION`."""

    metadata: str
    """Transaction number and stream time, as in the metadata of a live task's offsets."""

    numberings: Mapping[str, str] = {}
    """The numbering of receipts (`receipts.Series`) of each source partition, keyed as the
    positions; empty: outputs have no receipts."""

    records: int = 0
    """Processed input records."""

    late: int = 0
    """Number of them that were late for a step."""

    skipped: int = 0
    dead_letters: int = 0

    first_time: int | None = None
    """Smallest event time so far, in milliseconds since the epoch. None: there was no record, or
    times come from a function of the topology, which is not called for this."""

    complete: bool = False
    """The whole range is processed."""

    ended: bool = False
    """The attempt that wrote this has ended, so its successor need not wait for it."""

    attempt: str
    """Name of the attempt that wrote this."""

    written_at: int
    """In milliseconds since the epoch."""

    def by_partition(self) -> dict[TopicPartition, int]:
        """Return the positions by partition."""
        split = (name.rpartition("/") for name in self.positions)
        return {
            TopicPartition(topic, int(number)): offset
            for (topic, _, number), offset in zip(split, self.positions.values(), strict=True)
        }

    def metadata_of(self, partition: TopicPartition) -> str:
        """Return the metadata of a partition's position, as a live task commits it."""
        numbering = self.numberings.get(f"{partition.topic}/{partition.partition}")
        return self.metadata if numbering is None else f"{self.metadata};{numbering}"


def check_name(name: str, kind: str = "job", example: str = "january_2024") -> str:
    """Return a valid name of a job or of a sink.

    Args:
        name: the name.
        kind: of its bearer, for the message.
        example: a valid name, for the message.

    Raises:
        ConfigurationError: the name is invalid in a transactional id.
    """
    if _NAME.fullmatch(name) is None:
        raise ConfigurationError(
            f"{kind} {name!r} has a name that cannot be part of a transactional id; expected up to "
            f"60 lower-case letters a-z, digits and '_', for example: {example}"
        )
    return name


def _job_key(name: str) -> str:
    """Return the key of a job; its other entries have this key and a slash as prefix."""
    return f"backfill/{name}"


def _files_key(name: str, topic: str, number: int) -> str:
    """Return the key of a part of the files that replace a topic."""
    return f"backfill/{name}/files/{topic}/{number}"


def ends_key(name: str, topic: str) -> str:
    """Return the key of an internal topic's ends."""
    return f"backfill/{name}/ends/{topic}"


def task_key(name: str, sub_topology: str, partition: int) -> str:
    """Return the key of a task's progress."""
    return f"backfill/{name}/task/{sub_topology}/{partition}"


def task_of(name: str, key: str) -> tuple[str, int] | None:
    """Return the task of a progress key; None: the key belongs to no task of this job."""
    prefix = f"{_job_key(name)}/task/"
    if not key.startswith(prefix):
        return None
    sub_topology, _, partition = key.removeprefix(prefix).rpartition("/")
    number = whole_number(partition)
    return None if number is None else (sub_topology, number)


def tables_key(name: str) -> str:
    """Return the key of the tables' completion."""
    return f"backfill/{name}/tables"


def cutover_key(name: str) -> str:
    """Return the key of the cutover."""
    return f"backfill/{name}/cutover"


@dataclass(frozen=True, slots=True)
class JobState:
    """A job with all later entries.

    Args:
        ends: of internal topics whose writers are complete, one for each partition.
        tasks: progress by sub-topology and partition.
        tables_at: time when all rows were in their tables, in milliseconds since the epoch; None:
            they are not yet, or there are none.
        cut_over_at: milliseconds since the epoch; None: not cut over yet.
    """

    job: Job
    ends: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, "tuple[int, ...]"])
    tasks: Mapping[tuple[str, int], TaskProgress] = field(
        default_factory=dict[tuple[str, int], TaskProgress]
    )
    cut_over_at: int | None = None
    tables_at: int | None = None

    def is_complete(self, sub_topology: str, partitions: int) -> bool:
        """Return whether all tasks of a sub-topology are complete."""
        return not self.incomplete(sub_topology, partitions)

    def incomplete(self, sub_topology: str, partitions: int) -> list[int]:
        """Return the partitions of a sub-topology whose tasks are not complete."""
        tasks = {number: self.tasks.get((sub_topology, number)) for number in range(partitions)}
        return [n for n, progress in tasks.items() if progress is None or not progress.complete]


def to_entries(job: Job) -> dict[str, Any]:
    """Return the entries to write when a job starts; the job itself comes last."""
    entries: dict[str, Any] = {}
    for topic, files in job.files.items():
        for number, first in enumerate(range(0, len(files.files), FILES_PER_ENTRY)):
            part = files.files[first : first + FILES_PER_ENTRY]
            entries[_files_key(job.name, topic, number)] = [file.to_entry() for file in part]
    bare = {topic: files.model_copy(update={"files": ()}) for topic, files in job.files.items()}
    entries[_job_key(job.name)] = job.model_copy(update={"files": bare}).to_entry()
    return entries


def from_entries(name: str, entries: Mapping[str, Any]) -> JobState | None:
    """Return a job's state from entries of a control topic; None: it does not exist."""
    if _job_key(name) not in entries:
        return None
    try:
        return _read(name, entries)
    except (KeyError, TypeError, ValueError, AttributeError, ControlTopicDamaged) as error:
        raise damaged(
            f"an entry of backfill job {name!r} in the control topic, with a key under "
            f"{_job_key(name)!r},",
            f"{type(error).__name__}: {error}",
        ) from error


def _read(name: str, entries: Mapping[str, Any]) -> JobState:
    job = Job.from_entry(entries[_job_key(name)])
    ends: dict[str, tuple[int, ...]] = {}
    tasks: dict[tuple[str, int], TaskProgress] = {}
    parts: dict[str, dict[int, list[PinnedFile]]] = {}
    cut_over_at: int | None = None
    tables_at: int | None = None
    start = _job_key(name) + "/"
    for key, entry in entries.items():
        match key.removeprefix(start).split("/") if key.startswith(start) else []:
            case ["files", topic, number]:
                found = [PinnedFile.from_entry(file) for file in entry]
                parts.setdefault(topic, {})[int(number)] = found
            case ["ends", topic]:
                ends[topic] = tuple(entry)
            case ["task", *_] if (task := task_of(name, key)) is not None:
                tasks[task] = TaskProgress.from_entry(entry)
            case ["tables"]:
                tables_at = entry["at"]
            case ["cutover"]:
                cut_over_at = entry["at"]
            case _:
                pass
    return JobState(_with_files(job, parts), ends, tasks, cut_over_at, tables_at)


def _with_files(job: Job, parts: Mapping[str, Mapping[int, list[PinnedFile]]]) -> Job:
    whole: dict[str, Files] = {}
    for topic, files in job.files.items():
        listed = [file for _, part in sorted(parts.get(topic, {}).items()) for file in part]
        whole[topic] = files.model_copy(update={"files": tuple(listed)})
    return job.model_copy(update={"files": whole})


def settled_job(journal: Journal, name: str) -> JobState | None:
    """Return a job with all committed entries; None: there is none.

    Raises:
        ClusterUnreachable: the cluster did not answer, or a transaction stays open.
    """
    return from_entries(name, journal.settled_under(_job_key(name)))


def decided_job(journal: KafkaJournal, name: str) -> JobState | None:
    """Return a job with its decided entries, without waiting; for displays.

    Raises:
        ClusterUnreachable: the cluster did not answer.
    """
    return from_entries(name, journal.decided_under(_job_key(name)))


def job_states(application: str, settings: KafkaSettings, admin: ClusterAdmin) -> list[JobState]:
    """Return the decided state of all jobs of an application, by start time.

    Raises:
        ClusterUnreachable: the cluster did not answer.
    """
    entries = KafkaJournal(application, settings, admin).decided_under(_job_key(""))
    names = {key.removeprefix(_job_key("")).partition("/")[0] for key in entries}
    found = (from_entries(name, entries) for name in sorted(names))
    states = [state for state in found if state is not None]
    return sorted(states, key=lambda state: state.job.created_at)
