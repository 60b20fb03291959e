"""Work that a page starts and that outlasts its request: changes and audits, one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import structlog

from eosframework.bounds import JOBS
from eosframework.errors import EosError

Progress = Callable[[str], None]


@dataclass(slots=True)
class Job:
    """Work that a page has started.

    Args:
        number: from 1.
        title: for display.
        lines: its plan, as it was shown before.
        progress: the present step.
        outcome: lines about the result; None: there is none.
        data: further content of the result, for the template.
        error: message of a failure; None: there was none.
    """

    number: int
    title: str
    lines: Sequence[str]
    started_at: datetime
    progress: str = ""
    ended_at: datetime | None = None
    outcome: Sequence[str] | None = None
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    error: str | None = None

    @property
    def is_running(self) -> bool:
        """True until it has ended."""
        return self.ended_at is None


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a job: lines for people, and content for its page."""

    lines: Sequence[str]
    data: dict[str, Any] = field(default_factory=dict[str, Any])


class Jobs:
    """The jobs of a console, the newest last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: list[Job] = []
        self._started = 0

    @property
    def all(self) -> list[Job]:
        """The kept jobs, the newest first."""
        with self._lock:
            return list(reversed(self._jobs))

    def find(self, number: int) -> Job | None:
        """Return a job; None: it is not known."""
        return next((job for job in self.all if job.number == number), None)

    def start(
        self, title: str, lines: Sequence[str], work: Callable[[Progress], Done]
    ) -> Job | None:
        """Start a job on a thread of its own; None: another one is running.

        Args:
            title: for display.
            lines: its plan.
            work: does it; is given a function that shows the present step.
        """
        with self._lock:
            if any(job.is_running for job in self._jobs):
                return None
            self._started += 1
            job = Job(self._started, title, lines, datetime.now(UTC))
            self._jobs = [*self._jobs[-(JOBS.value - 1) :], job]
        structlog.get_logger("eosframework.console").info("job_started", job=job.number, what=title)
        threading.Thread(target=_run, args=(job, work), name=title, daemon=True).start()
        return job


def _run(job: Job, work: Callable[[Progress], Done]) -> None:
    def show(progress: str) -> None:
        job.progress = progress

    log = structlog.get_logger("eosframework.console")
    try:
        done = work(show)
    except EosError as error:
        job.error = str(error)
    except Exception as error:
        log.exception("job_failed", job=job.number)
        job.error = f"{type(error).__name__}: {error}"
    else:
        job.outcome, job.data = done.lines, done.data
    job.ended_at = datetime.now(UTC)
    log.info("job_ended", job=job.number, what=job.title, error=job.error)
