"""Work that a page starts and that outlasts its request: changes and audits, one at a time.

Changes that a page can make, each with the plan that is shown before: end, replay, reset.
CJ1. plan: the same function as the command's; it changes nothing
CJ2. show the plan's lines, with their fingerprint in the form
CJ3. when the form is sent: plan again. If the fingerprint differs, show the new plan: what a
user has agreed to is what is done
CJ4. execute, as a job
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import structlog

from eosframework.application.composition.reset_plan import (
    OUTPUTS_STAY,
    execute_reset,
    outputs_of,
    plan_reset,
)
from eosframework.errors import ConfigurationError, EosError
from eosframework.kafka.inspect.ending import Plan, perform, plan_by_id, plan_by_producer
from eosframework.kafka.inspect.wire import Wire
from eosframework.operations.console.application import Application
from eosframework.operations.dead_letters import (
    Choice,
    DeadLetterPlace,
    dead_letters_of,
    marked_of,
    moment_of,
    plan_replay,
    replay,
    targets,
)
from eosframework.records import TopicPartition, whole_number
from eosframework.serialization.bounds import JOBS

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


Given = Mapping[str, str]
"""Fields of a page's address or form."""


@dataclass(frozen=True, slots=True)
class Change:
    """A planned change.

    Args:
        title: for display.
        lines: the plan.
        work: executes it.
        is_empty: there is nothing to do.
    """

    title: str
    lines: Sequence[str]
    work: Callable[[Progress], Done]
    is_empty: bool = False

    @property
    def fingerprint(self) -> str:
        """Digest of the plan."""
        return hashlib.sha256("\n".join([self.title, *self.lines]).encode()).hexdigest()


def _plan_end(app: Application, given: Given) -> Change:
    """Plan the end of an open transaction: `eosframework txn abort` or `txn commit`.

    Args:
        app: of the console.
        given: `id`, or `topic`, `partition` and `producer_id`.

    Raises:
        EosError: there is nothing to end, or the transaction is healthy.
    """
    with app.wire() as wire:
        planned = _end_plan(wire, given)

    def work(show: Progress) -> Done:
        show("ending the transaction")
        with app.wire() as wire:
            outcome = perform(wire, app.settings.kafka, planned)
        app.read_again("transactions", "ids", "overview")
        return Done([outcome])

    return Change("End a transaction", planned.steps, work)


def _end_plan(wire: Wire, given: Given) -> Plan:
    if transactional_id := given.get("id"):
        return plan_by_id(wire, transactional_id)
    partition, producer_id = (
        whole_number(given.get(name, "")) for name in ("partition", "producer_id")
    )
    if not given.get("topic") or partition is None or producer_id is None:
        raise ConfigurationError(
            "name one transaction: its id, or its topic, partition and producer; the page of "
            "transactions has a link for each"
        )
    return plan_by_producer(wire, TopicPartition(given["topic"], partition), producer_id)


def _plan_dead_letter_replay(app: Application, given: Given) -> Change:
    """Plan a replay: `eosframework dead-letters replay`.

    Args:
        app: of the console.
        given: `topic`, `error`, `place` and `since` choose, all of them combined; none: all.
            `into_source` accepts that the records go to source topics.

    Raises:
        EosError: a criterion cannot be used, or the cluster did not answer.
    """
    context = app.context()
    place, since = given.get("place"), given.get("since")
    choice = Choice(
        topic=given.get("topic") or None,
        error=given.get("error") or None,
        places=(DeadLetterPlace.parse(place),) if place else (),
        since_ms=moment_of(since) if since else None,
    )
    letters = dead_letters_of(context)
    choice.refuse_unknown_topics(letters.topics)
    routes = targets(context.graph)
    found = plan_replay(letters, choice, routes, marked_of(context, letters))
    if not given.get("into_source"):
        found.refuse_shared()

    def work(show: Progress) -> Done:
        show("replaying")
        context.control_topic.ensure()
        application = context.graph.application
        done = replay(
            application,
            context.settings,
            context.admin,
            letters,
            choice,
            routes,
            lambda count: show(f"{count:,} replayed"),
        ).total
        app.read_again("dead letters", "overview")
        return Done(found.lines(done, dry_run=False))

    return Change("Replay dead letters", found.lines(0, dry_run=True), work, not found.total)


def _plan_application_reset(app: Application, given: Given) -> Change:
    """Plan a reset: `eosframework reset`.

    Args:
        app: of the console.
        given: `to`, as the command's option; empty: as if the application had never run. With
            `outputs` the outputs are emptied as well.

    Raises:
        EosError: a worker runs, or the cluster did not answer.
    """
    context = app.context()
    emptied = outputs_of(context) if given.get("outputs") else OUTPUTS_STAY
    planned = plan_reset(context, given.get("to") or None, emptied)

    def work(show: Progress) -> Done:
        show("deleting")
        execute_reset(planned, context)
        app.read_again("overview", "positions", "dead letters")
        return Done([f"done; create its topics again: eosframework apply {app.name}"])

    return Change("Reset the application", list(planned.lines()), work)


PLANS: Mapping[str, Callable[[Application, Given], Change]] = {
    "end": _plan_end,
    "replay": _plan_dead_letter_replay,
    "reset": _plan_application_reset,
}
"""The plan of each change, by the name in its address."""
