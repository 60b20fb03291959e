"""Values between the driver and executors: functions, batches of rows, and failures."""

from __future__ import annotations

import base64
import glob
import importlib
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from itertools import dropwhile, takewhile
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import orjson

from eosframework import errors
from eosframework.errors import EosError, RunError, TopologyError
from eosframework.topology.graph.graph import Graph

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_MARK = "eosframework-failure:"
_MARKED = re.compile(_MARK + r"([A-Za-z0-9_\-=]+)")
_CALL_FAILED = "An error occurred while calling"
"""Of Py4J, in front of what the call raised in the JVM."""

_WAITED = "Exception thrown in awaitResult"
"""Of a thread of the JVM that waited for another one; the reason is its cause."""

_CAUSE = "Caused by: "

_TRACEBACK = "Traceback (most recent call last):"

_FRAME = re.compile(r'^  File "([^"]+)", line (\d+), in (.+)$', re.MULTILINE)

MOST_FRAMES = 3
"""The most lines of the user's code that a message about an error there has."""
"""Of a Python worker; its error follows the indented lines, and ends with an empty one."""

_AFTER_ERROR = ("\tat ", _CAUSE)


def encoded(error: EosError) -> RuntimeError:
    """Return the exception to raise on an executor, with the error encoded in it."""
    telling = orjson.dumps({"kind": type(error).__name__, "message": str(error)})
    return RuntimeError(f"{error}\n{_MARK}{base64.urlsafe_b64encode(telling).decode()}")


def failure_of(error: BaseException, where: str = "") -> EosError | None:
    """Return the executor's error from Spark's exception; None: it contains none.

    Args:
        error: of Spark.
        where: what failed, in front of the executor's message.
    """
    found = _MARKED.search(str(error))
    if found is None:
        return None
    telling = orjson.loads(base64.urlsafe_b64decode(found[1]))
    kind = getattr(errors, telling["kind"], RunError)
    return _raised(kind if issubclass(kind, EosError) else RunError, where + telling["message"])


def reason_of(error: BaseException) -> str:
    """Return the error of a Python worker, or the first line that says more than which call failed.

    Args:
        error: of Spark.
    """
    text = str(error)
    if _TRACEBACK in text:
        traceback = text.rpartition(_TRACEBACK)[2]
        return (_python_error(traceback) or type(error).__name__) + _place(traceback)
    lines = [line.lstrip(": ").rstrip(".: ") for line in text.splitlines()]
    reasons = [line for line in lines if line and not line.startswith(_CALL_FAILED)]
    if reasons and reasons[0].endswith(_WAITED):
        reasons = [line.removeprefix(_CAUSE) for line in reasons if line.startswith(_CAUSE)]
    return reasons[0] if reasons else type(error).__name__


def _python_error(text: str) -> str:
    """Return the error at the end of a traceback in one line."""
    lines = dropwhile(lambda line: not line or line.startswith(" "), text.splitlines())
    said = takewhile(lambda line: line and not line.startswith(_AFTER_ERROR), lines)
    return " ".join(" ".join(said).split()).rstrip(".")


def _place(traceback: str) -> str:
    """Return the innermost lines of the user's code, as a text after the error."""
    frames = [f"{file}:{line} in {name}" for file, line, name in _FRAME.findall(traceback)]
    own = [frame for frame in frames if "/pyspark/" not in frame and "/pyspark.zip/" not in frame]
    return f" (at {', called at '.join(reversed(own[-MOST_FRAMES:]))})" if own else ""


def _raised(kind: type[EosError], message: str) -> EosError:
    try:
        return kind(message)
    except TypeError:
        return RunError(message)


_INSTALLED = ("stdlib", "platstdlib", "purelib", "platlib")


def pack(graph: Graph) -> bytes:
    """Return a graph as bytes that any process with the framework can unpack.

    Modules outside installed packages, such as the topology's file, are included.

    Raises:
        TopologyError: a function refers to an object that cannot be pickled, such as a connection.
    """
    return pack_value(graph, f"application {graph.application!r}")


def unpack(packed: bytes) -> Graph:
    """Return a packed graph."""
    return unpack_value(packed)


def pack_value(value: Any, what: str) -> bytes:
    """Return a value as bytes that any process with the framework can unpack; see `pack`.

    Args:
        value: may contain user functions.
        what: description, for messages.

    Raises:
        TopologyError: a part of it cannot be pickled.
    """
    cloudpickle = _cloudpickle()
    with ExitStack() as stack:
        for module in user_modules():
            cloudpickle.register_pickle_by_value(module)
            stack.callback(cloudpickle.unregister_pickle_by_value, module)
        try:
            return cast(bytes, cloudpickle.dumps(value))
        except Exception as error:
            raise TopologyError(
                f"{what} cannot be sent to executors: {error}; expected functions that hold only "
                f"plain values. Open connections, files and locks inside the function, at its "
                f"first call"
            ) from error


def unpack_value(packed: bytes) -> Any:
    """Return a packed value."""
    return _cloudpickle().loads(packed)


def user_modules() -> Iterator[ModuleType]:
    """Yield the imported modules that other machines may lack, each once."""
    installed = _installed()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is None or name == "__main__" or name.partition(".")[0] == "eosframework":
            continue
        if name != module.__name__:  # a second name of a module, as requests gives to urllib3
            continue
        # Resolving a path takes longer than all else, so it is the second choice.
        if not file.startswith(installed) and not os.path.realpath(file).startswith(installed):
            yield module


def _installed() -> tuple[str, ...]:
    """Return the path prefixes of installed modules."""
    given = [sysconfig.get_path(name) for name in _INSTALLED]
    # Libraries of a cluster are in directories of their own, each with what a package manager adds.
    given += [path for path in sys.path if path and glob.glob(f"{glob.escape(path)}/*.dist-info")]
    return tuple(
        {os.path.join(path, "") for each in given for path in (each, os.path.realpath(each))}
    )


def _cloudpickle() -> Any:
    """Return pyspark's own cloudpickle, which every executor has."""
    return importlib.import_module("pyspark.cloudpickle")


RecordBatch = Any
"""A batch of pyarrow."""

Table = Any
"""A table of pyarrow."""

BatchFunction = Callable[[Iterable[RecordBatch]], Iterator[RecordBatch]]
"""Maps the batches of a Spark partition, in order."""


def map_batches(frame: DataFrame, function: BatchFunction, schema: str | StructType) -> DataFrame:
    """Apply a function to each Spark partition, on the executors."""
    return cast(Any, frame).mapInArrow(function, schema)


def extended(batch: RecordBatch, columns: Mapping[str, tuple[str, Sequence[Any]]]) -> RecordBatch:
    """Return a batch with additional columns.

    Args:
        batch: the original.
        columns: Arrow type and values, by name.
    """
    arrow: Any = import_module("pyarrow")
    arrays = [arrow.array(values, kind) for kind, values in columns.values()]
    names = [*batch.schema.names, *columns]
    return arrow.RecordBatch.from_arrays([*batch.columns, *arrays], names)


def batch_of(rows: Sequence[Sequence[Any]], columns: Mapping[str, Any]) -> RecordBatch:
    """Return rows as a batch.

    Args:
        rows: their values, in column order.
        columns: Arrow types by name.
    """
    arrow: Any = import_module("pyarrow")
    values = zip(*rows, strict=True) if rows else [() for _ in columns]
    pairs = zip(values, columns.values(), strict=True)
    arrays = [arrow.array(list(column), kind) for column, kind in pairs]
    return arrow.RecordBatch.from_arrays(arrays, list(columns))


def rows_of(structs: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """Return an array of structs as dicts, and the names of their fields that are structs."""
    arrow: Any = import_module("pyarrow")
    batch = arrow.RecordBatch.from_struct_array(structs)
    nested = [field.name for field in batch.schema if arrow.types.is_struct(field.type)]
    return batch.to_pylist(maps_as_pydicts="strict"), nested


def headers_type() -> Any:
    """Return the Arrow type of record headers."""
    arrow: Any = import_module("pyarrow")
    return arrow.list_(arrow.struct([("key", arrow.string()), ("value", arrow.binary())]))
