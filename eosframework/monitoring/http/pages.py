"""A page is a path of the server and what answers for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for.

    Args:
        path: the parts of the path behind the page's own, decoded.
        options: what stands behind the question mark.
    """

    path: Sequence[str]
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered.

    Args:
        content: becomes JSON, or a text of its own type.
    """

    status: HTTPStatus
    content: Mapping[str, Any] | Text


@dataclass(frozen=True, slots=True)
class Text:
    """What is no JSON."""

    content: bytes
    content_type: str


class NotServed(Exception):
    """There is no answer but a status and what is wrong."""

    def __init__(self, status: HTTPStatus, message: str, **more: Any) -> None:
        super().__init__(message)
        self.answer = Answer(status, {"error": message, **more})


Page = Callable[[Request], Answer]
"""Answers on a thread of its own.

Raises:
    NotServed: with the answer.
    UserError: what was asked for cannot be.
"""

Pages = Mapping[str, Page]
"""By the first part of their paths."""
