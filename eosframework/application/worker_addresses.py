"""HTTP addresses of workers: entries of the control topic.

    worker/INSTANCE   {"http": "HOST:PORT", "at": …}

A worker writes its entry at each start. An entry says where a worker listens and nothing about what
it owns: only the group's coordinator does. So an entry of a worker that is no member is not used,
and the next worker that starts removes it after `KEPT_SECONDS`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping
from typing import Any, cast

from eosframework.application.control_topic import WORKER, ControlState, ControlTopic

KEPT_SECONDS = 86_400.0
"""A worker that starts writes its entry before it is a member, so its former one is kept for a
time: removing an entry that was just written would hide the worker until its next start."""

_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/@?#\[\]]+):[0-9]{1,5}")


def announce(
    control_topic: ControlTopic, instance: str, address: str, members: Collection[str]
) -> None:
    """Write the address of a worker, and remove old ones of workers that are gone.

    Args:
        control_topic: of the application.
        instance: name of the worker.
        address: as `HOST:PORT`, at which other workers reach it.
        members: instance names of the group's members.

    Raises:
        EosError: it was not acknowledged; it may arrive later.
    """
    now = round(time.time() * 1000)
    entries: dict[str, Any] = {
        key: None
        for key, value in control_topic.refresh().entries.items()
        if (name := _instance(key)) is not None
        and name not in members
        and now - _written_at(value) > KEPT_SECONDS * 1000
    }
    entries[f"{WORKER}/{instance}"] = {"http": address, "at": now}
    control_topic.write(entries)


def worker_addresses(control: ControlState) -> dict[str, str]:
    """Return the announced addresses by instance name.

    An entry that cannot be read counts as none: it is no state that a worker relies on.
    """
    found: dict[str, str] = {}
    for key, value in control.entries.items():
        instance, address = _instance(key), _fields(value).get("http")
        if instance is not None and isinstance(address, str) and _ADDRESS.fullmatch(address):
            found[instance] = address
    return found


def _instance(key: str) -> str | None:
    kind, _, instance = key.partition("/")
    return instance if kind == WORKER and instance else None


def _written_at(value: Any) -> int:
    at = _fields(value).get("at")
    return at if isinstance(at, int) else 0


def _fields(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
