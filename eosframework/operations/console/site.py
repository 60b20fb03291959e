"""The site: the answers to requests, from the pages' functions and templates."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from http import HTTPStatus
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode

import structlog
from jinja2 import Environment, PackageLoader, StrictUndefined

from eosframework.application.monitoring.http.exchange import Answer, Request, Text
from eosframework.errors import EosError
from eosframework.operations.console.access import Access, Refused, split_url
from eosframework.operations.console.cluster_pages import tasks_page, topology_page
from eosframework.operations.console.jobs import Job
from eosframework.operations.console.overview_page import overview_page
from eosframework.operations.console.pages import (
    Console,
    Fields,
    Page,
    audit_page,
    backfills_page,
    change_page,
    dead_letter_page,
    dead_letters_page,
    job_page,
    positions_page,
    start_audit,
    start_change,
    state_page,
    trace_page,
    transactions_page,
)
from eosframework.operations.console.why_page import start_why, why_page
from eosframework.records import bounds_in_words
from eosframework.serialization.bounds import WRONG_TOKENS


def templates() -> Environment:
    """Return the templates; every value in them is escaped."""
    environment = Environment(
        loader=PackageLoader("eosframework.operations.console", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    given: dict[str, Any] = {
        "count": _count,
        "counted": _counted,
        "figure": _figure,
        "duration": _duration,
        "moment": _moment,
        "clock": _clock,
        "period": _period,
    }
    environment.filters.update(given)  # pyright: ignore[reportUnknownMemberType]
    return environment


def _count(number: float | None) -> str:
    """Return a number with separators; None is a dash."""
    if number is None:
        return "–"
    return f"{number:,.1f}" if isinstance(number, float) else f"{number:,}"


def _counted(number: int, what: str) -> str:
    """Return a number of things."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def _figure(number: float | None, unit: str = "") -> str:
    """Return a number in few characters, with its unit; None is a dash."""
    if number is None:
        return "–"
    if unit == "s":
        return f"{number * 1000:.3g} ms" if number < 1 else f"{number:.3g} s"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            number, unit = number / (1e3 if letter == "k" else size), f"{letter} {unit}"
            return f"{number:.3g} {unit}".replace("  ", " ").strip()
    return f"{number:,.3g} {unit}".strip() if number < 1000 else f"{number:,.0f} {unit}".strip()


def _duration(seconds: float | None) -> str:
    """Return a duration; None is a dash."""
    if seconds is None:
        return "–"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _moment(value: Any) -> str:
    """Return a time in UTC, of a datetime or of milliseconds since the epoch; None is a dash."""
    found = _datetime(value)
    return "–" if found is None else f"{found:%Y-%m-%d %H:%M:%S}.{found.microsecond // 1000:03d}"


def _clock(value: Any) -> str:
    """Return the time of day in UTC; see `_moment`."""
    found = _datetime(value)
    return "–" if found is None else f"{found:%H:%M:%S}.{found.microsecond // 1000:03d}"


def _period(window: Mapping[str, Any] | None) -> str:
    """Return the start and the end of a window in UTC, as exact as they are."""
    if window is None:
        return "–"
    if not window["is_timed"]:
        return bounds_in_words(window["start"], window["end"], is_timed=False)
    first, last = (_datetime(window[name]) for name in ("start", "end"))
    if first is None or last is None:
        return f"{window['start']} to {window['end']} ms since 1970"
    unit = "milliseconds" if first.microsecond or last.microsecond else "seconds"
    start, end = (one.replace(tzinfo=None).isoformat(" ", unit) for one in (first, last))
    return f"{start} to {end.partition(' ')[2] if first.date() == last.date() else end}"


def _datetime(value: Any) -> datetime | None:
    if value is None:
        return None
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    try:
        return datetime.fromtimestamp(value / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None


_MENU = {
    "/overview": "Overview",
    "/topology": "Topology",
    "/tasks": "Tasks",
    "/transactions": "Transactions",
    "/state": "State",
    "/dead-letters": "Dead letters",
    "/backfills": "Backfills",
    "/positions": "Positions",
    "/audit": "Audit",
    "/why": "Why",
}

FIRST_PAGE = "/overview"

_PAGES: Mapping[str, Callable[[Console, Fields], Page]] = {
    "/overview": overview_page,
    "/topology": topology_page,
    "/tasks": tasks_page,
    "/transactions": transactions_page,
    "/transactions/trace": trace_page,
    "/state": state_page,
    "/dead-letters": dead_letters_page,
    "/dead-letters/letter": dead_letter_page,
    "/backfills": backfills_page,
    "/positions": positions_page,
    "/audit": audit_page,
    "/why": why_page,
}

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of every answer."""

_ASSETS = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "tasks.js": "text/javascript",
    "topology.js": "text/javascript",
    "vendored/elk-api.js": "text/javascript",
    "vendored/elk-worker.min.js": "text/javascript",
}
"""Files of the folder `assets` with their types."""


@cache
def _content_of(name: str) -> bytes:
    return files("eosframework.operations.console").joinpath("assets", name).read_bytes()


@cache
def asset_address(name: str) -> str:
    """Return the address of an asset; another content has another one, so browsers may keep it."""
    return f"/assets/{name}?v={sha256(_content_of(name)).hexdigest()[:12]}"


WRONG_TOKEN_SECONDS = 1.0
"""Wait before the answer to a wrong token. Other clients do not wait, and the right token is never
refused: what keeps it from being guessed is its length."""


class Site:
    """Answers requests.

    Args:
        console: of the pages.
        access: sessions and form tokens.
        cookie: name of the cookie; consoles on one machine need different ones.
    """

    def __init__(self, console: Console, access: Access, cookie: str) -> None:
        self._console = console
        self._access = access
        self._cookie = cookie
        self._templates = templates()
        self._wrong_tokens = threading.BoundedSemaphore(WRONG_TOKENS.value)

    def quick(self, request: Request) -> Answer | None:
        """Answer a request that needs no page of the application, or may see none (A2)."""
        is_open = request.path[0] in ("assets", "sign-in", "sign-out")
        if not is_open and self._may_read(request):
            return None
        return self._answered(request, self._visited)

    def page(self, request: Request) -> Answer:
        """Answer a request that may read, with its page."""
        return self._answered(request, self._read)

    def _answered(self, request: Request, find: Callable[[Request], Page | Answer]) -> Answer:
        """Answer with what a function finds, or with the message of its error."""
        try:
            found = find(request)
            return found if isinstance(found, Answer) else self._drawn(request, found)
        except Refused as error:
            return self._problem(request, error.status, str(error))
        except EosError as error:
            return self._problem(request, HTTPStatus.OK, str(error))
        except Exception as error:
            return self._failed(request, error)

    def _visited(self, request: Request) -> Page | Answer:
        match request.path:
            case ["assets", *path] if (name := "/".join(path)) in _ASSETS:
                return _asset(name, request.options.get("v", ""))
            case ["sign-in"]:
                return self._sign_in(request)
            case ["sign-out"] if request.method == "POST":
                return self._sign_out(request)
            case _ if self._may_read(request):
                raise Refused(HTTPStatus.NOT_FOUND, f"there is no page {_path_of(request):.300}")
            case _:
                return self._unknown(request)

    def _read(self, request: Request) -> Page | Answer:
        path, fields = _path_of(request), request.options
        match request.path:
            case [""]:
                return _redirect(FIRST_PAGE)
            case ["audit"] if request.method == "POST":
                return self._starts(request, lambda form: start_audit(self._console, form))
            case ["why"] if request.method == "POST":
                return self._starts(request, lambda form: start_why(self._console, form))
            case ["changes", name]:
                return self._change(request, name)
            case ["jobs", number]:
                return job_page(self._console, {**fields, "number": number})
            case _ if path in _PAGES and request.method != "POST":
                return _PAGES[path](self._console, fields)
            case _:
                raise Refused(HTTPStatus.NOT_FOUND, f"there is no page {path:.300}")

    def _change(self, request: Request, name: str) -> Page | Answer:
        self._access.require_changes()
        if request.method == "POST":
            return self._starts(request, lambda form: start_change(self._console, name, form))
        return change_page(self._console, {**request.options, "change": name})

    def _starts(self, request: Request, start: Callable[[Fields], Job | Page]) -> Page | Answer:
        self._access.require_own_form(request.headers, self._session(request), request.form)
        started = start(request.form)
        return started if isinstance(started, Page) else _redirect(f"/jobs/{started.number}")

    def _sign_in(self, request: Request) -> Page | Answer:
        values = {"to": own_path(request.options.get("to", FIRST_PAGE))}
        if request.method != "POST":
            return Page("sign_in.html", "Sign in", values, is_live=False)
        self._access.require_own_form(request.headers, self._session(request), request.form)
        if not self._access.is_token(request.form.get("token", "")):
            self._delay_wrong_token()
            values["problem"] = (
                "this is not the console's token (setting console.token); correct it"
            )
            status = HTTPStatus.FORBIDDEN
            return Page("sign_in.html", "Sign in", values, status, is_live=False)
        secure = "; Secure" if _is_over_tls(request.headers) else ""
        cookie = f"{self._cookie}={self._access.sign_in()}; HttpOnly; Path=/; SameSite=strict"
        return _redirect(values["to"], {"Set-Cookie": cookie + secure})

    def _sign_out(self, request: Request) -> Answer:
        session = self._session(request)
        self._access.require_own_form(request.headers, session, request.form)
        self._access.sign_out(session)
        return _redirect("/sign-in", {"Set-Cookie": f"{self._cookie}=; Max-Age=0; Path=/"})

    def _unknown(self, request: Request) -> Answer:
        """Answer a request that may not read (A2)."""
        if request.headers.get("authorization"):
            self._delay_wrong_token()
            wrong = {"error": "this is not the console's token (setting console.token)"}
            return Answer(HTTPStatus.UNAUTHORIZED, wrong, {"WWW-Authenticate": "Bearer"})
        target = quote(_path_of(request))
        if request.options:
            target += f"?{urlencode(request.options)}"
        wanted = FIRST_PAGE if request.method == "POST" else target
        return _redirect(f"/sign-in?{urlencode({'to': wanted})}")

    def _delay_wrong_token(self) -> None:
        if not self._wrong_tokens.acquire(blocking=False):
            raise Refused(
                HTTPStatus.TOO_MANY_REQUESTS, "this is not the console's token; try again later"
            )
        try:
            time.sleep(WRONG_TOKEN_SECONDS)
        finally:
            self._wrong_tokens.release()

    def _failed(self, request: Request, error: Exception) -> Answer:
        log = structlog.get_logger("eosframework.console")
        log.exception("page_failed", path=_path_of(request))
        message = f"the page failed ({type(error).__name__}); the console's log has the error"
        return self._problem(request, HTTPStatus.INTERNAL_SERVER_ERROR, message)

    def _problem(self, request: Request, status: HTTPStatus, message: str) -> Answer:
        is_live = status is HTTPStatus.OK and request.method == "GET"
        values = {"problem": message}
        return self._drawn(request, Page("problem.html", "Not shown", values, status, is_live))

    def _drawn(self, request: Request, page: Page) -> Answer:
        app, session = self._console.app, self._session(request)
        seconds = app.settings.console.refresh_seconds
        may_read = self._may_read(request)
        content = self._templates.get_template(page.template).render(
            **page.values,
            page=page,
            topology=app.name,
            # A visitor who is not signed in learns nothing of what runs here.
            application=app.title if may_read else None,
            menu=_MENU if may_read else {},
            path=_path_of(request),
            asset=asset_address,
            live_seconds=seconds if page.is_live else None,
            form_token=self._access.form_token(session),
            allow_changes=self._access.allow_changes,
            is_signed_in=self._access.needs_token and self._access.may_read(session, ""),
        )
        return Answer(page.status, Text(content.encode(), "text/html; charset=utf-8"))

    def _may_read(self, request: Request) -> bool:
        authorization = request.headers.get("authorization", "")
        return self._access.may_read(self._session(request), authorization)

    def _session(self, request: Request) -> str:
        for part in request.headers.get("cookie", "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == self._cookie:
                return value
        return ""


def _asset(name: str, digest: str) -> Answer:
    is_current = asset_address(name).endswith(f"?v={digest}")
    keep = "private, max-age=31536000, immutable" if is_current else "no-cache"
    return Answer(HTTPStatus.OK, Text(_content_of(name), _ASSETS[name]), {"Cache-Control": keep})


def _redirect(to: str, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(
        HTTPStatus.SEE_OTHER, Text(b"", "text/plain"), {"Location": to, **(headers or {})}
    )


def _path_of(request: Request) -> str:
    return "/" + "/".join(request.path)


def _is_over_tls(headers: Mapping[str, str]) -> bool:
    """Return whether the browser speaks TLS, with the proxy in front of the console.

    Both headers can be forged, but only by the client whose cookie it is.
    """
    forwarded = headers.get("x-forwarded-proto", "").partition(",")[0].strip()
    return forwarded == "https" or headers.get("origin", "").startswith("https://")


def own_path(target: str) -> str:
    """Return a path of this site; another site's address becomes the first page."""
    split = split_url(target)
    is_own = not split.scheme and not split.netloc and split.path.startswith("/")
    if not is_own or target.startswith(("//", "/\\")):
        return FIRST_PAGE
    return quote(split.path) + (f"?{split.query}" if split.query else "")
