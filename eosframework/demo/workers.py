"""The workers of a demo, under their supervisor, and their kills."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from eosframework.demo.kills import Kill
from eosframework.demo.services import Service
from eosframework.errors import ComponentFailed

AT_WORK_SECONDS = 0.5
"""A victim has had its tasks for at least this long, so that it is in a transaction."""

GONE_SECONDS = 5.0


@dataclass(slots=True)
class Duty:
    """A process, its tasks, and the time of the last assignment."""

    pid: int
    tasks: dict[str, str] = field(default_factory=dict[str, str])
    """Displayed names, by task or by partition."""
    since: float = 0.0

    def take(self, name: str, task: str, timestamp: str) -> None:
        """Add a task assigned at a log event's time."""
        self.tasks[name] = task
        self.since = datetime.fromisoformat(timestamp).timestamp()

    @property
    def is_at_work(self) -> bool:
        """True once it has had its tasks for long enough."""
        return bool(self.tasks) and time.time() - self.since >= AT_WORK_SECONDS


class Workers(Service):
    """The supervisor of `eosframework run-worker` with several processes.

    Args:
        topology: the topology's file.
        bootstrap_servers: cluster of its topics.
        processes: number of workers.
        log_file: of their log events, as JSON.
        environment: settings that must not appear in the command line.
    """

    def __init__(
        self,
        topology: Path,
        bootstrap_servers: str,
        processes: int,
        log_file: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._duties: dict[str, Duty] = {}
        self._deaths = 0
        arguments = ["run-worker", str(topology), "--processes", str(processes)]
        arguments += ["--set", f"kafka.bootstrap_servers={bootstrap_servers}"]
        name = f"the supervisor of {topology.stem}'s workers"
        super().__init__(name, arguments, log_file, environment)

    def kill_one(self, chance: random.Random) -> Kill | None:
        """SIGKILL a random worker with tasks; None if none has tasks at the moment.

        Raises:
            ComponentFailed: the signal did not end it.
        """
        self._read_log()
        victims = [
            (child, instance)
            for instance, duty in sorted(self._duties.items())
            for child in self._children()
            if child.pid == duty.pid and duty.is_at_work
        ]
        if not victims:
            return None
        victim, instance = chance.choice(victims)
        tasks = tuple(sorted(self._duties.pop(instance).tasks.values()))
        victim.send_signal(signal.SIGKILL)
        try:
            victim.wait(GONE_SECONDS)
        except psutil.TimeoutExpired:
            raise ComponentFailed(f"worker {victim.pid} outlived SIGKILL") from None
        return Kill(victim.pid, f"worker {instance}", tasks)

    def are_at_work(self) -> bool:
        """Return whether any worker has tasks."""
        self._read_log()
        return any(duty.is_at_work for duty in self._duties.values())

    def deaths_seen(self) -> int:
        """Number of workers that the supervisor saw die by SIGKILL, by its log."""
        self._read_log()
        return self._deaths

    def _children(self) -> Sequence[psutil.Process]:
        """Return the supervisor's children that run."""
        try:
            children = psutil.Process(self.pid).children()
            return [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
        except psutil.NoSuchProcess:
            return []

    def _read_log(self) -> None:
        """Update assignments and deaths from new log events."""
        for event in self.new_events():
            self._learn(event, str(event.get("instance")))

    def _learn(self, event: dict[str, Any], instance: str) -> None:
        duty = self._duties.get(instance)
        match event.get("event"):
            case "worker_started":
                self._duties[instance] = Duty(event["pid"])
            case "task_assigned" if duty is not None:
                duty.take(event["task"], event["task"], event["timestamp"])
            case "partition_claimed" if duty is not None:
                duty.take(event["partition"], event["partition"], event["timestamp"])
            case "partitions_revoked" | "partitions_lost" | "task_closed" if duty is not None:
                duty.tasks.pop(event.get("task") or event["partition"], None)
            case "worker_died":
                self._duties.pop(instance, None)
                self._deaths += event.get("signal") == "SIGKILL"
            case _:
                pass
