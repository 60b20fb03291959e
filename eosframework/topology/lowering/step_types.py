"""The types of keys and values as the annotations of the steps' functions say them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from eosframework.errors import TopologyError
from eosframework.records import Record
from eosframework.serialization.annotations import (
    UNKNOWN,
    element_of,
    is_known,
    pair_of,
    returned_type,
    stripped,
    type_name,
)
from eosframework.serialization.serdes import Serde, serde_of, type_of
from eosframework.topology.spec.loaded import LoadedApp
from eosframework.topology.spec.step_spec import StepSpec


@dataclass(frozen=True, slots=True)
class Made:
    """Keys or values of which the annotation of a function says the type.

    Args:
        serde: its name; None: there is none, for the reason in `problem`.
        type: as annotated, without None.
        function: reference to the function.
        problem: why it has no serde.
    """

    serde: str | None
    type: Any
    function: str
    problem: str = ""

    def contradicts(self, declared: Any) -> bool:
        """Return whether values of the type cannot be of the type of a declared serde."""
        if declared is None or not isinstance(declared, type) or not isinstance(self.type, type):
            return False
        loses_fields = hasattr(declared, "model_fields") and self.type is not declared
        is_number = declared is float and self.type is int
        return loses_fields or not (is_number or issubclass(self.type, declared))

    def __str__(self) -> str:
        return f"{self.function} returns {type_name(self.type)}"


class StepTypes:
    """Reads the annotations of functions; `app` has the serdes of the types that it found.

    Args:
        app: with the functions.
    """

    def __init__(self, app: LoadedApp) -> None:
        self._objects = dict(app.objects)
        self.app = replace(app, objects=self._objects)

    def value(self, step: StepSpec, before: str) -> Made | None:
        """Return what a step makes of a value; None: nothing says it.

        Args:
            step: that gives records other values.
            before: name of the serde of the values that it gets.
        """
        match step.operator:
            case "map_values":
                return self._made(step.function, before)
            case "flat_map_values":
                return self._made(step.function, before, element_of)
            case "map":
                return self._made(step.function, before, _value_of)
            case "flat_map" | "process":
                return self._made(step.function, before, _value_in)
            case "join" if step.join is not None:
                return self._made(step.join.by, before)
            case _:
                return None

    def key(self, step: StepSpec, before: str) -> Made | None:
        """Return what a step makes of a key; None: nothing says it, or it keeps the key."""
        match step.operator:
            case "select_key" | "group_by":
                return self._made(step.function, before)
            case "map":
                return self._made(step.function, before, _key_of)
            case "flat_map" | "process":
                return self._made(step.function, before, _key_in)
            case _:
                return None

    def aggregate(self, step: StepSpec) -> Made | None:
        """Return what an aggregate keeps for each key; None: nothing says it."""
        declared: Any = getattr(step, step.operator)
        functions = [getattr(declared, name, None) for name in ("of", "add", "initial")]
        found = (self._made(function, "json") for function in functions if function is not None)
        return next((made for made in found if made is not None), None)

    def _made(
        self, function: str, before: str, part: Callable[[Any], Any] = stripped
    ) -> Made | None:
        try:
            found = stripped(part(returned_type(self.app.find(function))))
        except TopologyError as error:
            return Made(None, UNKNOWN, function, str(error))
        if not is_known(found):
            return None
        if type_of(self.app.serde(before)) is found:
            return Made(before, found, function)
        try:
            serde = serde_of(found)
        except TopologyError as error:
            return Made(None, found, function, str(error))
        return Made(self._named(serde), found, function)

    def _named(self, serde: Serde) -> str:
        """Return a name for a serde that no other of this topology has."""
        name, count = serde.name, 1
        while self._objects.setdefault(name, serde) != serde:
            count += 1
            name = f"{serde.name}#{count}"
        return name


def _pair_in(annotation: Any) -> tuple[Any, Any]:
    """Return the types of key and value of the records that a function returns, one or several."""
    each = pair_of(element_of(annotation), Record)
    return pair_of(annotation, Record) if each == (UNKNOWN, UNKNOWN) else each


def _key_of(annotation: Any) -> Any:
    return pair_of(annotation, Record)[0]


def _value_of(annotation: Any) -> Any:
    return pair_of(annotation, Record)[1]


def _key_in(annotation: Any) -> Any:
    return _pair_in(annotation)[0]


def _value_in(annotation: Any) -> Any:
    return _pair_in(annotation)[1]
