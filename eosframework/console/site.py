"""The site: addresses, templates, and the answers to requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from http import HTTPStatus
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import structlog
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from eosframework.console.access import Access, Refused
from eosframework.console.guard import Guard, TooLarge, too_large
from eosframework.console.jobs import Job
from eosframework.console.pages.dead_letters_page import dead_letter_page, dead_letters_page
from eosframework.console.pages.job_pages import (
    audit_page,
    change_page,
    job_page,
    start_audit,
    start_change,
)
from eosframework.console.pages.page import Console, Fields, Page
from eosframework.console.pages.positions_page import backfills_page, positions_page
from eosframework.console.pages.state_page import state_page
from eosframework.console.pages.tasks_page import tasks_page
from eosframework.console.pages.topology_page import topology_page
from eosframework.console.pages.transactions_page import trace_page, transactions_page
from eosframework.console.templating import templates
from eosframework.errors import EosError

MENU = {
    "/topology": "Topology",
    "/tasks": "Tasks",
    "/transactions": "Transactions",
    "/state": "State",
    "/dead-letters": "Dead letters",
    "/backfills": "Backfills",
    "/positions": "Positions",
    "/audit": "Audit",
}

PAGES: Mapping[str, Callable[[Console, Fields], Page]] = {
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
    "/jobs/{number}": job_page,
}

ASSETS = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
"""Files of the folder `assets` with their types."""

MOST_FIELDS = 20

WRONG_TOKEN_SECONDS = 1.0
"""Wait after a wrong token; only one is checked at a time, so guesses are slow."""


class Site:
    """Answers requests.

    Args:
        console: of the pages.
        access: sessions and form tokens.
        cookie: name of the cookie.
    """

    def __init__(self, console: Console, access: Access, cookie: str) -> None:
        self._console = console
        self._access = access
        self._cookie = cookie
        self._templates = templates()
        self._signing_in = asyncio.Lock()

    def routes(self) -> list[Route]:
        """Return the addresses with their functions."""
        return [
            Route("/", _to_topology),
            Route("/assets/{name}", _asset),
            Route("/sign-in", self._sign_in, methods=["GET", "POST"]),
            Route("/sign-out", self._sign_out, methods=["POST"]),
            *(Route(path, self._reads(page)) for path, page in PAGES.items()),
            Route("/audit", self._start_audit, methods=["POST"]),
            Route("/changes/{change}", self._plans),
            Route("/changes/{change}", self._start_change, methods=["POST"]),
        ]

    async def not_found(self, request: Request, error: Exception) -> Response:
        """Answer a request for an address that does not exist."""
        return self._problem(request, HTTPStatus.NOT_FOUND, f"there is no page {request.url.path}")

    def _reads(
        self, page: Callable[[Console, Fields], Page]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            if (refused := self._unknown(request)) is not None:
                return refused
            fields = {**request.query_params, **request.path_params}
            return await self._answered(request, lambda: page(self._console, fields))

        return answer

    async def _plans(self, request: Request) -> Response:
        if (refused := self._unknown(request)) is not None:
            return refused
        fields = {**request.query_params, **request.path_params}

        def page() -> Page:
            self._access.require_changes()
            return change_page(self._console, fields)

        return await self._answered(request, page)

    async def _start_audit(self, request: Request) -> Response:
        return await self._starts(request, lambda form: start_audit(self._console, form))

    async def _start_change(self, request: Request) -> Response:
        name = str(request.path_params["change"])

        def start(form: Fields) -> Job | Page:
            self._access.require_changes()
            return start_change(self._console, name, form)

        return await self._starts(request, start)

    async def _starts(self, request: Request, start: Callable[[Fields], Job | Page]) -> Response:
        if (refused := self._unknown(request)) is not None:
            return refused
        form = await _form(request)

        def work() -> Page | Response:
            self._access.require_own_form(request.headers, self._session(request), form)
            started = start(form)
            if isinstance(started, Page):
                return started
            return RedirectResponse(f"/jobs/{started.number}", HTTPStatus.SEE_OTHER)

        return await self._answered(request, work)

    async def _sign_in(self, request: Request) -> Response:
        to = _own_path(request.query_params.get("to", "/topology"))
        if request.method == "GET":
            return self._page(request, Page("sign_in.html", "Sign in", {"to": to}, is_live=False))
        form = await _form(request)
        try:
            self._access.require_own_form(request.headers, self._session(request), form)
        except Refused as error:
            return self._problem(request, error.status, str(error))
        async with self._signing_in:
            if not self._access.is_token(form.get("token", "")):
                await asyncio.sleep(WRONG_TOKEN_SECONDS)
                message = "this is not the console's token (setting console.token); correct it"
                values = {"to": to, "problem": message}
                status = HTTPStatus.FORBIDDEN
                page = Page("sign_in.html", "Sign in", values, status, is_live=False)
                return self._page(request, page)
        answer = RedirectResponse(to, HTTPStatus.SEE_OTHER)
        answer.set_cookie(self._cookie, self._access.sign_in(), httponly=True, samesite="strict")
        return answer

    async def _sign_out(self, request: Request) -> Response:
        form = await _form(request)
        session = self._session(request)
        try:
            self._access.require_own_form(request.headers, session, form)
        except Refused as error:
            return self._problem(request, error.status, str(error))
        self._access.sign_out(session)
        answer = RedirectResponse("/sign-in", HTTPStatus.SEE_OTHER)
        answer.delete_cookie(self._cookie)
        return answer

    async def _answered(self, request: Request, work: Callable[[], Page | Response]) -> Response:
        """Run a page's function, and answer with its page or with the message of its error."""

        def rendered() -> Response:
            try:
                found = work()
                return found if isinstance(found, Response) else self._page(request, found)
            except Refused as error:
                return self._problem(request, error.status, str(error))
            except EosError as error:
                return self._problem(request, HTTPStatus.OK, str(error))
            except Exception as error:
                return self._failed(request, error)

        return await run_in_threadpool(rendered)

    def _unknown(self, request: Request) -> Response | None:
        """Return the answer to a request that may not read (A2); None: it may."""
        if self._access.may_read(self._session(request), request.headers.get("authorization", "")):
            return None
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        wanted = target if request.method == "GET" else "/topology"
        return RedirectResponse(f"/sign-in?{urlencode({'to': wanted})}", HTTPStatus.SEE_OTHER)

    def _failed(self, request: Request, error: Exception) -> Response:
        structlog.get_logger("eosframework.console").exception("page_failed", path=request.url.path)
        message = f"the page failed ({type(error).__name__}); the console's log has the error"
        return self._problem(request, HTTPStatus.INTERNAL_SERVER_ERROR, message)

    def _problem(self, request: Request, status: HTTPStatus, message: str) -> Response:
        is_live = status is HTTPStatus.OK and request.method == "GET"
        values = {"problem": message}
        return self._page(request, Page("problem.html", "Not shown", values, status, is_live))

    def _page(self, request: Request, page: Page) -> Response:
        app = self._console.app
        session = self._session(request)
        seconds = app.settings.console.refresh_seconds
        content = self._templates.get_template(page.template).render(
            **page.values,
            page=page,
            topology=app.name,
            application=app.title,
            menu=MENU,
            path=request.url.path,
            live_seconds=seconds if page.is_live else None,
            form_token=self._access.form_token(session),
            allow_changes=self._access.allow_changes,
            is_signed_in=self._access.needs_token and self._access.may_read(session, ""),
        )
        return HTMLResponse(content, page.status)

    def _session(self, request: Request) -> str:
        return request.cookies.get(self._cookie, "")


def make_site(console: Console, access: Access, hosts: Collection[str], *, cookie: str) -> ASGIApp:
    """Return the application that answers requests.

    Args:
        console: of the pages.
        access: sessions and form tokens.
        hosts: accepted host names, in lower case.
        cookie: name of the cookie; consoles on one machine need different ones.
    """
    site = Site(console, access, cookie)
    errors: Mapping[Any, Any] = {404: site.not_found, TooLarge: too_large}
    return Guard(Starlette(routes=site.routes(), exception_handlers=errors), hosts)


async def _to_topology(request: Request) -> Response:
    return RedirectResponse("/topology", HTTPStatus.SEE_OTHER)


async def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    kind = ASSETS.get(name)
    if kind is None:
        return Response(status_code=HTTPStatus.NOT_FOUND)
    content = files("eosframework.console").joinpath("assets", name).read_bytes()
    headers = {"Cache-Control": "no-cache"}
    return Response(content, media_type=kind, headers=headers)


async def _form(request: Request) -> dict[str, str]:
    body = (await request.body()).decode("utf-8", "replace")
    try:
        return dict(parse_qsl(body, keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError:
        return {}


def _own_path(target: str) -> str:
    """Return a path of this site; another site's address becomes the first page."""
    split = urlsplit(target)
    is_own = not split.scheme and not split.netloc and target.startswith("/")
    if not is_own or target.startswith(("//", "/\\")):
        return "/topology"
    return quote(split.path) + (f"?{split.query}" if split.query else "")
