"""One request and its answer, as bytes; h11 knows HTTP."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import parse_qsl, unquote, urlsplit

import h11
import structlog

from eosframework.errors import EosError, UserError
from eosframework.monitoring.http.pages import Answer, NotServed, Page, Pages, Request, Text
from eosframework.state.query.texts import as_json

LARGEST_HEAD = 16_384
"""Bytes of a request's line and headers."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that a page answers.

    Args:
        page: of the path's first part.
        name: that part.
        request: for the page.
    """

    page: Page
    name: str
    request: Request


@dataclass(frozen=True, slots=True)
class Site:
    """The pages of a server and the names that it goes by.

    Args:
        pages: what there is.
        hosts: names that a client may use for it, in lower case; see `goes_by`.
        hosts_setting: where a user adds one.
    """

    pages: Pages
    hosts: Collection[str]
    hosts_setting: str

    def goes_by(self, host: str) -> bool:
        """Tell whether a request for a host is meant for this server.

        A page of a foreign site can let its own name point at this address ("DNS rebinding") and
        have a browser read what is answered. Such a name is in the public DNS: it is neither an
        address, nor `localhost`, nor without a dot.

        Args:
            host: of the Host header, with or without a port.
        """
        name = host.rpartition("]")[0].lstrip("[") or host.partition(":")[0]
        name = name.lower().rstrip(".")
        return "." not in name or name.endswith(".localhost") or name in self.hosts or _is_ip(name)


def _is_ip(name: str) -> bool:
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


class Exchange:
    """The received part of one request, and the bytes of its answer.

    Args:
        site: that is asked.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=LARGEST_HEAD)
        self._is_head = False

    def receive(self, data: bytes) -> Asked | None:
        """Take bytes of the request, and return it once it is complete; None: more must come.

        Raises:
            NotServed: it is answered without a page.
        """
        try:
            self._http.receive_data(data)
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            status = HTTPStatus(error.error_status_hint)
            raise NotServed(status, f"this is no request that can be read: {error}") from error
        return self._asked(event) if isinstance(event, h11.Request) else None

    def answer(self, answer: Answer) -> bytes:
        """Return the bytes of an answer, after which the connection ends."""
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

    def _asked(self, request: h11.Request) -> Asked:
        method = request.method.decode()
        self._is_head = method == "HEAD"
        if method not in ("GET", "HEAD"):
            raise NotServed(
                HTTPStatus.NOT_IMPLEMENTED, f"Unsupported method {method!r}; only GET and HEAD"
            )
        host = next((value for name, value in request.headers if name == b"host"), b"")
        if not self._site.goes_by(host.decode("latin-1")):
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
        return Asked(page, first, Request(rest, options))


def answer_of(asked: Asked) -> Answer:
    """Return what a page answers, or what is wrong; it never raises."""
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
    """Report an error that no page should have, and return its answer."""
    structlog.get_logger("eosframework.http").exception("http_failed", path=f"/{name}")
    return Answer(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": f"{type(error).__name__}: {error}"})
