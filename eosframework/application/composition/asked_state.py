"""The committed rows of a key, as a worker answers over HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from eosframework.application.composition.application_status import ask
from eosframework.errors import ConfigurationError
from eosframework.records import moment
from eosframework.state.query import as_json


def asked_for_key(address: str, store: str, key: str) -> dict[str, Any]:
    """Return the answer of any worker for a key.

    Args:
        address: HTTP address of the worker, as HOST:PORT.
        store: its name.
        key: as text; see `key_of`.

    Raises:
        ConfigurationError: there is no answer, or no such key.
    """
    status, answer = ask(address, f"/state/{quote(store, safe='')}/{quote(key, safe='')}")
    if status != HTTPStatus.OK:
        raise ConfigurationError(f"--ask {address!r}: {answer.get('error', f'status {status}')}")
    return answer


def asked_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield the rows of an answer as text."""
    key, partition = answer["key"], answer["partition"]
    shown = key if isinstance(key, str) else as_json(key).decode()
    for row in answer["found"]:
        value = as_json(row["value"]).decode()
        yield f"{shown}  {value}  {moment(row['timestamp'])}  partition {partition}"
    if answer["more"]:
        yield "there are more"
