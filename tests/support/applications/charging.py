"""The functions of topologies that charge once."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.request
from typing import Any

from eosframework import Effect

Value = dict[str, int]


def _post(path: str, asked: dict[str, Any]) -> dict[str, Any]:
    url = os.environ["EOS_TEST_SERVICE"] + path
    request = urllib.request.Request(url, json.dumps(asked).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read())


def _asked(value: Value, effect: Effect) -> dict[str, Any]:
    return {"n": value["n"], "key": effect.key, "attempt": effect.attempt}


def charge(value: Value, effect: Effect) -> dict[str, Any]:
    """Charge, and return twice the number."""
    return _post("/charge", _asked(value, effect))


async def charge_async(value: Value, effect: Effect) -> dict[str, Any]:
    """Do the same in a coroutine."""
    return await asyncio.to_thread(charge, value, effect)


async def charge_without_journal(value: Value) -> dict[str, Any]:
    """Charge under the key of the record, without a journal."""
    effect = Effect(str(value["n"]), 1)
    return await asyncio.to_thread(charge, value, effect)


def look_up(value: Value, effect: Effect) -> dict[str, Any] | None:
    """Return the result of a charge; None: there is none."""
    found = _post("/look_up", _asked(value, effect))
    return {"n": 2 * value["n"]} if found["made"] else None


def look_up_nowhere(value: Value, effect: Effect) -> None:
    raise ConnectionRefusedError("nothing listens there")


def charge_and_return_a_set(value: Value, effect: Effect) -> Any:
    charge(value, effect)
    return {value["n"]}


def charge_and_return_much(value: Value, effect: Effect) -> Any:
    charge(value, effect)
    return "x" * 10_000_000


def charge_and_fail_at_thirteen(value: Value, effect: Effect) -> dict[str, Any]:
    """Charge, and lose the answer of the first attempt at record 13."""
    charged = charge(value, effect)
    if value["n"] == 13 and effect.attempt == 1:
        raise ConnectionResetError("the connection broke before the answer")
    return charged
