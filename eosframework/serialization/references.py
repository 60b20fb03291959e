"""References to user code, `module:attribute`: from a text to the object it names, and back."""

from __future__ import annotations

import ast
import difflib
import hashlib
import linecache
import pkgutil
import sys
import traceback
from collections.abc import Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from types import CellType, CodeType, ModuleType
from typing import Any, cast

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


def identity_of(reference: str, target: Any) -> str:
    """Return a text that stays equal while a function does, wherever its lines move.

    Args:
        reference: `module:attribute`, or the name of an object that cannot be imported.
        target: the function.
    """
    module, colon, attribute = reference.partition(":")
    is_imported = all(part.isidentifier() for part in (*module.split("."), *attribute.split(".")))
    return reference if colon and is_imported else _described(target)[:LONGEST_IDENTITY]


LONGEST_IDENTITY = 500
"""In characters; a longer text is cut."""


def _described(target: Any) -> str:
    if isinstance(target, partial):
        called = cast("partial[Any]", target)
        given = _digest((called.args, sorted(called.keywords.items())))
        return f"partial({_described(called.func)}, {given})"
    code = getattr(target, "__code__", None)
    if isinstance(code, CodeType):
        text = _lambda_text(code) if code.co_name == "<lambda>" else target.__qualname__
        return text + _taken_along(code, target)
    kind = cast("type[object]", type(target))
    text = repr(target)
    if kind.__module__ == "operator":
        return text
    return kind.__qualname__ if " at 0x" in text else f"{kind.__qualname__} {_digest(text)}"


def _taken_along(code: CodeType, function: Any) -> str:
    """Return the plain values that a function has from around it, or as defaults."""
    cells = zip(code.co_freevars, getattr(function, "__closure__", None) or (), strict=True)
    plain = (str, int, float, bool, bytes, type(None))
    values = {
        **{name: _content(cell) for name, cell in cells},
        **{f"default {i}": value for i, value in enumerate(function.__defaults__ or ())},
    }
    found = [f"{name}={_digest(v)}" for name, v in values.items() if isinstance(v, plain)]
    return f" with {', '.join(found)}" if found else ""


def _content(cell: CellType) -> Any:
    """Return the content of a cell; a name that is not assigned yet has none."""
    try:
        return cell.cell_contents
    except ValueError:
        return cell


def _digest(value: Any) -> str:
    """Return a short digest: a value may be a secret, and the text is stored and shown."""
    return f"#{hashlib.sha256(repr(value).encode()).hexdigest()[:8]}"


def _lambda_text(code: CodeType) -> str:
    """Return the source of a lambda; without a source only `<lambda>`."""
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except SyntaxError:
        return code.co_name
    used = [
        (line, column)
        for line, _, column, end in code.co_positions()
        if line is not None and column is not None and end is not None and end > column
    ]
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Lambda)
        and node.lineno == code.co_firstlineno
        and all(_starts(node.body) <= place < _ends(node.body) for place in used)
    ]
    # A lambda in a lambda begins after the one around it.
    return ast.unparse(max(found, key=lambda node: _starts(node.body))) if found else code.co_name


def _starts(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _ends(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or 0


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
