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
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from eosframework.errors import ConfigurationError
from eosframework.records import TopicPartition

VERSION = 1
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
        """Parse the result of `to_entry`."""
        return cls.model_validate(entry)


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


class Files(ControlEntry):
    """Files that replace a source topic, in the order (event time, path, row).

    Each row is a record: its columns as a JSON object, or the result of `record`.
    """

    format: str
    """parquet, json (lines) or csv."""

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
    """Sorted by path."""


class Job(ControlEntry):
    """The input and topology of a backfill, fixed when it starts.

    Tables are read whole, from the beginning of their topics up to the end of the range.
    """

    version: int = VERSION
    application: str
    name: str
    fingerprint: Mapping[str, str]
    """Digests of the topology and of its functions' modules, by name; see `fingerprint`."""

    request: Mapping[str, tuple[str, ...]] = {}
    """The user's arguments, by option."""

    suffix: str | None = None
    """Suffix of the names of its output topics and tables; None: the live names."""

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


def check_name(name: str) -> str:
    """Return a valid job name.

    Raises:
        ConfigurationError: the name is invalid in a transactional id.
    """
    if _NAME.fullmatch(name) is None:
        raise ConfigurationError(
            f"job {name!r} has a name that cannot be part of a transactional id; expected up to 60 "
            f"lower-case letters a-z, digits and '_', for example: january_2024"
        )
    return name


def job_key(name: str) -> str:
    """Return the key of a job; its other entries have this key and a slash as prefix."""
    return f"backfill/{name}"


def files_key(name: str, topic: str, number: int) -> str:
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
    prefix = f"{job_key(name)}/task/"
    if not key.startswith(prefix):
        return None
    sub_topology, _, partition = key.removeprefix(prefix).rpartition("/")
    return sub_topology, int(partition)


def tables_key(name: str) -> str:
    """Return the key of the tables' completion."""
    return f"backfill/{name}/tables"


def cutover_key(name: str) -> str:
    """Return the key of the cutover."""
    return f"backfill/{name}/cutover"
