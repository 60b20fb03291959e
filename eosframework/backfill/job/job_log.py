"""A job's entries in the registry of its application, read and written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eosframework.application.control_log import ControlLog
from eosframework.backfill.job.job_entry import TaskProgress, job_key, task_key
from eosframework.backfill.job.job_state import JobState, from_entries
from eosframework.config import KafkaSettings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.processing.ports import Output

SETTLE_SECONDS = 120.0
"""How long a transaction in doubt is waited for: the brokers end one that outlasted its timeout
only when they look again, which they do every ten seconds."""


class JobLog:
    """What the registry holds of one job.

    Args:
        name: of the job.
        application: whose registry.
        settings: how to reach the cluster.
        admin: asks the same cluster.
        settle_seconds: how long a transaction in doubt is waited for.
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
        """Return the job with everything that is committed of it; None: there is none.

        Raises:
            ClusterUnreachable: nobody answered, or a transaction stays in doubt.
        """
        if not self._log.exists():
            return None
        return from_entries(self.name, self._log.settled(job_key(self.name)))

    def watch(self) -> JobState | None:
        """Return the job as far as it is decided, for displays; waits for nothing.

        Raises:
            ClusterUnreachable: nobody answered.
        """
        if not self._log.exists():
            return None
        return from_entries(self.name, self._log.decided(job_key(self.name)))

    def is_decided(self, within_seconds: float) -> bool:
        """Tell whether everything in the registry is decided, or will be so within a while.

        Raises:
            ClusterUnreachable: nobody answered.
        """
        return self._log.is_settled(within_seconds)

    def undecided_keys(self) -> set[str]:
        """Return the keys of entries that are not known to count, or not to count.

        Raises:
            ClusterUnreachable: nobody answered.
        """
        return self._log.undecided()

    def read_task(self, sub_topology: str, partition: int) -> TaskProgress | None:
        """Return how far a task is, once all is decided; None: it never committed.

        It stays true only for whoever has taken the task's transactional.id.

        Raises:
            ClusterUnreachable: nobody answered, or a transaction stays in doubt.
        """
        key = task_key(self.name, sub_topology, partition)
        return _progress(self._log.settled(key, [key]).get(key))

    def watch_task(self, sub_topology: str, partition: int) -> TaskProgress | None:
        """Return how far a task is, as far as that is decided; waits for nothing.

        Raises:
            ClusterUnreachable: nobody answered.
        """
        key = task_key(self.name, sub_topology, partition)
        return _progress(self._log.decided(key, [key]).get(key))

    def written_end(self) -> int:
        """Return the offset behind everything that is written in the registry, decided or not.

        Raises:
            ClusterUnreachable: nobody answered.
        """
        return self._log.written_end()

    def newest_of_task(
        self, sub_topology: str, partition: int, since: int = 0
    ) -> tuple[int, TaskProgress] | None:
        """Return what was last written of a task, with its offset, whatever becomes of it.

        It tells that its writer lives. Whoever stands still in the middle of a commit keeps what
        others commit behind it from view, but not from here.

        Args:
            sub_topology: of the task.
            partition: of the task.
            since: the first offset that counts.

        Raises:
            ClusterUnreachable: nobody answered.
        """
        found = self._log.newest(task_key(self.name, sub_topology, partition), since)
        if found is None or found[1] is None:
            return None
        return found[0], TaskProgress.from_entry(found[1])

    def progress_output(self, sub_topology: str, partition: int, progress: TaskProgress) -> Output:
        """Return what to produce in a task's transaction so that its progress counts."""
        key = task_key(self.name, sub_topology, partition)
        return self._log.output(key, progress.to_entry())

    def output(self, key: str, entry: Any) -> Output:
        """Return what to produce in a transaction so that an entry counts."""
        return self._log.output(key, entry)

    def write(self, entries: Mapping[str, Any]) -> None:
        """Write entries outside any transaction; see `ControlTopic.write`."""
        self._log.write(entries)


def _progress(entry: Any) -> TaskProgress | None:
    return None if entry is None else TaskProgress.from_entry(entry)


def job_states(application: str, settings: KafkaSettings, admin: ClusterAdmin) -> list[JobState]:
    """Return all jobs of an application as far as they are decided, in the order of their starts.

    Raises:
        ClusterUnreachable: nobody answered.
    """
    log = ControlLog(application, settings, admin, settle_seconds=SETTLE_SECONDS)
    if not log.exists():
        return []
    entries = log.decided(job_key(""))
    names = {key.removeprefix(job_key("")).partition("/")[0] for key in entries}
    found = (from_entries(name, entries) for name in sorted(names))
    states = [state for state in found if state is not None]
    return sorted(states, key=lambda state: state.job.created_at)
