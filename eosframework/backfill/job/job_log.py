"""Reads and writes of a job's entries in the control topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eosframework.application.control_log import ControlLog
from eosframework.backfill.job.job_entry import (
    JobState,
    TaskProgress,
    from_entries,
    job_key,
    task_key,
)
from eosframework.config import KafkaSettings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.processing.ports import Output

SETTLE_SECONDS = 120.0
"""Longest wait for an open transaction: brokers look for expired ones every ten seconds."""


class JobLog:
    """The entries of one job in the control topic.

    Args:
        name: of the job.
        application: owner of the control topic.
        settings: connection to the cluster.
        admin: admin client of the same cluster.
        settle_seconds: longest wait for an open transaction.
    """

    def __init__(
        self,
        name: str,
        application: str,
        settings: KafkaSettings,
        admin: ClusterAdmin,
        *,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        self.name = name
        self._log = ControlLog(application, settings, admin, settle_seconds=settle_seconds)

    def read(self) -> JobState | None:
        """Return the job with all committed entries; None: there is none.

        Raises:
            ClusterUnreachable: the cluster did not answer, or a transaction stays open.
        """
        if not self._log.exists():
            return None
        return from_entries(self.name, self._log.settled(job_key(self.name)))

    def watch(self) -> JobState | None:
        """Return the job with its decided entries, without waiting; for displays.

        Raises:
            ClusterUnreachable: the cluster did not answer.
        """
        if not self._log.exists():
            return None
        return from_entries(self.name, self._log.decided(job_key(self.name)))

    def is_decided(self, within_seconds: float) -> bool:
        """Return whether all transactions on the control topic are decided, or are within a period.

        Raises:
            ClusterUnreachable: the cluster did not answer.
        """
        return self._log.is_settled(within_seconds)

    def undecided_keys(self) -> set[str]:
        """Return the keys of entries in open transactions.

        Raises:
            ClusterUnreachable: the cluster did not answer.
        """
        return self._log.undecided()

    def read_task(self, sub_topology: str, partition: int) -> TaskProgress | None:
        """Return a task's progress, once all transactions are decided; None: it never committed.

        It is final only for the owner of the task's transactional.id.

        Raises:
            ClusterUnreachable: the cluster did not answer, or a transaction stays open.
        """
        key = task_key(self.name, sub_topology, partition)
        return _progress(self._log.settled(key, [key]).get(key))

    def watch_task(self, sub_topology: str, partition: int) -> TaskProgress | None:
        """Return a task's decided progress, without waiting.

        Raises:
            ClusterUnreachable: the cluster did not answer.
        """
        key = task_key(self.name, sub_topology, partition)
        return _progress(self._log.decided(key, [key]).get(key))

    def written_end(self) -> int:
        """Return the log end offset of the control topic, past open transactions.

        Raises:
            ClusterUnreachable: the cluster did not answer.
        """
        return self._log.written_end()

    def newest_of_task(
        self, sub_topology: str, partition: int, since: int = 0
    ) -> tuple[int, TaskProgress] | None:
        """Return the last written progress of a task with its offset, committed or not.

        It is a sign of life of its writer. A writer that hangs during a commit hides later commits
        of other writers from `read_committed` readers, but not from this method.

        Args:
            sub_topology: of the task.
            partition: of the task.
            since: the first offset that counts.

        Raises:
            ClusterUnreachable: the cluster did not answer.
        """
        found = self._log.newest(task_key(self.name, sub_topology, partition), since)
        if found is None or found[1] is None:
            return None
        return found[0], TaskProgress.from_entry(found[1])

    def progress_output(self, sub_topology: str, partition: int, progress: TaskProgress) -> Output:
        """Return the record that commits a task's progress in its transaction."""
        key = task_key(self.name, sub_topology, partition)
        return self._log.output(key, progress.to_entry())

    def output(self, key: str, entry: Any) -> Output:
        """Return the record that commits an entry in a transaction."""
        return self._log.output(key, entry)

    def write(self, entries: Mapping[str, Any]) -> None:
        """Write entries outside any transaction; see `ControlTopic.write`."""
        self._log.write(entries)


def _progress(entry: Any) -> TaskProgress | None:
    return None if entry is None else TaskProgress.from_entry(entry)


def job_states(application: str, settings: KafkaSettings, admin: ClusterAdmin) -> list[JobState]:
    """Return the decided state of all jobs of an application, by start time.

    Raises:
        ClusterUnreachable: the cluster did not answer.
    """
    log = ControlLog(application, settings, admin, settle_seconds=SETTLE_SECONDS)
    if not log.exists():
        return []
    entries = log.decided(job_key(""))
    names = {key.removeprefix(job_key("")).partition("/")[0] for key in entries}
    found = (from_entries(name, entries) for name in sorted(names))
    states = [state for state in found if state is not None]
    return sorted(states, key=lambda state: state.job.created_at)
