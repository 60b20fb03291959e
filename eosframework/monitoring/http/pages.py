"""Pages of the HTTP server: functions from a request to an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a page.

    Args:
        path: the decoded parts of the path after the page's name.
        options: the query's parameters.
    """

    path: Sequence[str]
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """A page's answer.

    Args:
        content: encoded as JSON unless it is a `Text`.
    """

    status: HTTPStatus
    content: Mapping[str, Any] | Text


@dataclass(frozen=True, slots=True)
class Text:
    """Content of a type other than JSON."""

    content: bytes
    content_type: str


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
