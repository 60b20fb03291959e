"""The pages of work that outlasts a request: audits, changes with their plans, and jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus

from eosframework.console.access import Refused
from eosframework.console.application import Application
from eosframework.console.changes import PLANS, Change
from eosframework.console.jobs import Done, Job, Progress
from eosframework.console.pages.page import Console, Fields, Page
from eosframework.operations.audit import Bound, Proof, Scope, audit_topology
from eosframework.records import whole_number

AUDIT = "Audit"
"""Title of the job of an audit."""


def audit_page(console: Console, fields: Fields) -> Page:
    """Return the page with a form for an audit, and the audits so far."""
    jobs = [job for job in console.jobs.all if job.title == AUDIT]
    return Page("audit.html", AUDIT, {"jobs": jobs, "fields": fields}, is_live=False)


def start_audit(console: Console, form: Fields) -> Job:
    """Start an audit: `eosframework audit`.

    An audit by functions runs them again, so it is a change.

    Raises:
        Refused: another job is running, or functions would run and changes are not allowed.
        EosError: the range cannot be used, or the topology does not resolve.
    """
    by = form.get("by", Proof.RECEIPTS)
    if by not in tuple(Proof):
        raise Refused(
            HTTPStatus.BAD_REQUEST, f"by={by!r:.100} is no proof; expected {', '.join(Proof)}"
        )
    proof = Proof(by)
    if proof is not Proof.RECEIPTS and not console.allow_changes:
        raise Refused(
            HTTPStatus.FORBIDDEN,
            "an audit by functions runs the topology's functions again, with their side effects; "
            "start the console with --allow-changes, or choose receipts",
        )
    bounds = (form.get("from") or "beginning", form.get("to") or "end")
    work = _audit(console.app, Scope(*map(Bound.parse, bounds)), proof)
    lines = [f"from {bounds[0]} to {bounds[1]}, by {proof}"]
    return _started(console, AUDIT, lines, work)


def _audit(app: Application, scope: Scope, proof: Proof) -> Callable[[Progress], Done]:
    graph = app.graph()

    def work(show: Progress) -> Done:
        def progress(what: str, done: int) -> None:
            show(f"{what} {done:,} records" if done else what)

        verdict = audit_topology(graph, app.settings, progress, scope=scope, proof=proof)
        summary = (
            "each input record that was judged took effect exactly once"
            if verdict.clean
            else "NOT exactly once"
        )
        return Done([summary], {"verdict": verdict.as_data()})

    return work


def change_page(console: Console, fields: Fields) -> Page:
    """Return the page with the plan of a change, and the form that agrees to it.

    Raises:
        EosError: it cannot be planned.
    """
    name = fields.get("change", "")
    change = _planned(console, name, fields)
    given = {k: v for k, v in fields.items() if k != "change"}
    values = {"change": change, "name": name, "given": given, "has_changed": False}
    return Page("change.html", change.title, values, is_live=False)


def start_change(console: Console, name: str, form: Mapping[str, str]) -> Job | Page:
    """Execute a change that a user has agreed to; return its job, or the page of a new plan (C3).

    Raises:
        Refused: another job is running.
        EosError: it cannot be planned.
    """
    given = {k: v for k, v in form.items() if k not in ("fingerprint", "form_token")}
    change = _planned(console, name, given)
    if change.fingerprint != form.get("fingerprint"):
        values = {"change": change, "name": name, "given": given, "has_changed": True}
        return Page("change.html", change.title, values, HTTPStatus.CONFLICT, is_live=False)
    return _started(console, change.title, list(change.lines), change.work)


def job_page(console: Console, fields: Fields) -> Page:
    """Return the page of a job.

    Raises:
        Refused: there is no such job.
    """
    given = fields.get("number", "")
    number = whole_number(given)
    job = None if number is None else console.jobs.find(number)
    if job is None:
        raise Refused(HTTPStatus.NOT_FOUND, f"job {given!r:.100} is not known to this console")
    return Page("job.html", job.title, {"job": job}, is_live=job.is_running)


def _planned(console: Console, name: str, given: Fields) -> Change:
    plan = PLANS.get(name)
    if plan is None:
        raise Refused(HTTPStatus.NOT_FOUND, f"{name!r} is no change that this console makes")
    return plan(console.app, given)


def _started(
    console: Console, title: str, lines: list[str], work: Callable[[Progress], Done]
) -> Job:
    job = console.jobs.start(title, lines, work)
    if job is None:
        raise Refused(
            HTTPStatus.CONFLICT,
            "another job of this console is running, so nothing was started; wait for its end",
        )
    return job
