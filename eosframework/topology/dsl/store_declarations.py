"""Stores of `process` in Python."""

from __future__ import annotations

from typing import Any, TypedDict

from eosframework.serialization.serdes import SerdeLike
from eosframework.topology.dsl.recorded_calls import FunctionLike, Recording
from eosframework.topology.spec.durations import DurationLike


class StoreOptions(TypedDict, total=False):
    """What can be said of a store of `process`."""

    value: SerdeLike
    """Serde of the values. Default: json."""
    key: SerdeLike
    """Serde of the keys. Default: that of the records."""
    ttl: DurationLike
    """How long a value counts, by the time of the stream. Default: for ever."""
    version: int
    """Of the format of the values; raise it with a change that older values do not fit."""
    upgrade: FunctionLike
    """Takes the bytes of an older value and its version; returns the value of this version."""


def declared_store(recording: Recording, store: SerdeLike | StoreOptions) -> dict[str, Any]:
    """Return what a topology file would say of a store."""
    if not isinstance(store, dict):
        return {"value": recording.serde(store)}
    declared: dict[str, Any] = {**store}
    for name in ("value", "key"):
        if name in declared:
            declared[name] = recording.serde(declared[name])
    if "upgrade" in declared:
        declared["upgrade"] = recording.reference("upgrade", declared["upgrade"])
    return declared
