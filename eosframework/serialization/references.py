"""References to user code, `module:attribute`: from a text to the object it names, and back."""

from __future__ import annotations

import difflib
import pkgutil
import sys
import traceback
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from eosframework.errors import TopologyError, raised_by_functions


def make_importable(*directories: Path) -> None:
    """Append directories to the module search path.

    They come after the installed packages: a file `psycopg.py` in the current directory must not
    shadow the library.
    """
    for directory in directories:
        if str(directory) not in sys.path:
            sys.path.append(str(directory))


def find(reference: str) -> Any:
    """Return the object that `module:attribute` names, importing the module.

    Raises:
        TopologyError: names the missing module or attribute and the closest existing one, or
            the error that the module raised when it was imported.
    """
    module_name, colon, attribute = reference.partition(":")
    if not colon or not attribute or not all(module_name.split(".")):
        raise TopologyError(
            f"{reference!r} is not MODULE:ATTRIBUTE, for example 'flights:is_late' for the "
            f"function is_late in flights.py"
        )
    found: Any = _import(module_name, reference)
    for name in attribute.split("."):
        if not hasattr(found, name):
            where = "module" if isinstance(found, ModuleType) else "object"
            raise TopologyError(
                f"{reference!r} cannot be imported: {where} "
                f"{getattr(found, '__name__', module_name)!r} has no attribute "
                f"{name!r}{closest(name, dir(found))}"
            )
        found = getattr(found, name)
    return found


def name_of(target: Any) -> str | None:
    """Return the `module:attribute` under which `target` can be imported, or None."""
    module_name = getattr(target, "__module__", None)
    qualified = getattr(target, "__qualname__", None)
    if not module_name or not qualified:
        return None
    found: Any = sys.modules.get(module_name)
    for name in qualified.split("."):
        found = getattr(found, name, None)
    same = found is target or (found is not None and found == target)
    return f"{module_name}:{qualified}" if same else None


def place_of(target: Any) -> str:
    """Return a display name for a function that cannot be imported: its name with file and line."""
    name = getattr(target, "__qualname__", None) or type(target).__qualname__
    short = name.rpartition("<locals>.")[2]
    code = getattr(target, "__code__", None)
    if not isinstance(code, CodeType):
        return short
    return f"{short} at {code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}"


def closest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the known name most similar to `name`, or ""."""
    matches = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def _import(name: str, reference: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise _broken(name, reference, error) from error
        known = [module.name for module in pkgutil.iter_modules()]
        raise TopologyError(
            f"{reference!r} cannot be imported: there is no module "
            f"{error.name!r}{closest(error.name, known) or '; put its directory on PYTHONPATH'}"
        ) from error
    except raised_by_functions() as error:
        raise _broken(name, reference, error) from error


def _broken(name: str, reference: str, error: BaseException) -> TopologyError:
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    if isinstance(error, SyntaxError):
        where = f" ({error.filename}:{error.lineno})"
    if isinstance(error, ModuleNotFoundError):
        where = ""
    return TopologyError(
        f"{reference!r} cannot be imported: importing module {name!r} raised "
        f"{type(error).__name__}: {error}{where}; fix the module or install what it needs"
    )
