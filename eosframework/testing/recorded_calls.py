"""The calls of a run of the test driver, kept in a file: a later run needs no service.

RL1. a recording has, for each step and value, the outcomes of the calls in their order
RL2. a replay gives them in that order, calls no function and opens no resource
RL3. it gives the last one again for further calls, as after a crash
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from eosframework.errors import ConfigurationError, raised_by_functions
from eosframework.topology.graph.graph import Step

Outcome = dict[str, Any]
"""The value of a call, with its `result` or its `error`."""


class RecordedCallError(RuntimeError):
    """The error of a call when it was recorded."""


class RecordedCalls:
    """The calls of a run, which are recorded or replayed.

    Args:
        file: a JSON file: a list of outcomes for each step.
        replays: read it; else it is written.

    Attributes:
        problem: the reason why a call could not be recorded or replayed; None: there is none.

    Raises:
        ConfigurationError: there is no recording to replay.
    """

    def __init__(self, file: Path, *, replays: bool) -> None:
        self.replays = replays
        self.problem: ConfigurationError | None = None
        self._file = file
        self._outcomes: dict[str, list[Outcome]] = _read(file) if replays else {}
        self._left: dict[tuple[str, str], deque[Outcome]] = {}
        for step, outcomes in self._outcomes.items():
            for outcome in outcomes:
                key = step, _key(outcome["value"])
                self._left.setdefault(key, deque()).append(outcome)

    def function_of(self, step: Step) -> Callable[..., Any]:
        """Return the function that is called in place of a step's own."""
        adapter = _adapter_of(step.function.call)

        async def record(value: Any, **resources: Any) -> Any:
            given = self._plain(step, "value", value)
            try:
                result = await step.function.call(value, **resources)
            except raised_by_functions() as error:
                text = f"{type(error).__name__}: {error}"
                self._outcomes.setdefault(step.name, []).append({"value": given, "error": text})
                raise
            plain = self._plain(step, "result", result)
            if self.problem is None and adapter.validate_python(plain) != result:
                self._refuse(
                    f"step {step.name!r} has a result of type {type(result).__name__}, which a "
                    f"recording gives back as another value; annotate the function's result"
                )
            self._outcomes.setdefault(step.name, []).append({"value": given, "result": plain})
            return result

        async def replay(value: Any) -> Any:
            key = step.name, _key(self._plain(step, "value", value))
            left = self._left.get(key)
            if not left:
                raise self._refuse(
                    f"{self._file} has no call of step {step.name!r} with value {key[1]:.200}; "
                    f"record it again"
                )
            outcome = left.popleft() if len(left) > 1 else left[0]
            if "error" in outcome:
                raise RecordedCallError(outcome["error"])
            return adapter.validate_python(outcome["result"])

        return replay if self.replays else record

    def save(self) -> None:
        """Write what was recorded.

        Raises:
            ConfigurationError: a call could not be recorded or replayed.
        """
        if self.problem is not None:
            raise self.problem
        if not self.replays:
            text = json.dumps(self._outcomes, indent=1, sort_keys=True)
            self._file.write_text(f"{text}\n", encoding="utf-8")

    def _plain(self, step: Step, what: str, value: Any) -> Any:
        try:
            return to_jsonable_python(value)
        except (PydanticSerializationError, ValueError) as error:
            raise self._refuse(
                f"the {what} of a call of step {step.name!r} cannot be recorded as JSON: {error}"
            ) from error

    def _refuse(self, message: str) -> ConfigurationError:
        self.problem = self.problem or ConfigurationError(message)
        return self.problem


def _adapter_of(function: Callable[..., Any]) -> TypeAdapter[Any]:
    try:
        returned = get_type_hints(function).get("return", Any)
        return TypeAdapter(returned)
    except raised_by_functions():  # Names that only a type checker knows.
        return TypeAdapter(Any)


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _read(file: Path) -> dict[str, list[Outcome]]:
    adapter = TypeAdapter(dict[str, list[Outcome]])
    try:
        return adapter.validate_json(file.read_bytes())
    except FileNotFoundError:
        raise ConfigurationError(
            f"there is no recording {file}; run the test once with record={str(file)!r}"
        ) from None
    except ValidationError as error:
        raise ConfigurationError(
            f"{file} is no recording of calls ({error.error_count()} errors); record it again"
        ) from error
