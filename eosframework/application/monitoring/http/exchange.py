"""Requests and their answers, as an application of WSGI.

The probes `/livez`, whether the main thread makes turns, and `/readyz`, whether it does work.
A process that is not live should be restarted. A process that is not ready is starting or
recovering, and a restart would only delay it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import structlog

from eosframework.errors import EosError, UserError
from eosframework.process.watchdog import place_of
from eosframework.serialization.bounds import FIELDS, Bound
from eosframework.state.query import as_json

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment


def is_accepted_host(host: str, names: Collection[str]) -> bool:
    """Return whether a request's Host header names this server.

    This prevents DNS rebinding, where a foreign site's name resolves to this address and its page
    in a browser reads the responses. Such a name is in the public DNS, so addresses, `localhost`
    and names without a dot are accepted.

    Args:
        host: of the Host header, with or without a port.
        names: accepted host names in addition, in lower case.
    """
    name = host.rpartition("]")[0].lstrip("[") or host.partition(":")[0]
    name = name.lower().rstrip(".")
    return "." not in name or name.endswith(".localhost") or name in names or _is_ip(name)


def _is_ip(name: str) -> bool:
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a page.

    Args:
        path: the decoded parts of the path; for a page of `Pages`, those after its name.
        options: the query's fields.
        method: GET, HEAD or POST.
        headers: by their names in lower case.
        form: the body's fields.
    """

    path: Sequence[str]
    options: Mapping[str, str]
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    form: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Text:
    """Content of a type other than JSON."""

    content: bytes
    content_type: str


@dataclass(frozen=True, slots=True)
class Streamed:
    """JSON in parts, each of which is made when the one before it is on its way to the client."""

    parts: Iterator[bytes]


@dataclass(frozen=True, slots=True)
class Answer:
    """A page's answer.

    Args:
        content: encoded as JSON unless it is a `Text` or `Streamed`.
        headers: in addition to those of each answer.
    """

    status: HTTPStatus
    content: Mapping[str, Any] | Text | Streamed
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


AGAIN = {"Retry-After": "1"}
"""Headers of an answer that is another one in a moment."""


class NotServed(Exception):
    """A request that is answered with an error status and a message.

    A status of 503 asks the client to repeat the request after a second.
    """

    def __init__(self, status: HTTPStatus, message: str, **more: Any) -> None:
        super().__init__(message)
        headers = AGAIN if status is HTTPStatus.SERVICE_UNAVAILABLE else {}
        self.answer = Answer(status, {"error": message, **more}, headers)


Page = Callable[[Request], Answer]
"""Answers a request, on a thread of its own.

Raises:
    NotServed: contains the answer.
    UserError: the request is invalid.
"""

Pages = Mapping[str, Page]
"""Pages by the first part of their paths."""


_PART = 65_536
"""Bytes of a content that are handed to the server at once."""


@dataclass(frozen=True, slots=True)
class Site:
    """The pages of a server and its bounds.

    Args:
        quick: answers requests that are answered however many pages are, and that need no page;
            returns None for others. It never blocks for long.
        page: answers the others.
        hosts: accepted host names, in lower case; see `is_accepted_host`.
        hosts_setting: the setting that adds host names, for messages.
        at_once: number of pages that are answered at the same time.
        seconds: from the connection to the last byte of the answer.
        methods: accepted ones.
        headers: of all answers.
    """

    quick: Callable[[Request], Answer | None]
    page: Page
    hosts: Collection[str]
    hosts_setting: str
    at_once: Bound
    seconds: Bound
    methods: Collection[str] = ("GET", "HEAD")
    headers: Mapping[str, str] = field(default_factory=lambda: {"Cache-Control": "no-store"})


class Exchange:
    """Answers requests with a site's pages; whatever a request is, its answer is one message.

    Args:
        site: the pages.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._turns = threading.BoundedSemaphore(site.at_once.value)

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterator[bytes]:
        """Answer one request, while the server iterates."""
        name = environ["PATH_INFO"]
        with ExitStack() as turn:
            answer = self._answer(environ, turn)
            try:
                parts, length = _parts_of(answer)
            except Exception as error:  # the page's content cannot be encoded as JSON
                answer = _failed(name, error)
                parts, length = _parts_of(answer)
            content_type = getattr(answer.content, "content_type", "application/json")
            headers = {"Content-Type": content_type, **self._site.headers, **answer.headers}
            if length is not None:
                headers["Content-Length"] = str(length)
            start(f"{answer.status.value} {answer.status.phrase}", list(headers.items()))
            if environ["REQUEST_METHOD"] == "HEAD":
                return
            try:
                yield from parts
            except Exception as error:  # the server closes the connection before the answer's end
                _failed(name, error)
                raise

    def _answer(self, environ: WSGIEnvironment, turn: ExitStack) -> Answer:
        try:
            request = self._request(environ)
            if (quick := self._site.quick(request)) is not None:
                return quick
            self._take(turn)
            return self._site.page(request)
        except NotServed as error:
            return error.answer
        except UserError as error:
            return Answer(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        except EosError as error:
            return Answer(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": str(error)})
        except Exception as error:
            return _failed(environ["PATH_INFO"], error)

    def _take(self, turn: ExitStack) -> None:
        if not self._turns.acquire(blocking=False):
            busy = f"{self._site.at_once.value} requests are being answered; ask again"
            raise NotServed(HTTPStatus.SERVICE_UNAVAILABLE, busy)
        turn.callback(self._turns.release)

    def _request(self, environ: WSGIEnvironment) -> Request:
        site, method = self._site, environ["REQUEST_METHOD"]
        if method not in site.methods:
            accepted = " and ".join(site.methods)
            raise NotServed(
                HTTPStatus.NOT_IMPLEMENTED, f"Unsupported method {method!r:.40}; only {accepted}"
            )
        host = environ.get("HTTP_HOST", "")
        if not is_accepted_host(host, site.hosts):
            raise NotServed(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"this process does not go by {host!r:.300}; ask by an IP address, or add the name "
                f"to {site.hosts_setting}",
            )
        path = environ["PATH_INFO"].encode("latin-1").decode("utf-8", "replace")
        body = environ["wsgi.input"].read().decode("utf-8", "replace") if method == "POST" else ""
        headers = {
            name.removeprefix("HTTP_").replace("_", "-").lower(): value
            for name, value in environ.items()
            if name.startswith("HTTP_")
        }
        return Request(
            path.removeprefix("/").split("/"),
            _fields(environ["QUERY_STRING"]),
            method,
            headers,
            _fields(body),
        )


def _fields(text: str) -> dict[str, str]:
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS.value))
    except ValueError:
        many = f"the request has more than {FIELDS.value} fields; send fewer"
        raise NotServed(HTTPStatus.BAD_REQUEST, many) from None


def _parts_of(answer: Answer) -> tuple[Iterator[bytes], int | None]:
    """Return an answer's bytes in parts, and their number; None: it is not known before."""
    content: Any = answer.content
    if isinstance(content, Streamed):
        return content.parts, None
    encoded = content.content if isinstance(content, Text) else as_json(content) + b"\n"
    starts = range(0, len(encoded), _PART)
    return (encoded[start : start + _PART] for start in starts), len(encoded)


def _failed(path: str, error: Exception) -> Answer:
    """Log an unexpected error of a page, and return its answer."""
    structlog.get_logger("eosframework.http").error("http_failed", path=path, exc_info=error)
    return Answer(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": f"{type(error).__name__}: {error}"})


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason that a process is not ready.

    Args:
        code: a word for programs.
        message: the state, and the next step for an operator.
    """

    code: str
    message: str


class Health:
    """The health of a process; its main thread, which creates this, reports its turns.

    Args:
        longest_turn_seconds: time without a turn after which the process is not ready.
        stuck_seconds: time without a turn after which the process is not live.
        clock: in seconds; the watchdog's, so that both agree.
    """

    def __init__(
        self,
        longest_turn_seconds: float,
        stuck_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._longest_turn_seconds = longest_turn_seconds
        self._stuck_seconds = stuck_seconds
        self._reasons: Sequence[Reason] = ()
        self._clock = clock
        self._began = clock()
        self._last: float | None = None
        self._thread = threading.get_ident()

    def turn(self, reasons: Sequence[Reason]) -> None:
        """Note a turn of the main thread and the reasons that the process is not ready."""
        self._reasons = reasons
        self._last = self._clock()

    @property
    def turn_age_seconds(self) -> float:
        """Seconds since the main thread's last turn."""
        return self._clock() - (self._began if self._last is None else self._last)

    def reasons(self) -> list[Reason]:
        """Return the reasons that the process is not ready; empty: it is ready."""
        age = self.turn_age_seconds
        if age > self._longest_turn_seconds:
            return [
                Reason(
                    "stuck",
                    f"the last turn was {age:.0f} s ago; a broker or a database does not answer, "
                    f"or a function does not return: the main thread waits in {self._place()}",
                )
            ]
        if self._last is None:
            return [Reason("starting", "no turn yet: it joins its group, or checks its database")]
        return list(self._reasons)

    def livez(self, request: Request) -> Answer:
        """Answer for `/livez`."""
        age = round(self.turn_age_seconds, 3)
        if age > self._stuck_seconds:
            message = (
                f"the last turn was {age:.0f} s ago, longer than all timeouts together "
                f"({self._stuck_seconds:g} s): the main thread waits in {self._place()}. Restart "
                f"the process; its next owners resume after its last commit"
            )
            reasons = [Reason("stuck", message)]
        else:
            reasons = []
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        limit = self._stuck_seconds
        return _answer(status, reasons, turn_seconds_ago=age, limit_seconds=limit)

    def readyz(self, request: Request) -> Answer:
        """Answer for `/readyz`."""
        reasons = self.reasons()
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        return _answer(status, reasons)

    def _place(self) -> str:
        return place_of(self._thread)


def _answer(status: HTTPStatus, reasons: Sequence[Reason], **more: float) -> Answer:
    shown = [asdict(reason) for reason in reasons]
    return Answer(status, {"ok": status is HTTPStatus.OK, "reasons": shown, **more})
