"""The steps of a stream as a user wrote them: one operator each, with what it takes."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from eosframework.topology.spec.batch_spec import BatchSpec
from eosframework.topology.spec.declared import Declared
from eosframework.topology.spec.join_spec import JoinSpec
from eosframework.topology.spec.keyed_spec import (
    AggregateSpec,
    CountSpec,
    DeduplicateSpec,
    KeyedSpec,
    OfSpec,
    ReduceSpec,
    StoredSpec,
)
from eosframework.topology.spec.process_spec import ProcessSpec

OPERATORS = (
    "filter",
    "map_values",
    "flat_map_values",
    "peek",
    "select_key",
    "map",
    "flat_map",
    "process",
    "group_by",
    "count",
    "sum",
    "min",
    "max",
    "reduce",
    "aggregate",
    "deduplicate",
    "join",
    "map_batch",
    "filter_batch",
)
"""Operators that a step can name."""

SIDE_EFFECTS = ("peek", "process")
"""Operators that do something even where nothing follows them."""


class GroupSpec(Declared):
    """Give records a new key, and take those of one key together into one task.

    They go through a topic of the application's own.
    """

    by: str
    """module:function that takes the whole record and returns the new key."""

    key: str | None = None
    """Serde of the new key. Default: that of the key before."""

    value: str | None = None
    """Serde of the value on the way. Default: that of the source; json where a step made it."""

    partitions: int | None = Field(default=None, ge=1)
    """Partitions of the topic on the way. Default: as many as the task's source has."""

    name: str | None = None
    """What the topic on the way is named after. Default: the stream."""


def _by(group: Any) -> Any:
    return {"by": group} if isinstance(group, str) else group


def _call(batch: Any) -> Any:
    return {"call": batch} if isinstance(batch, str) else batch


def _of(fold: Any) -> Any:
    return {"of": fold} if isinstance(fold, str) else fold


def _add(fold: Any) -> Any:
    return {"add": fold} if isinstance(fold, str) else fold


def _within(step: Any) -> Any:
    return {"within": step} if isinstance(step, str | timedelta) else step


GroupLike = Annotated[GroupSpec, BeforeValidator(_by, json_schema_input_type=str | GroupSpec)]
OfLike = Annotated[OfSpec, BeforeValidator(_of, json_schema_input_type=str | OfSpec)]
ReduceLike = Annotated[ReduceSpec, BeforeValidator(_add, json_schema_input_type=str | ReduceSpec)]
DeduplicateLike = Annotated[
    DeduplicateSpec, BeforeValidator(_within, json_schema_input_type=str | DeduplicateSpec)
]
BatchLike = Annotated[BatchSpec, BeforeValidator(_call, json_schema_input_type=str | BatchSpec)]
"""Each may be said in one text, where nothing else is to be said."""


class StepSpec(Declared):
    """One operator with its function, as `filter: module:function`."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    filter: str | None = None
    """Keep the records for whose value the function is true."""

    map_values: str | None = None
    """Replace the value by what the function makes of it."""

    flat_map_values: str | None = None
    """Replace the record by one for each value that the function gives."""

    peek: str | None = None
    """Call the function with the value and go on with the record unchanged."""

    select_key: str | None = None
    """Replace the key by what the function makes of the whole record."""

    map: str | None = None
    """Replace the record by what the function makes of it: a Record or (key, value)."""

    flat_map: str | None = None
    """Replace the record by each Record or (key, value) that the function gives."""

    process: str | ProcessSpec | None = None
    """Call the function with the whole record and go on with what it gives, if anything; or a map,
    for a function with stores and timers."""

    group_by: GroupLike | None = None
    """Give records a new key and take those of one key together: module:function of the whole
    record, or a map."""

    count: CountSpec | None = None
    """Count the records of each key."""

    sum: OfLike | None = None
    """Add up what a function makes of each value."""

    min: OfLike | None = None
    """Keep the smallest of what a function makes of each value."""

    max: OfLike | None = None
    """Keep the greatest of what a function makes of each value."""

    reduce: ReduceLike | None = None
    """Fold the values of each key with a function, from the first value on."""

    aggregate: AggregateSpec | None = None
    """Fold the values of each key with a function, from an initial aggregate on."""

    deduplicate: DeduplicateLike | None = None
    """Let the first record of each key within a time go on, and none of its repetitions."""

    join: JoinSpec | None = None
    """Put each record together with the row of a table, or with records of another stream."""

    map_batch: BatchLike | None = None
    """Replace the values of a batch of records by the columns that the function makes of theirs."""

    filter_batch: BatchLike | None = None
    """Keep the records of a batch for which the function's array of booleans is true."""

    @model_validator(mode="after")
    def _one_operator(self) -> Self:
        if len(self._given()) != 1:
            raise ValueError(
                f"a step names exactly one operator, this one {len(self._given())}; expected one "
                f"of {', '.join(OPERATORS)}, each as its own list item"
            )
        return self

    def _given(self) -> list[str]:
        return [name for name in OPERATORS if getattr(self, name) is not None]

    @property
    def operator(self) -> str:
        """Name of the operator."""
        return self._given()[0]

    @property
    def function(self) -> str:
        """Reference to the function; of a keyed operator what it goes by in messages."""
        declared = getattr(self, self.operator)
        match declared:
            case GroupSpec():
                return declared.by
            case ProcessSpec() | BatchSpec():
                return declared.call
            case JoinSpec():
                return f"{declared.with_}, {declared.by}"
            case StoredSpec():
                return ", ".join(declared.functions.values())
            case _:
                return declared

    @property
    def keyed(self) -> StoredSpec | None:
        """What it declares, if it keeps something for each key."""
        declared = getattr(self, self.operator)
        return declared if isinstance(declared, StoredSpec) else None

    @property
    def handler(self) -> ProcessSpec | None:
        """What it declares, if it is a function with stores or timers."""
        return self.process if isinstance(self.process, ProcessSpec) else None

    @property
    def batch(self) -> BatchSpec | None:
        """What it declares, if it works on batches of records."""
        return self.map_batch or self.filter_batch

    @property
    def needs_key(self) -> bool:
        """Whether the records of a key have to be in one task."""
        return self.keyed is not None or self.handler is not None

    @property
    def aggregates(self) -> KeyedSpec | None:
        """What it declares, if it folds the values of each key."""
        declared = getattr(self, self.operator)
        return declared if isinstance(declared, KeyedSpec) else None

    @property
    def functions(self) -> dict[tuple[str, ...], str]:
        """References to all its functions, by their place within the step."""
        operator = self.operator
        declared = getattr(self, operator)
        match declared:
            case GroupSpec():
                return {(operator, "by"): declared.by}
            case ProcessSpec():
                return {(operator, *place): f for place, f in declared.functions.items()}
            case BatchSpec():
                return {(operator, "call"): declared.call}
            case JoinSpec():
                return {(operator, name): f for name, f in declared.functions.items()}
            case StoredSpec():
                return {(operator, name): f for name, f in declared.all_functions.items()}
            case _:
                return {(operator,): declared}
