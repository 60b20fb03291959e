"""The kinds of nodes, the functions of users in them, and the policies for records that fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Operator(StrEnum):
    """The operator of a step. The comment gives the function's signature."""

    FILTER = "filter"  # value -> bool
    MAP_VALUES = "map_values"  # value -> value
    FLAT_MAP_VALUES = "flat_map_values"  # value -> iterable of values
    PEEK = "peek"  # value -> ignored
    SELECT_KEY = "select_key"  # Record -> key
    MAP = "map"  # Record -> Record or (key, value)
    FLAT_MAP = "flat_map"  # Record -> iterable of Record or (key, value)
    PROCESS = "process"  # Record -> None or iterable of Record or (key, value)
    MAP_BATCH = "map_batch"  # RecordBatch -> RecordBatch of as many rows
    FILTER_BATCH = "filter_batch"  # RecordBatch -> array of booleans, one for each row
    BRANCH = "branch"  # value -> index into Step.branches, or None: the record is dropped


class FoldKind(StrEnum):
    """The way values become an aggregate. The comment gives the functions it takes, by name."""

    COUNT = "count"
    SUM = "sum"  # of: value -> number
    MIN = "min"  # of: value -> what is compared
    MAX = "max"  # of: value -> what is compared
    REDUCE = "reduce"  # add: (aggregate, value) -> aggregate
    AGGREGATE = "aggregate"  # initial: () -> aggregate; add: (aggregate, value) -> aggregate;
    # of session windows also merge: (aggregate, aggregate) -> aggregate
    DEDUPLICATE = "deduplicate"  # by: value -> equal for duplicates; the record stays unchanged


class Policy(StrEnum):
    """The treatment of a record that cannot be processed."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True)
class OnError:
    """A policy; `topic` is the dead-letter topic where the policy is `dead_letter`.

    Args:
        retry_ms: delays before each further attempt.
        replay: there is an internal topic for replayed dead letters.
    """

    policy: Policy = Policy.FAIL
    topic: str | None = None
    retry_ms: tuple[int, ...] = ()
    replay: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    """A user's function with its name in messages (`flights:is_late`)."""

    name: str
    call: Callable[..., Any]


class JoinKind(StrEnum):
    """The kind of a join: which sides have results even without a match."""

    INNER = "inner"
    LEFT = "left"
    OUTER = "outer"

    @property
    def needs(self) -> tuple[bool, bool]:
        """True, for left and right, if a result needs that side."""
        return self is not JoinKind.OUTER, self is JoinKind.INNER
