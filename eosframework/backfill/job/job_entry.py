"""A backfill job as it was fixed when it started, and how far it is: entries of the registry.

backfill/JOB                      the job: what is read, by which topology
backfill/JOB/files/TOPIC/NUMBER   a part of the list of files that stand for a topic
backfill/JOB/ends/TOPIC           ends of an own topic, once all that write it are complete
backfill/JOB/task/SUB/PARTITION   how far a task is, written in its transactions
backfill/JOB/tables               rows are in their tables
backfill/JOB/cutover              live workers go on from there
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from eosframework.errors import ConfigurationError
from eosframework.records import TopicPartition

VERSION = 1
FILES_PER_ENTRY = 1000

_NAME = re.compile(r"[a-z0-9_]{1,60}")

Offsets = tuple[int, ...]
"""One for each partition of a topic, from 0."""


class Fixed(BaseModel):
    """What is written into the registry and read again, by this version or a later one."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    def to_entry(self) -> Any:
        """Return it as JSON data."""
        return self.model_dump(mode="json")

    @classmethod
    def from_entry(cls, entry: Any) -> Self:
        """Return what `to_entry` wrote."""
        return cls.model_validate(entry)


class OffsetRange(Fixed):
    """Offsets of one partition: from `first` to before `end`."""

    first: int
    end: int


class PinnedFile(Fixed):
    """A file as it was when the job started; another size or time is another file."""

    path: str
    size_bytes: int
    modified_at: int
    """In milliseconds since the epoch."""


class Files(Fixed):
    """Files that stand for a source topic, in the order (event time, path, row).

    Each row is a record: its columns as a JSON object, or what `record` makes of them.
    """

    format: str
    """parquet, json (lines) or csv."""

    options: Mapping[str, str] = {}
    """Spark's, for reading the format."""

    key: str | None = None
    """Column whose value is the record's key."""

    record: str | None = None
    """module:function that takes a row as a dict and returns a `records.Record`."""

    partitions: int
    """Of the topic."""

    partitioner: str
    """Which puts a key into the partition in which a live producer would have put it."""

    split_bytes: int
    """How Spark cuts files into splits; within one, rows have an order."""

    files: tuple[PinnedFile, ...] = ()
    """Sorted by path."""


class Job(Fixed):
    """What a backfill reads and by which topology: fixed when it starts.

    Tables are read whole, from the beginning of their topics up to the end of the range.
    """

    version: int = VERSION
    application: str
    name: str
    fingerprint: Mapping[str, str]
    """Of the topology and of the modules that its functions are in, by name; see `fingerprint`."""

    request: Mapping[str, tuple[str, ...]] = {}
    """What was asked for, by option, as it was written."""

    suffix: str | None = None
    """Behind the names of the topics and tables that it fills; None: those of the live ones."""

    created_at: int
    """In milliseconds since the epoch."""

    ranges: Mapping[str, tuple[OffsetRange, ...]] = {}
    """Of source topics in Kafka: one for each partition."""

    files: Mapping[str, Files] = {}
    """By the source topic that they stand for."""

    own_starts: Mapping[str, Offsets] = {}
    """Where each partition of the application's own source topics ended when the job started."""

    topic_ids: Mapping[str, str] = {}
    """Of every topic that is read: one that was created again since is another topic."""


class TaskProgress(Fixed):
    """How far one task of a job is, as of its last committed transaction."""

    positions: Mapping[str, int]
    """The next position of each source partition, written `TOPIC/PARTITION`."""

    metadata: str
    """Transaction number and stream time, as beside a live task's offsets."""

    records: int = 0
    """Of the input, so far."""

    late: int = 0
    """Of them, too late for a step."""

    skipped: int = 0
    dead_letters: int = 0

    first_time: int | None = None
    """Smallest event time so far, in milliseconds since the epoch. None: there was no record, or
    times come from a function of the topology, which is not called for this."""

    complete: bool = False
    """Everything of the range is processed."""

    ended: bool = False
    """Whoever wrote this has ended, so that a later attempt need not wait for it."""

    attempt: str
    """Who wrote this."""

    written_at: int
    """In milliseconds since the epoch."""

    def by_partition(self) -> dict[TopicPartition, int]:
        """Return the positions by partition."""
        split = (name.rpartition("/") for name in self.positions)
        return {
            TopicPartition(topic, int(number)): offset
            for (topic, _, number), offset in zip(split, self.positions.values(), strict=True)
        }


def check_name(name: str) -> str:
    """Return a job's name.

    Raises:
        ConfigurationError: it cannot be part of a transactional id.
    """
    if _NAME.fullmatch(name) is None:
        raise ConfigurationError(
            f"job {name!r} has a name that cannot be part of a transactional id; expected up to 60 "
            f"lower-case letters a-z, digits and '_', for example: january_2024"
        )
    return name


def job_key(name: str) -> str:
    """Return the key of a job; everything else of it lies under this key and a slash."""
    return f"backfill/{name}"


def files_key(name: str, topic: str, number: int) -> str:
    """Return the key of a part of the files that stand for a topic."""
    return f"backfill/{name}/files/{topic}/{number}"


def ends_key(name: str, topic: str) -> str:
    """Return the key of the ends of an own topic."""
    return f"backfill/{name}/ends/{topic}"


def task_key(name: str, sub_topology: str, partition: int) -> str:
    """Return the key of a task's progress."""
    return f"backfill/{name}/task/{sub_topology}/{partition}"


def task_of(name: str, key: str) -> tuple[str, int] | None:
    """Return the task of whose progress a key is; None: of no task of this job."""
    prefix = f"{job_key(name)}/task/"
    if not key.startswith(prefix):
        return None
    sub_topology, _, partition = key.removeprefix(prefix).rpartition("/")
    return sub_topology, int(partition)


def tables_key(name: str) -> str:
    """Return the key that says that a job's rows are in their tables."""
    return f"backfill/{name}/tables"


def cutover_key(name: str) -> str:
    """Return the key that says that live workers go on behind the job."""
    return f"backfill/{name}/cutover"
