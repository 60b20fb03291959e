"""One HTTP request and its response, converted from and to bytes by h11."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote, urlsplit

import h11
import structlog

from eosframework.errors import EosError, UserError
from eosframework.monitoring.http.host_names import is_accepted_host
from eosframework.monitoring.http.pages import Answer, NotServed, Page, Pages, Request, Text
from eosframework.state.query.text_forms import as_json

LARGEST_HEAD = 16_384
"""Largest request line with headers, in bytes."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A complete request and the page that answers it.

    Args:
        page: the page with the name of the path's first part.
        name: the path's first part.
        request: the rest of the path and the query.
    """

    page: Page
    name: str
    request: Request


@dataclass(frozen=True, slots=True)
class Site:
    """The pages of a server and its host names.

    Args:
        pages: by the first part of their paths.
        hosts: accepted host names, in lower case; see `is_accepted_host`.
        hosts_setting: the setting that adds host names, for messages.
    """

    pages: Pages
    hosts: Collection[str]
    hosts_setting: str


class Exchange:
    """The HTTP protocol state of one connection, which serves one request.

    Args:
        site: the server's pages and names.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=LARGEST_HEAD)
        self._is_head = False

    def receive(self, data: bytes) -> PageRequest | None:
        """Process received bytes; return the request once it is complete, None before.

        Raises:
            NotServed: the request is refused.
        """
        try:
            self._http.receive_data(data)
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            status = HTTPStatus(error.error_status_hint)
            raise NotServed(status, f"the request is not valid HTTP: {error}") from error
        return self._asked(event) if isinstance(event, h11.Request) else None

    def answer(self, answer: Answer) -> bytes:
        """Return the bytes of a response, which ends the connection."""
        text = answer.content
        if not isinstance(text, Text):
            text = Text(as_json(text) + b"\n", "application/json")
        head = h11.Response(
            status_code=answer.status,
            reason=answer.status.phrase.encode(),
            headers=[
                ("Content-Type", text.content_type),
                ("Content-Length", str(len(text.content))),
                ("Cache-Control", "no-store"),
                ("Connection", "close"),
            ],
        )
        parts = [self._http.send(head)]
        if not self._is_head:
            parts.append(self._http.send(h11.Data(data=text.content)))
        return b"".join(part for part in parts if part)

    def _asked(self, request: h11.Request) -> PageRequest:
        method = request.method.decode()
        self._is_head = method == "HEAD"
        if method not in ("GET", "HEAD"):
            raise NotServed(
                HTTPStatus.NOT_IMPLEMENTED, f"Unsupported method {method!r}; only GET and HEAD"
            )
        host = next((value for name, value in request.headers if name == b"host"), b"")
        if not is_accepted_host(host.decode("latin-1"), self._site.hosts):
            raise NotServed(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"this process does not go by {host.decode('latin-1')!r}; ask by an IP address, or "
                f"add the name to {self._site.hosts_setting}",
            )
        split = urlsplit(request.target.decode("latin-1"))
        first, *rest = [unquote(part) for part in split.path.removeprefix("/").split("/")]
        page = self._site.pages.get(first)
        if page is None:
            known = ", ".join(f"/{name}" for name in sorted(self._site.pages))
            raise NotServed(HTTPStatus.NOT_FOUND, f"there is no {split.path!r}; there are {known}")
        options = dict(parse_qsl(split.query, keep_blank_values=True, max_num_fields=100))
        return PageRequest(page, first, Request(rest, options))


def answer_of(asked: PageRequest) -> Answer:
    """Return a page's answer, or an error's; never raises."""
    try:
        return asked.page(asked.request)
    except NotServed as error:
        return error.answer
    except UserError as error:
        return Answer(HTTPStatus.BAD_REQUEST, {"error": str(error)})
    except EosError as error:
        return Answer(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": str(error)})
    except Exception as error:
        return failed(asked.name, error)


def failed(name: str, error: Exception) -> Answer:
    """Log an unexpected error of a page, and return its answer."""
    structlog.get_logger("eosframework.http").exception("http_failed", path=f"/{name}")
    return Answer(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": f"{type(error).__name__}: {error}"})
