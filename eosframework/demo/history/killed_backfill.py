"""`eosframework backfill run` over the archive of the demo: killed, and started again."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from eosframework.backfill.job.job_entry import JobLog, JobState
from eosframework.demo.history.archive import flight
from eosframework.demo.history.world import INPUT, World
from eosframework.demo.kills import Kill
from eosframework.demo.services import Service
from eosframework.demo.stage import Stage
from eosframework.demo.story import Bars

JOB = "archive"
SETTINGS = ("backfill.commit_interval_seconds=0.5", "backfill.stall_seconds=3")
"""Transactions are open at each kill, and a retry waits only briefly for the killed attempt."""

LOOK_SECONDS = 0.2
DECIDED_SECONDS = 0.1
"""Time after which transactions that were open at a look are decided."""

RUN_SECONDS = 900.0
GONE_SECONDS = 10.0
KILLS = (("worker", 0.1), ("driver", 0.45))
"""Victims, and the processed share at which each is killed."""


@dataclass(slots=True)
class KilledBackfill:
    """Runs the job until it is complete.

    Args:
        world: target of the job.
        archive: directory with the files.
        expected: approximate number of records that the tasks of all sub-topologies process.
        stage: of the demo.
        chance: chooses victims.

    Attributes:
        seen: kills with an observed effect: a retry of Spark, an ended driver.
    """

    world: World
    archive: Path
    expected: int
    stage: Stage
    chance: random.Random
    seen: int = 0
    _drivers: list[Service] = field(default_factory=list[Service])

    def run(self) -> JobState:
        """Return the complete job.

        Raises:
            ComponentFailed: a driver failed without a kill.
            RunError: the job did not end in time.
        """
        log = JobLog(JOB, self.world.graph.application, self.world.settings, self.world.admin)
        try:
            self._start()
            with self.stage.story.bars(self.expected, "processed") as bars:
                self.stage.wait(
                    lambda: not self._drivers[-1].is_running,
                    lambda: self._look(log, bars),
                    seconds=RUN_SECONDS,
                    pause_seconds=LOOK_SECONDS,
                    late=lambda: (
                        f"job {JOB!r} was not complete after {RUN_SECONDS:g} s; see "
                        f"{self.world.log_file}"
                    ),
                )
            self._drivers[-1].finish(GONE_SECONDS, self.stage.check)
        finally:
            for driver in self._drivers:
                driver.end()
        state = log.read()
        assert state is not None, "its driver has ended well"
        return state

    def _start(self) -> None:
        source = f"{INPUT}=csv:{self.archive};record={flight.__module__}:{flight.__name__}"
        arguments = ["--job", JOB, "--source", f"{source};option.header=true"]
        arguments += [f"--set={setting}" for setting in SETTINGS]
        temporary = f"-Djava.io.tmpdir={self.archive.parent}"
        arguments += ["--spark", f"spark.driver.extraJavaOptions={temporary}"]
        self._drivers.append(self.world.start("backfill run", *arguments))

    def _look(self, log: JobLog, bars: Bars) -> None:
        self._read_events()
        if (state := log.watch()) is None:
            return
        processed = sum(progress.records for progress in state.tasks.values())
        bars.show(processed)
        if self.stage.kills > self.seen or self.stage.kills == len(KILLS):
            return
        what, share = KILLS[self.stage.kills]
        if processed >= share * self.expected and (tasks := _running(state)):
            kill = self._kill_worker(log, tasks) if what == "worker" else self._kill_driver(tasks)
            self.stage.record_kill(kill)

    def _kill_worker(self, log: JobLog, tasks: Mapping[str, str]) -> Kill | None:
        """SIGKILL a Python process in the middle of a task; None: the task is already complete."""
        task = self.chance.choice(sorted(tasks))
        pid = int(tasks[task].split("/")[1])
        try:
            victim = psutil.Process(pid)
            victim.suspend()
        except psutil.NoSuchProcess:
            return None
        time.sleep(DECIDED_SECONDS)
        state = log.watch()
        if state is None or _running(state).get(task) != tasks[task]:
            victim.resume()
            return None
        victim.kill()
        return Kill(pid, "a Python worker of Spark", (task,))

    def _kill_driver(self, tasks: Mapping[str, str]) -> Kill:
        """SIGKILL the command alone, not its children, and run the same command again."""
        driver = self._drivers[-1]
        driver.kill()
        self.seen += 1
        self._start()
        return Kill(driver.pid, "the driver", tuple(sorted(tasks)))

    def _read_events(self) -> None:
        for event in self._drivers[-1].new_events():
            if event.get("event") == "attempt_watches":
                self.seen += 1
                self.stage.story.say(
                    "Spark retries its task, which resumes at the committed position"
                )


def _running(state: JobState) -> dict[str, str]:
    """Return the attempt of each running task, by the task's name."""
    return {
        f"{sub_topology}[{number}]": progress.attempt
        for (sub_topology, number), progress in state.tasks.items()
        if not progress.complete and not progress.ended
    }
