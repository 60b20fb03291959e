"""Functions, a model and small topologies that the tests of this folder refer to by name."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterable
from typing import Any

from pydantic import BaseModel

from eosframework.topology.loader import read_yaml
from eosframework.topology.spec.loaded import LoadedApp

HERE = __name__
NOT_CALLABLE = 5


class Flight(BaseModel):
    delay: int


def is_late(value: Any) -> bool:
    return value["delay"] > 15


def is_early(value: Any) -> bool:
    return value["delay"] < 0


def shape(value: Any = None, *_others: Any) -> Any:
    return {"shaped": value}


def as_map(value: Any) -> dict[str, int]:
    return {"delay": value["delay"]}


def as_maps(value: Any) -> Iterable[dict[str, int]]:
    return [as_map(value)]


def as_flight(value: Any) -> Flight:
    return Flight.model_validate(value)


def departure(value: dict[str, Any]) -> int:
    return value["time"]


def by_carrier(record: Any) -> str:
    return f"flights.{record.key}"


async def is_late_soon(value: dict[str, Any]) -> bool:
    return is_late(value)


async def all_that_are_late(value: Any) -> AsyncIterator[Any]:
    yield value


class AsynchronousCheck:
    async def __call__(self, value: Any) -> bool:
        return True


asynchronous_check = AsynchronousCheck()
partly_applied = functools.partial(is_late_soon)


def read(text: str) -> LoadedApp:
    """Read YAML in which `m:` stands for this module."""
    return read_yaml(text.replace('"m:', f'"{HERE}:'), "app.yaml")
