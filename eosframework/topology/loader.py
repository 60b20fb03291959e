"""Loading of a topology from a YAML file, a Python file or `module:attribute`."""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType

from eosframework.errors import TopologyError, raised_by_functions
from eosframework.serialization import references
from eosframework.serialization.references import closest
from eosframework.topology.dsl.builder import Topology
from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.spec.loaded import LoadedApp, refusal
from eosframework.topology.yaml_reader import read_yaml


def load_app(text: str) -> LoadedApp:
    """Return the topology that `text` names, complete.

    Args:
        text: a `.yaml` file, a `.py` file, `file.py:attribute`, or `package.module:attribute`.

    Raises:
        TopologyError: there is no such topology, or a part of it cannot be read; in this case
            with all findings, each with file, line and column.
    """
    app = read_app(text)
    if app.problems:
        raise refusal(lint(app))
    return app


def read_app(text: str) -> LoadedApp:
    """Return the topology that `text` names, as far as it can be read.

    Makes the directory of the file and the current one importable.

    Raises:
        TopologyError: there is no such file, module or attribute, or it holds no topology.
    """
    if text.endswith((".yaml", ".yml")):
        file = _existing(text)
        references.make_importable(file.parent, Path.cwd())
        return _read_file(file, text)
    if text.endswith(".py"):
        file = _existing(text)
        references.make_importable(file.parent, Path.cwd())
        return _only_topology(_run(file), text).loaded()
    path, _, attribute = text.rpartition(":")
    if path.endswith(".py"):
        file = _existing(path)
        references.make_importable(file.parent, Path.cwd())
        return _named_topology(_run(file), attribute, text).loaded()
    if ":" in text:
        references.make_importable(Path.cwd())
        found = references.find(text)
        if not isinstance(found, Topology):
            raise TopologyError(
                f"{text!r} is a {type(found).__name__}; expected an eosframework.Topology"
            )
        return found.loaded()
    raise TopologyError(
        f"{text!r} names no topology; expected a .yaml file, a .py file, file.py:attribute or "
        f"package.module:attribute"
    )


def _existing(text: str) -> Path:
    file = Path(text)
    if file.is_file():
        return file.resolve()
    where = file.parent if file.parent.is_dir() else Path()
    near = closest(file.name, [f.name for f in where.iterdir() if f.suffix == file.suffix])
    what = "is not a file" if file.exists() else "does not exist"
    raise TopologyError(f"topology file {text!r} {what}{near or '; check the path'}")


def _read_file(file: Path, shown: str) -> LoadedApp:
    try:
        return read_yaml(file.read_text(encoding="utf-8"), shown)
    except OSError as error:
        raise TopologyError(
            f"topology file {shown!r} cannot be read ({error.strerror}); check its permissions"
        ) from error
    except UnicodeDecodeError as error:
        raise TopologyError(f"topology file {shown!r} is not UTF-8 text: {error}") from error


def _run(file: Path) -> ModuleType:
    name = file.stem
    known = sys.modules.get(name)
    if known is not None:
        if getattr(known, "__file__", None) == str(file):
            return known
        name = f"{name}_{os.path.relpath(file).replace(os.sep, '_').removesuffix('.py')}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise TopologyError(f"topology file {str(file)!r} cannot be imported as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except raised_by_functions() as error:
        del sys.modules[name]
        if isinstance(error, TopologyError):
            raise
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
        line = error.lineno if isinstance(error, SyntaxError) else frames and frames[-1].lineno
        raise TopologyError(
            f"{file.name}:{line or 1}: {type(error).__name__} while the topology was declared: "
            f"{error}"
        ) from error
    return module


def _named_topology(module: ModuleType, name: str, text: str) -> Topology:
    found = getattr(module, name, None)
    if isinstance(found, Topology):
        return found
    if hasattr(module, name):
        raise TopologyError(
            f"{text!r} is a {type(found).__name__}; expected an eosframework.Topology"
        )
    near = closest(name, [each for each in vars(module) if not each.startswith("_")])
    raise TopologyError(f"{text!r}: the file has no {name!r}{near or '; correct the name'}")


def _only_topology(module: ModuleType, text: str) -> Topology:
    if isinstance(app := getattr(module, "app", None), Topology):
        return app
    found = {name: v for name, v in vars(module).items() if isinstance(v, Topology)}
    if len({id(topology) for topology in found.values()}) == 1:
        return next(iter(found.values()))
    if found:
        raise TopologyError(
            f"{text!r} declares several topologies ({', '.join(found)}); call one of them app, "
            f"or name it as {module.__name__}:{next(iter(found))}"
        )
    raise TopologyError(
        f"{text!r} declares no topology; expected app = eosframework.Topology(...) in it"
    )
