"""Arguments of the DSL's methods: windows, options of aggregates and stores, error policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypedDict

from pydantic import ValidationError

from eosframework.errors import TopologyError
from eosframework.serialization.serdes import SerdeLike
from eosframework.topology.dsl.recorded_calls import BinaryFunction, Recording, caller
from eosframework.topology.spec.fields import DurationLike
from eosframework.topology.spec.topology_spec import DeadLetter, check_policy
from eosframework.topology.spec.window_spec import WindowSpec

OnErrorLike = Literal["fail", "skip"] | DeadLetter


class AggregateOptions(TypedDict, total=False):
    """Options of every aggregate."""

    store: str
    """Name of the store. Default: the name of the source, or of the stream or `group_by` that was
    named last, with the operator's: `orders.sum`."""
    value: SerdeLike
    """Serde of the aggregate, in the store and in the results. Default: json."""
    emit: Literal["each", "commit", "close"]
    """When results are sent to the next step. each (the default): with every change; commit: the
    last value of each key or window in a transaction; close: each window once, when it accepts no
    more records."""
    order: Literal["time", "arrival"]
    """The order of records after a repartition topic. time: that of a backfill, so the same input
    gives the same results; each record waits until stream time has passed it. arrival: at once.
    Default: time for sessions and sliding windows with emit="close", else arrival."""
    ttl: DurationLike
    """Lifetime of a value, in stream time. Default: forever."""
    version: int
    """Version of the format of the stored values. Raise it with a change that cannot read older
    values."""
    upgrade: BinaryFunction
    """Takes the bytes of an older value and its version; returns the value of this version."""


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
    upgrade: BinaryFunction
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


def dead_letter(
    topic: str, *, retry: Sequence[DurationLike] | DurationLike = (), replay: bool = False
) -> DeadLetter:
    """Return the policy that writes a record that cannot be processed to `topic`.

    Args:
        topic: for the record, written in the same transaction as its offset.
        retry: delays before each further attempt, for example `["10s", "1m"]`; later records do
            not wait. The record becomes a dead letter when the last attempt has failed.
        replay: create an internal topic through which dead letters are replayed; with `retry`
            there is one in any case.

    Raises:
        TopologyError: a delay is not a duration.
    """
    policy: dict[str, Any] = {"dead_letter": topic}
    if retry:
        policy["retry"] = (retry,) if isinstance(retry, str | timedelta) else tuple(retry)
    if replay:
        policy["replay"] = True
    try:
        return DeadLetter.model_validate(check_policy(policy))
    except ValueError as error:
        raise TopologyError(f"{caller()}: dead_letter: {error}") from error


def policy_of(policy: Any) -> OnErrorLike | None:
    """Return a policy in the form of the spec.

    Raises:
        TopologyError: it is not a policy.
    """
    if policy is None or isinstance(policy, DeadLetter) or policy in ("fail", "skip"):
        return policy
    raise TopologyError(
        f"{caller()}: on_error was given {policy!r}; expected 'fail', 'skip' or dead_letter(topic)"
    )


def tumbling(size: DurationLike | None = None, **parts: float) -> WindowSpec:
    """Return windows of one size, one after the other.

    Args:
        size: a timedelta, or as in `"1h"`.
        parts: arguments of a timedelta, instead of a size: `hours=1`.
    """
    return window_of({"tumbling": _duration(size, parts)})


def hopping(size: DurationLike | None = None, *, every: DurationLike, **parts: float) -> WindowSpec:
    """Return windows of one size that overlap.

    Args:
        size: a timedelta, or as in `"1h"`.
        every: from the start of one window to the start of the next.
        parts: arguments of a timedelta, instead of a size: `hours=1`.
    """
    return window_of({"hopping": _duration(size, parts), "every": every})


def sliding(size: DurationLike | None = None, **parts: float) -> WindowSpec:
    """Return a window for every set of records at most `size` apart, as in Kafka Streams.

    Args:
        size: a timedelta, or as in `"5m"`.
        parts: arguments of a timedelta, instead of a size: `minutes=5`.
    """
    return window_of({"sliding": _duration(size, parts)})


def session(gap: DurationLike | None = None, **parts: float) -> WindowSpec:
    """Return windows of records that are at most `gap` apart from one to the next.

    Args:
        gap: a timedelta, or as in `"30m"`.
        parts: arguments of a timedelta, instead of a gap: `minutes=30`.
    """
    return window_of({"session": _duration(gap, parts)})


def window_of(declared: Mapping[str, Any]) -> WindowSpec:
    """Return windows, given as in a topology file.

    Raises:
        TopologyError: the options contradict each other.
    """
    try:
        return WindowSpec.model_validate(declared)
    except ValidationError as error:
        detail = error.errors()[0]
        where = ".".join(str(part) for part in detail["loc"])
        raise TopologyError(f"{caller()}: {where or 'window'}: {detail['msg']}") from error


def _duration(size: DurationLike | None, parts: Mapping[str, float]) -> DurationLike:
    if (size is None) == (not parts):
        raise TopologyError(
            f"{caller()}: a window has either a size, as in '1h', or parts of one, as in hours=1"
        )
    return timedelta(**parts) if size is None else size
