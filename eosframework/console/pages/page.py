"""Pages, and what their functions are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from eosframework.console.application import Application
from eosframework.console.backfills import Backfills
from eosframework.console.jobs import Jobs


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
