"""The stores of a `process` step."""

from __future__ import annotations

from typing import Any, TypedDict

from eosframework.serialization.serdes import SerdeLike
from eosframework.topology.dsl.recorded_calls import FunctionLike, Recording
from eosframework.topology.spec.durations import DurationLike


class StoreOptions(TypedDict, total=False):
    """Options of a store of `process`."""

    value: SerdeLike
    """Serde of the values. Default: json."""
    key: SerdeLike
    """Serde of the keys. Default: the serde of the records' keys."""
    ttl: DurationLike
    """Lifetime of a value, in stream time. Default: forever."""
    version: int
    """Version of the format of the values. Raise it with a change that cannot read older values."""
    upgrade: FunctionLike
    """Takes the bytes of an older value and its version; returns the value of this version."""


def declared_store(recording: Recording, store: SerdeLike | StoreOptions) -> dict[str, Any]:
    """Return a store in the form of a topology file."""
    if not isinstance(store, dict):
        return {"value": recording.serde(store)}
    declared: dict[str, Any] = {**store}
    for name in ("value", "key"):
        if name in declared:
            declared[name] = recording.serde(declared[name])
    if "upgrade" in declared:
        declared["upgrade"] = recording.reference("upgrade", declared["upgrade"])
    return declared
