"""The stages of a backfill: one for each sub-topology, after those that write its input.

Live, all sub-topologies run at once and pass records through internal topics. Over history one runs
to its end before the next begins; the next sees its whole input, and so can merge it by time.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from graphlib import CycleError, TopologicalSorter
from types import CodeType, ModuleType
from typing import Any, cast

import orjson

from eosframework.errors import ConfigurationError
from eosframework.topology.graph.description import describe
from eosframework.topology.graph.graph import Function, Graph, SubTopology
from eosframework.topology.graph.walk import nodes_of

TABLE_FORMATS = ("delta", "iceberg")
"""Formats of tables with snapshots."""

_FORMATS = ("parquet", "json", "csv", *TABLE_FORMATS)


@dataclass(frozen=True, slots=True)
class FileRequest:
    """Files to replace a source topic; see `Files`.

    Args:
        options: of Spark for reading them, each NAME=VALUE.
    """

    topic: str
    format: str
    paths: tuple[str, ...]
    key: str | None = None
    record: str | None = None
    partitioner: str = "murmur2"
    options: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> FileRequest:
        """Parse `--source TOPIC=FORMAT:PATH,…`; NAME=VALUE pairs may follow after `;`.

        Raises:
            ConfigurationError: the argument has another form.
        """
        place, *settings = text.split(";")
        topic, equals, rest = place.partition("=")
        format_, colon, paths = rest.partition(":")
        if not (topic and equals and colon and paths) or format_ not in _FORMATS:
            raise ConfigurationError(
                f"{text!r} is not a source; expected TOPIC=FORMAT:PATH with a format of "
                f"{', '.join(_FORMATS)}, and further settings after ';', for example "
                f"'flights.raw=csv:history/*.csv;key=carrier;option.header=true'"
            )
        if format_ in TABLE_FORMATS and "," in paths:
            raise ConfigurationError(
                f"{text!r} names several tables; expected one, for example "
                f"'flights.raw={format_}:{paths.partition(',')[0]}'"
            )
        given = dict(_setting(one, text) for one in settings)
        options = {name: value for name, value in given.items() if name.startswith("option.")}
        known = {name: value for name, value in given.items() if name not in options}
        if unknown := sorted(known.keys() - {"key", "record", "partitioner"}):
            raise ConfigurationError(
                f"{text!r}: {unknown[0]!r} is not a setting of a source; expected key, record, "
                f"partitioner or option.NAME"
            )
        return cls(
            topic,
            format_,
            tuple(paths.split(",")),
            options=tuple(f"{n.removeprefix('option.')}={v}" for n, v in options.items()),
            **known,
        )

    @property
    def spark_options(self) -> dict[str, str]:
        """The options by name."""
        pairs = (option.partition("=") for option in self.options)
        return {name: value for name, _, value in pairs}


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of a job.

    Args:
        start: begins of ranges; see `spark/backfill/job_start`.
        end: ends of ranges.
        source: files that replace topics, as `FileRequest.parse` takes them.
        live_from: starts of live workers in topics replaced by files.
        suffix: of the names of outputs; empty or one.
    """

    start: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    live_from: tuple[str, ...] = ()
    suffix: tuple[str, ...] = ()

    def written(self) -> dict[str, tuple[str, ...]]:
        """Return the given arguments, by name."""
        given = {field.name: tuple(getattr(self, field.name)) for field in fields(self)}
        return {name: value for name, value in given.items() if value}

    @property
    def files(self) -> list[FileRequest]:
        """The sources that are files.

        Raises:
            ConfigurationError: one has another form, or two replace one topic.
        """
        found = [FileRequest.parse(text) for text in self.source]
        topics = [one.topic for one in found]
        if twice := sorted({topic for topic in topics if topics.count(topic) > 1}):
            raise ConfigurationError(
                f"topic {twice[0]!r} is given files twice; list all paths in one, separated by ','"
            )
        return found


def request_differences(
    before: Mapping[str, Sequence[str]], now: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return the arguments that differ from those of the job's start.

    Missing arguments default to those of the start.
    """
    changed = (name for name in now if tuple(before.get(name, ())) != tuple(now[name]))
    return [
        f"{_OPTIONS[name]} {_shown(now[name])} instead of {_shown(before.get(name, ()))}"
        for name in sorted(changed)
    ]


_OPTIONS = {
    "start": "--from",
    "end": "--to",
    "source": "--source",
    "live_from": "--live-from",
    "suffix": "--suffix",
}


def _shown(values: Iterable[str]) -> str:
    return " ".join(values) or "(nothing)"


def _setting(text: str, whole: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not value:
        raise ConfigurationError(f"{whole!r}: {text!r} is not NAME=VALUE")
    return name.strip(), value


_TOPOLOGY = "topology"
_OWN = "eosframework"


def fingerprint(graph: Graph) -> dict[str, str]:
    """Return digests of the topology and of each module with functions of it.

    A whole module counts, including helpers in it; modules that it imports do not.
    """
    declared = orjson.dumps(describe(graph), option=orjson.OPT_SORT_KEYS)
    found = {_TOPOLOGY: _digest(declared)}
    for function in _functions_of(graph):
        name, content = _origin(function.call)
        if name.partition(".")[0] != _OWN or name.startswith(f"{_OWN}.demo."):
            found[name] = _digest(content)
    return found


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return what differs between two fingerprints, for a message."""
    changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    return ["the topology" if name == _TOPOLOGY else f"module {name}" for name in changed]


def _functions_of(graph: Graph) -> Iterator[Function]:
    """Yield every user function that a graph calls."""
    for part in graph.sub_topologies:
        for node in nodes_of(part):
            yield from _functions(node)
        yield from (store.upgrade for store in part.stores if store.upgrade is not None)
    for table_sink in graph.table_sinks:
        yield from (table.row for table in table_sink.tables if table.row is not None)


def _functions(node: Any) -> Iterator[Function]:
    """Yield the functions in a node's fields; the nodes after it are visited separately."""
    for field in fields(node):
        if field.name != "children":
            yield from _within(getattr(node, field.name))


def _within(value: Any) -> Iterator[Function]:
    if isinstance(value, Function):
        yield value
        return
    members: Iterable[Any] = ()
    if isinstance(value, Mapping):
        members = cast("Mapping[Any, Any]", value).values()
    elif isinstance(value, tuple):
        members = cast("tuple[Any, ...]", value)
    for member in members:
        if isinstance(member, Function | Mapping | tuple):
            yield from _within(member)


def _origin(call: Any) -> tuple[str, bytes]:
    """Return a function's module and source, or other identification without a source."""
    function = inspect.unwrap(call)
    module = inspect.getmodule(function)
    if isinstance(module, ModuleType) and getattr(module, "__file__", None):
        try:
            return module.__name__, inspect.getsource(module).encode()
        except (OSError, TypeError):
            pass
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = getattr(function, "__code__", None)
    return f"{getattr(function, '__module__', '')}:{name}", _bytes_of(code)


def _bytes_of(code: CodeType | None) -> bytes:
    """Return the behaviour of a function without a file: its instructions, constants and names."""
    if code is None:
        return b""
    constants = (_bytes_of(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts)
    return repr((code.co_code, tuple(constants), code.co_names)).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Stage:
    """A sub-topology over the whole range.

    Args:
        partitions: number of tasks, as live.
        own_topics: its internal source topics.
        files: its source topics replaced by files.
    """

    part: SubTopology
    partitions: int
    own_topics: frozenset[str]
    files: frozenset[str]

    @property
    def name(self) -> str:
        """Name of the sub-topology."""
        return self.part.name

    @property
    def topics(self) -> list[str]:
        """Its source topics, sorted."""
        return sorted(source.topic for source in self.part.sources)

    @property
    def reads_log(self) -> bool:
        """True if each task reads its records from the log, partition by partition in offset order.

        Internal topics are ordered by writer only, and files have no order by task.
        """
        return not self.own_topics and not self.files


def stages(graph: Graph, tasks: Mapping[str, int], files: Collection[str] = ()) -> list[Stage]:
    """Return the stages of a graph in execution order.

    Args:
        graph: of the application.
        tasks: number of tasks by sub-topology.
        files: source topics replaced by files.

    Raises:
        ConfigurationError: sub-topologies form a cycle.
    """
    parts = {part.name: part for part in graph.sub_topologies}
    writers = writers_of(graph)
    before = {
        part.name: {
            writer for source in part.sources for writer in writers.get(source.topic, frozenset())
        }
        for part in graph.sub_topologies
    }
    try:
        order = list(TopologicalSorter(before).static_order())
    except CycleError as error:
        circle = " → ".join(error.args[1])
        raise ConfigurationError(
            f"application {graph.application!r} cannot be backfilled: its sub-topologies feed each "
            f"other in a circle ({circle}), so none of them can run to its end first; take the "
            f"topic that closes the circle out of the topology's sources for the backfill"
        ) from None
    return [
        Stage(
            parts[name],
            tasks[name],
            frozenset(s.topic for s in parts[name].sources if s.topic in writers),
            frozenset(s.topic for s in parts[name].sources if s.topic in files),
        )
        for name in order
    ]


def writers_of(graph: Graph) -> dict[str, frozenset[str]]:
    """Return the writing sub-topologies of each internal source topic."""
    sources = set(graph.source_topics)
    found: dict[str, set[str]] = {}
    for part in graph.sub_topologies:
        for topic in sources.intersection(part.sink_topics):
            found.setdefault(topic, set()).add(part.name)
    return {topic: frozenset(names) for topic, names in found.items()}
