"""Functions that lack a `return`."""

from __future__ import annotations

import dis
import inspect
from types import FunctionType
from typing import Any

_NOT_A_VALUE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def returns_nothing(function: Any) -> bool:
    """Return whether a function declared with `def` returns None whatever it is given.

    One that is annotated with None says so, and a lambda shows its result.
    """
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>":
        return False
    if "return" in function.__annotations__ or function.__code__.co_flags & _NOT_A_VALUE:
        return False
    steps = [one for one in dis.get_instructions(function) if one.opname not in ("CACHE", "NOP")]
    ends = [n for n, step in enumerate(steps) if step.opname in ("RETURN_VALUE", "RETURN_CONST")]
    return bool(ends) and all(_returns_none(steps, end) for end in ends)


def _returns_none(steps: list[dis.Instruction], end: int) -> bool:
    step = steps[end] if steps[end].opname == "RETURN_CONST" else steps[end - 1]
    return step.opname in ("RETURN_CONST", "LOAD_CONST") and step.argval is None
