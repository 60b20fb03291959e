"""The steps of a stream as a user wrote them: one operator each, with what it takes."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from eosframework.topology.declared import Declared
from eosframework.topology.join_spec import JoinSpec

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
    "join",
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


class KeyedSpec(Declared):
    """What all operators have in common that keep something for each key."""

    store: str | None = None
    """Name of the store. Default: that of the stream with that of the operator."""

    value: str | None = None
    """Serde of what is kept, which is also what goes on."""

    emit: Literal["each", "commit"] = "each"
    """What goes on: each, every change; commit, the last value of each key in a transaction."""

    version: int = Field(default=1, ge=1, le=255)
    """Of the format of what is kept; raise it with a change that older values do not fit."""

    upgrade: str | None = None
    """module:function that takes the bytes of an older value and its version, and returns the
    value of this version."""

    @property
    def functions(self) -> dict[str, str]:
        """References to the functions that values go through, by the names of their fields."""
        named = ((name, getattr(self, name)) for name in FUNCTION_FIELDS if hasattr(self, name))
        return {name: reference for name, reference in named if reference is not None}


FUNCTION_FIELDS = ("of", "initial", "add")


class CountSpec(KeyedSpec):
    """Count the records of each key."""


class OfSpec(KeyedSpec):
    """Fold what a function makes of each value."""

    of: str
    """module:function that takes the value."""


class ReduceSpec(KeyedSpec):
    """Fold the values of each key, from its first one on."""

    add: str
    """module:function that takes the aggregate and a value and returns the next aggregate."""


class AggregateSpec(ReduceSpec):
    """Fold the values of each key, from an initial aggregate on."""

    initial: str
    """module:function that takes nothing and returns the first aggregate."""


def _by(group: Any) -> Any:
    return {"by": group} if isinstance(group, str) else group


def _of(fold: Any) -> Any:
    return {"of": fold} if isinstance(fold, str) else fold


def _add(fold: Any) -> Any:
    return {"add": fold} if isinstance(fold, str) else fold


KEYED = ("count", "sum", "min", "max", "reduce", "aggregate")
"""Operators that keep something for each key."""


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

    process: str | None = None
    """Call the function with the whole record and go on with what it gives, if anything."""

    group_by: Annotated[GroupSpec, BeforeValidator(_by)] | None = None
    """Give records a new key and take those of one key together: module:function of the whole
    record, or a map."""

    count: CountSpec | None = None
    """Count the records of each key."""

    sum: Annotated[OfSpec, BeforeValidator(_of)] | None = None
    """Add up what a function makes of each value."""

    min: Annotated[OfSpec, BeforeValidator(_of)] | None = None
    """Keep the smallest of what a function makes of each value."""

    max: Annotated[OfSpec, BeforeValidator(_of)] | None = None
    """Keep the greatest of what a function makes of each value."""

    reduce: Annotated[ReduceSpec, BeforeValidator(_add)] | None = None
    """Fold the values of each key with a function, from the first value on."""

    aggregate: AggregateSpec | None = None
    """Fold the values of each key with a function, from an initial aggregate on."""

    join: JoinSpec | None = None
    """Put each record together with the row of a table, or with records of another stream."""

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
            case JoinSpec():
                return f"{declared.with_}, {declared.by}"
            case KeyedSpec():
                return ", ".join(declared.functions.values())
            case _:
                return declared

    @property
    def keyed(self) -> KeyedSpec | None:
        """What it declares, if it keeps something for each key."""
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
            case JoinSpec():
                return {(operator, name): f for name, f in declared.functions.items()}
            case KeyedSpec():
                found = {(operator, name): f for name, f in declared.functions.items()}
                upgrade = (
                    {} if declared.upgrade is None else {(operator, "upgrade"): declared.upgrade}
                )
                return {**found, **upgrade}
            case _:
                return {(operator,): declared}
