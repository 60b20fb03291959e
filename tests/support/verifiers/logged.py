"""What a process has logged so far."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any


def logged(log: str) -> Iterator[dict[str, Any]]:
    """Give the events of a log in JSON.

    A line that crosses a page of the file is seen half written for a moment, and for ever where
    its process was killed then: it is no event.
    """
    for line in log.splitlines():
        if line.startswith("{"):
            with suppress(json.JSONDecodeError):
                yield json.loads(line)
