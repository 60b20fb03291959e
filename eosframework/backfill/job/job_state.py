"""The state of one job, assembled from its entries in the control topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eosframework.backfill.job.job_entry import (
    FILES_PER_ENTRY,
    Files,
    Job,
    PinnedFile,
    TaskProgress,
    files_key,
    job_key,
)
from eosframework.errors import ControlTopicDamaged


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
            entries[files_key(job.name, topic, number)] = [file.to_entry() for file in part]
    bare = {topic: files.model_copy(update={"files": ()}) for topic, files in job.files.items()}
    entries[job_key(job.name)] = job.model_copy(update={"files": bare}).to_entry()
    return entries


def from_entries(name: str, entries: Mapping[str, Any]) -> JobState | None:
    """Return a job's state from entries of a control topic; None: it does not exist."""
    if job_key(name) not in entries:
        return None
    try:
        return _read(name, entries)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ControlTopicDamaged(
            f"an entry of backfill job {name!r} in the control topic cannot be read "
            f"({type(error).__name__}: {error}); its key begins with {job_key(name)!r}. Read the "
            f"topic from its beginning and write the last good value of that key again; and allow "
            f"only the application to write to the topic"
        ) from error


def _read(name: str, entries: Mapping[str, Any]) -> JobState:
    job = Job.from_entry(entries[job_key(name)])
    ends: dict[str, tuple[int, ...]] = {}
    tasks: dict[tuple[str, int], TaskProgress] = {}
    parts: dict[str, dict[int, list[PinnedFile]]] = {}
    cut_over_at: int | None = None
    tables_at: int | None = None
    start = job_key(name) + "/"
    for key, entry in entries.items():
        match key.removeprefix(start).split("/") if key.startswith(start) else []:
            case ["files", topic, number]:
                found = [PinnedFile.from_entry(file) for file in entry]
                parts.setdefault(topic, {})[int(number)] = found
            case ["ends", topic]:
                ends[topic] = tuple(entry)
            case ["task", sub_topology, number]:
                tasks[sub_topology, int(number)] = TaskProgress.from_entry(entry)
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
