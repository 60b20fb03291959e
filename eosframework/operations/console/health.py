"""The health of an application: one sentence, and its problems with a link to each.

It has no rules of its own: a process is unwell if its `/readyz` says so, or an alert fires; the
rest are facts that `eosframework status` and `txn hanging` report.

Internal: no module here is public.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any
from urllib.parse import quote, urlencode

from eosframework.application.composition.application_status import ApplicationStatus
from eosframework.application.monitoring.metrics.alerts import Firing
from eosframework.kafka.inspect.coordinators import at
from eosframework.operations.console.readings import Reading


class Level(IntEnum):
    """The severity of a problem, and the state of an application."""

    GOOD = 0
    NOTE = 1
    WARNING = 2
    BAD = 3

    @property
    def style(self) -> str:
        """Name of its class in the style sheet."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem.

    Args:
        what: one line for people.
        detail: the rest of it; empty: there is none.
        link: address of the page about it.
    """

    level: Level
    what: str
    detail: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """The state of an application: a sentence, and the problems, the worst first."""

    level: Level
    sentence: str
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """The readings that a health is made of.

    Args:
        status: of the cluster; None: it was not read yet.
        error: message of the newest attempt to read the cluster, if it failed.
        processes: answers of the asked processes to `/status`, by address.
        firing: the alerts that fire.
        dead_letters: groups, as `dead-letters list` has them.
        hanging: hanging transactions, as `txn hanging` has them.
    """

    status: ApplicationStatus | None
    error: str | None
    processes: Mapping[str, Reading[dict[str, Any]]]
    firing: Iterable[Firing] = ()
    dead_letters: Iterable[Mapping[str, Any]] = ()
    hanging: Iterable[Mapping[str, Any]] = ()


def health_of(seen: Seen) -> Health:
    """Return the health of an application."""
    problems = sorted(_problems(seen), key=lambda problem: -problem.level)
    worst = [problem for problem in problems if problem.level is Level.BAD]
    warnings = [problem for problem in problems if problem.level is Level.WARNING]
    if seen.status is None and seen.error is None:
        return Health(Level.NOTE, "The cluster is being read for the first time.")
    if worst:
        return Health(Level.BAD, f"Not well: {_joined(worst)}", tuple(problems))
    if warnings:
        return Health(Level.WARNING, f"Look at this: {_joined(warnings)}", tuple(problems))
    if not seen.processes:
        sentence = (
            "Every task has an owner. No process is asked, so readiness and alerts are not known: "
            "start the console with --ask HOST:PORT"
        )
        return Health(Level.NOTE, sentence, tuple(problems))
    return Health(
        Level.GOOD, "All is well: every process is ready, and no alert fires", tuple(problems)
    )


def _joined(problems: list[Problem]) -> str:
    more = len(problems) - 1
    return problems[0].what + (f", and {more} more" if more else "")


def _problems(seen: Seen) -> Iterator[Problem]:
    if seen.error is not None:
        yield Problem(Level.BAD, "the cluster cannot be read", seen.error, "/tasks")
    if seen.status is not None:
        yield from _of_cluster(seen.status)
    for address, reading in seen.processes.items():
        yield from _of_process(address, reading)
    for firing in seen.firing:
        what = f"{firing.summary} ({firing.alert.name})"
        yield Problem(Level.BAD, what, firing.alert.action, _alert_link(firing))
    for entry in seen.hanging:
        what = f"a hanging transaction holds {entry['topic']}[{entry['partition']}] back"
        yield Problem(Level.BAD, what, str(entry["meaning"]), "/transactions")
    for group in seen.dead_letters:
        if (count := group["count"] - group["replayed"]) > 0:
            what = f"{_counted(count, 'dead letter')} of step {group['step']}: {group['error']}"
            place = urlencode({"place": group["example"]})
            detail = f"in {group['topic']}, newest from {group['input']}"
            yield Problem(Level.NOTE, what, detail, f"/dead-letters/letter?{place}")


def _of_cluster(status: ApplicationStatus) -> Iterator[Problem]:
    for failure in status.failures:
        what = f"{failure.task} is stopped at record {failure.record}"
        detail = f"{failure.error} ({failure.instance}, {at(failure.at):%Y-%m-%d %H:%M:%S})"
        yield Problem(Level.BAD, what, detail, f"/tasks?task={quote(failure.task)}")
    for process, members in status.members.items():
        tasks = [task for task in status.tasks if task.process == process]
        free = [task.task for task in tasks if task.owner is None]
        if not members and tasks:
            what = f"no process runs {process}: {_counted(len(tasks), 'task')} without an owner"
            yield Problem(Level.BAD, what, "", "/tasks?state=no+owner")
        elif free:
            what = f"{_counted(len(free), 'task')} of {process} without an owner: {_listed(free)}"
            yield Problem(Level.WARNING, what, "", "/tasks?state=no+owner")
    held = [task for task in status.tasks if task.held_back]
    if held:
        records = sum(task.held_back for task in held)
        what = (
            f"{_counted(records, 'offset')} held back from {_listed(t.task for t in held)} by open "
            f"transactions"
        )
        yield Problem(Level.NOTE, what, "", "/transactions")


def _of_process(address: str, reading: Reading[dict[str, Any]]) -> Iterator[Problem]:
    link = f"/tasks#{quote(address)}"
    if reading.error is not None:
        yield Problem(Level.WARNING, f"{address} does not answer", reading.error, link)
        return
    answer = reading.value
    if answer is None:
        return
    name = answer.get("instance") or answer["process"]
    if not answer["ready"]:
        reasons = "; ".join(answer["reasons"])
        yield Problem(Level.WARNING, f"{name} is not ready: {reasons}", "", link)
    waits = [task["task"] for task in answer.get("tasks", ()) if task.get("waits_for")]
    if waits:
        what = f"stream time of {_listed(waits)} is held by upstream tasks"
        yield Problem(Level.NOTE, what, "", "/tasks?state=held")
    for kind, entries in (("late", answer.get("late", ())), ("keyless", answer.get("keyless", ()))):
        for entry in entries:
            if entry["records"]:
                what = (
                    f"{_counted(entry['records'], f'{kind} record')} from {entry['topic']} in step "
                    f"{entry['step']}"
                )
                yield Problem(Level.NOTE, what, f"counted by {name} since its start", "/topology")
    if passed := answer.get("passed_over"):
        what = f"{_counted(passed, 'record')} passed over: upstream tasks counted as idle"
        yield Problem(Level.NOTE, what, f"counted by {name} since its start", "/topology")


def _alert_link(firing: Firing) -> str:
    return {
        "EosHeldBack": "/transactions",
        "EosDeadLetters": "/dead-letters",
        "EosLagGrows": "/tasks",
        "EosStreamTimeHeld": "/tasks?state=held",
        "EosOutboxWaits": "/positions",
        "EosOutboxKeepsLog": "/positions",
    }.get(firing.alert.name, "/tasks")


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _listed(names: Iterable[str], most: int = 3) -> str:
    found = list(names)
    more = len(found) - most
    return ", ".join(found[:most]) + (f" and {more} more" if more > 0 else "")
