"""The pages: each a function from a request's fields to a template with its values.

Internal: no module here is public.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, cast

from eosframework.operations.audit import Bound, Proof, Scope, audit_topology
from eosframework.operations.console.access import Refused
from eosframework.operations.console.application import Application, Backfills
from eosframework.operations.console.jobs import PLANS, Change, Done, Job, Jobs, Progress
from eosframework.operations.console.readings import Reading
from eosframework.operations.console.timelines import (
    Timeline,
    transaction_timeline,
    windows_timeline,
)
from eosframework.process.steps import StepText
from eosframework.records import WindowResult, whole_number
from eosframework.state.query import as_json, plain, queried_stores
from eosframework.topology.spec.keyed_spec import Window


@dataclass(frozen=True, slots=True)
class Console:
    """The parts of a console that pages use."""

    app: Application
    backfills: Backfills
    jobs: Jobs
    allow_changes: bool


@dataclass(frozen=True, slots=True)
class Page:
    """A page.

    Args:
        template: file name.
        title: of the page, without the application's name.
        values: of the template.
        is_live: the page is loaded again at an interval.
    """

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    status: HTTPStatus = HTTPStatus.OK
    is_live: bool = True


Fields = Mapping[str, str]
"""Fields of an address: its query and the parts of its path."""


def dead_letters_page(console: Console, fields: Fields) -> Page:
    """Return the page of the groups of dead letters."""
    reading = console.app.dead_letters()
    return Page("dead_letters.html", "Dead letters", {"reading": reading})


def dead_letter_page(console: Console, fields: Fields) -> Page:
    """Return the page of one dead letter."""
    place = fields.get("place", "")
    values = {"reading": console.app.dead_letter(place), "place": place}
    return Page("dead_letter.html", f"Dead letter {place}", values, is_live=False)


_AUDIT = "Audit"
"""Title of the job of an audit."""


def audit_page(console: Console, fields: Fields) -> Page:
    """Return the page with a form for an audit, and the audits so far."""
    jobs = [job for job in console.jobs.all if job.title == _AUDIT]
    return Page("audit.html", _AUDIT, {"jobs": jobs, "fields": fields}, is_live=False)


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
    return _started(console, _AUDIT, lines, work)


def _audit(app: Application, scope: Scope, proof: Proof) -> Callable[[Progress], Done]:
    graph = app.graph()

    def work(show: Progress) -> Done:
        text = StepText()

        def progress(what: str, done: int, total: int) -> None:
            show(text.of(what, done, total))

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


def positions_page(console: Console, fields: Fields) -> Page:
    """Return the page of positions.

    Raises:
        TopologyError: the topology does not resolve.
    """
    app = console.app
    graph = app.graph()
    processes = app.processes()
    relays = {
        address: reading
        for address, reading in processes.items()
        if reading.value is not None and reading.value["process"] == "relay"
    }
    values = {
        "transforms": app.positions() if graph.sub_topologies else None,
        "tables": app.table_positions() if graph.table_sinks else None,
        "table_sinks": graph.table_sinks,
        "relays": relays,
        "history": app.history,
    }
    return Page("positions.html", "Positions", values)


def backfills_page(console: Console, fields: Fields) -> Page:
    """Return the page of the backfill jobs."""
    return Page("backfills.html", "Backfills", {"reading": console.backfills.look()})


_SOURCES = {
    "changelog": "the changelog topic, in the cluster",
    "workers": "the workers that are asked",
    "files": "files on this machine",
}
"""Sources of rows, with their names for people."""


def state_page(console: Console, fields: Fields) -> Page:
    """Return the page with a form, and the rows that it asks for.

    Raises:
        TopologyError: the topology does not resolve.
    """
    app = console.app
    stores = queried_stores(app.graph())
    default = "workers" if app.addresses else "changelog"
    source = fields.get("source", default)
    name, key = fields.get("store", ""), fields.get("key", "")
    reading: Reading[dict[str, Any]] | None = None
    if name and source in _SOURCES and (key or fields.get("scan")):
        if fields.get("scan"):
            first, last = _bounds_of(fields)
            reading = app.rows_of(name, first, last, source)
        else:
            reading = app.row_of(name, key, source)
    window = stores[name].store.window if name in stores else None
    found = None if reading is None else reading.value
    rows = [] if found is None else _shown_rows(found, window)
    values = {
        "stores": stores,
        "sources": _SOURCES if app.addresses else {k: _SOURCES[k] for k in ("changelog", "files")},
        "source": source,
        "store": name,
        "fields": fields,
        "reading": reading,
        "rows": rows,
        "is_windowed": window is not None,
        "timeline": _timeline_of(rows) if key and not fields.get("scan") else None,
    }
    return Page("state.html", "State", values, is_live=False)


def _bounds_of(fields: Fields) -> tuple[str | None, str | None]:
    """Return the first key and the key to stop before; a prefix gives both."""
    if prefix := fields.get("prefix"):
        return prefix, after_prefix(prefix)
    return fields.get("from") or None, fields.get("to") or None


def after_prefix(prefix: str) -> str | None:
    """Return the least text that is greater than all texts with a prefix; None: there is none.

    UTF-8 has the order of the code points. Surrogates cannot be encoded and are skipped.
    """
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if 0xD800 <= following < 0xE000 else following)


def _shown_rows(found: Mapping[str, Any], declared: Window | None) -> list[dict[str, Any]]:
    """Return rows with their keys and values as text; those of windows have their window apart."""
    is_timed = declared is None or declared.is_timed
    rows: list[dict[str, Any]] = []
    for row in found["found"]:
        window = None if declared is None else _window_of(row["value"])
        value = row["value"] if window is None else window["value"]
        key = row.get("key", found.get("key"))
        rows.append(
            {
                "key": key if isinstance(key, str) else as_json(_plain_key(key)).decode(),
                "value": as_json(value).decode(),
                "window": window and {**window, "is_timed": is_timed},
                "timestamp": row["timestamp"],
                "partition": row.get("partition", found.get("partition")),
            }
        )
    return rows


def _window_of(value: Any) -> dict[str, Any] | None:
    """Return a window's start and end, in milliseconds since the epoch, and its value."""
    if isinstance(value, WindowResult):
        result = cast("WindowResult[Any]", value)
        return {"start": result.start, "end": result.end, "value": result.value}
    if isinstance(value, Mapping):  # a worker's answer
        return dict(cast("Mapping[str, Any]", value))
    return None


def _plain_key(key: Any) -> Any:
    """Return a key that JSON can show."""
    return plain(key) if isinstance(key, bytes) else key


def _timeline_of(rows: list[dict[str, Any]]) -> Timeline | None:
    """Return the windows of a key as a timeline; None: it has none, or they are not of time."""
    windows = [row["window"] for row in rows if row["window"] is not None]
    return windows_timeline([window for window in windows if window["is_timed"]])


def transactions_page(console: Console, fields: Fields) -> Page:
    """Return the page of open and hanging transactions, and of the application's ids."""
    app = console.app
    values = {"reading": app.open_transactions(), "ids": app.transactional_ids()}
    return Page("transactions.html", "Transactions", values)


def trace_page(console: Console, fields: Fields) -> Page:
    """Return the page of one id's last transactions."""
    wanted = fields.get("id", "")
    reading = console.app.trace(wanted)
    found = [] if reading.value is None else list(reversed(reading.value["transactions"]))
    drawn = [(transaction, transaction_timeline(transaction)) for transaction in found]
    values = {"reading": reading, "transactional_id": wanted, "transactions": drawn}
    return Page("trace.html", f"Transactions of {wanted}", values)
