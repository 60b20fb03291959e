"""The guard of every request: host name, size, time, and the headers of every answer."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from http import HTTPStatus
from typing import Any

import structlog
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eosframework.monitoring.http.host_names import is_accepted_host
from eosframework.records import whole_number

LARGEST_BODY = 16_384
"""Largest body of a request, in bytes: forms are small."""

REQUEST_SECONDS = 30.0
"""From the end of the request's head to the last byte of the answer."""

HEADERS = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; "
    b"img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    b"frame-ancestors 'none'",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"referrer-policy": b"same-origin",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    # One request for each connection, as the workers' server does it, so that a deadline for a
    # connection's head is one for each request.
    b"connection": b"close",
}


class TooLarge(Exception):
    """A request's body is larger than `LARGEST_BODY`."""


class Guard:
    """Refuses requests that no page should see, and adds the headers of every answer.

    Args:
        app: answers the requests that are left.
        hosts: accepted host names, in lower case; see `is_accepted_host`.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        has_started = False

        async def guarded_send(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                given = {name.lower() for name, _ in message["headers"]}
                own = HEADERS | {b"cache-control": b"no-store"}
                added = [(name, value) for name, value in own.items() if name not in given]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                await self._answer(scope, _limited(scope, receive), guarded_send)
        except TimeoutError:
            structlog.get_logger("eosframework.console").warning("request_too_slow")
            if has_started:
                raise
            late = "the answer took too long; load the page again"
            await _refuse(HTTPStatus.SERVICE_UNAVAILABLE, late)(scope, receive, guarded_send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = next((v for name, v in scope["headers"] if name == b"host"), b"").decode("latin-1")
        if not is_accepted_host(host, self._hosts):
            message = (
                f"this console does not go by {host!r}; open it by an IP address, or add the name "
                f"to console.hosts"
            )
            answer = _refuse(HTTPStatus.MISDIRECTED_REQUEST, message)
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)


async def too_large(request: Request, error: Exception) -> Response:
    """Answer a request whose body is too large."""
    large = f"the request is larger than {LARGEST_BODY} bytes"
    return _refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, large)


def _refuse(status: HTTPStatus, message: str) -> PlainTextResponse:
    return PlainTextResponse(f"{message}\n", status_code=status)


def _limited(scope: Scope, receive: Receive) -> Receive:
    """Return a `receive` that raises TooLarge."""
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    numbers = [whole_number(length.decode("latin-1")) for length in lengths]
    is_known_large = any(number is None or number > LARGEST_BODY for number in numbers)
    received = 0

    async def limited() -> Any:
        nonlocal received
        if is_known_large:
            raise TooLarge
        message = await receive()
        received += len(message.get("body", b""))
        if received > LARGEST_BODY:
            raise TooLarge
        return message

    return limited
