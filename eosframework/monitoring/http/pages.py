"""Pages of an HTTP server: functions from a request to an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any


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


class NotServed(Exception):
    """A request that is answered with an error status and a message."""

    def __init__(self, status: HTTPStatus, message: str, **more: Any) -> None:
        super().__init__(message)
        self.answer = Answer(status, {"error": message, **more})


Page = Callable[[Request], Answer]
"""Answers a request, on a thread of its own.

Raises:
    NotServed: contains the answer.
    UserError: the request is invalid.
"""

Pages = Mapping[str, Page]
"""Pages by the first part of their paths."""
