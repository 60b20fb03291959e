"""Random programs of keyed lines, their edits, and who owns each store by the graph alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from eosframework import Topology
from eosframework.topology.graph.graph import Aggregate, Graph, Sink, Step
from eosframework.topology.graph.walk import nodes_of
from eosframework.topology.loader import read_yaml
from eosframework.topology.spec.loaded import LoadedApp

FUNCTIONS = 5
OPERATORS = ("count", "sum", "max")
SOURCES = ("orders", "payments")
NAMES = ("a", "b", "c", "d", "orders.sum", "orders.count", "orders", "payments.sum")


def _named(name: str) -> Callable[[Any], Any]:
    def function(_: Any) -> int:
        return 1

    function.__name__ = function.__qualname__ = name
    return function


keys = {f"key_{i}": _named(f"key_{i}") for i in range(FUNCTIONS)}
values = {f"of_{i}": _named(f"of_{i}") for i in range(FUNCTIONS)}
globals().update(keys | values)


@dataclass(frozen=True)
class Fold:
    """One fold after a group_by; a count has no function."""

    operator: str
    of: str
    store: str | None = None


@dataclass(frozen=True)
class Line:
    """One line of a program: a group_by of a source, and the folds of its result."""

    source: str
    key: str
    folds: tuple[Fold, ...]
    group: str | None = None
    label: str = "s"
    is_filtered: bool = False


Program = tuple[Line, ...]


def random_line(chance: random.Random) -> Line:
    folds = tuple(random_fold(chance) for _ in range(chance.choice((1, 1, 1, 2))))
    stated = chance.choice((None, None, *NAMES))
    label = f"s{chance.randrange(10**6)}"
    key = f"key_{chance.randrange(FUNCTIONS)}"
    source = chance.choice(SOURCES)
    return Line(source, key, folds, stated, label, chance.random() < 0.3)


def random_fold(chance: random.Random) -> Fold:
    store = chance.choice((None, None, *NAMES))
    return Fold(chance.choice(OPERATORS), f"of_{chance.randrange(FUNCTIONS)}", store)


def random_program(chance: random.Random) -> Program:
    return tuple(random_line(chance) for _ in range(chance.choice((1, 2, 2, 3))))


def edited(program: Program, chance: random.Random) -> Program:
    """Insert, remove, move or rewrite one line, or exchange the names of two."""
    lines = list(program)
    at = chance.randrange(len(lines))
    line = lines[at]
    match chance.randrange(9):
        case 0:
            lines.insert(chance.randrange(len(lines) + 1), random_line(chance))
        case 1:
            lines.insert(at, replace(line, key=f"key_{chance.randrange(FUNCTIONS)}", label="twin"))
        case 2 if len(lines) > 1:
            del lines[at]
        case 3:
            chance.shuffle(lines)
        case 4:
            lines[at] = replace(line, group=chance.choice((None, *NAMES)))
        case 5:
            lines[at] = replace(line, key=f"key_{chance.randrange(FUNCTIONS)}")
        case 6:
            fold = chance.choice(line.folds)
            other = chance.choice(
                (
                    replace(fold, store=chance.choice((None, *NAMES))),
                    replace(fold, of=f"of_{chance.randrange(FUNCTIONS)}"),
                    replace(fold, operator=chance.choice(OPERATORS)),
                )
            )
            lines[at] = replace(line, folds=tuple(other if f is fold else f for f in line.folds))
        case 7:
            lines[at] = replace(line, is_filtered=not line.is_filtered, label=f"r{at}")
        case _:
            other = lines[chance.randrange(len(lines))]
            stores = [fold.store for fold in (*line.folds, *other.folds)]
            chance.shuffle(stores)
            lines = [
                replace(each, folds=tuple(replace(f, store=stores.pop()) for f in each.folds))
                if each in (line, other) and len(stores) >= len(each.folds)
                else each
                for each in lines
            ]
    return tuple(lines)


def in_python(program: Program) -> LoadedApp:
    app = Topology("shop")
    sources = {name: app.stream(name, key="string", value="json") for name in SOURCES}
    for line in program:
        stream = sources[line.source]
        if line.is_filtered:
            stream = stream.filter(bool)
        grouped = stream.group_by(keys[line.key], name=line.group)
        for fold in line.folds:
            options: dict[str, Any] = {} if fold.store is None else {"store": fold.store}
            of = () if fold.operator == "count" else (values[fold.of],)
            getattr(grouped, fold.operator)(*of, **options).to("out", value="json")
    return app.loaded()


def in_yaml(program: Program) -> LoadedApp:
    """Return the same program as a file, with a stream for each group and each further fold."""
    text = ["application: shop", "sources:"]
    text += [f"  {name}: {{topic: {name}, key: string, value: json}}" for name in SOURCES]
    text.append("streams:")
    for number, line in enumerate(program):
        name = f", name: {line.group}" if line.group else ""
        label = f"{line.label}_{number}" if line.label == "s" else line.label
        text += [f"  {label}:", f"    from: {line.source}", "    steps:"]
        text += ['      - filter: "builtins:bool"'] if line.is_filtered else []
        text.append(f'      - group_by: {{by: "{__name__}:{line.key}"{name}}}')
        for i, fold in enumerate(line.folds):
            if i:
                text += [f"  {label}_{i}:", f"    from: {line.source}", "    steps:"]
                text.append(f'      - group_by: {{by: "{__name__}:{line.key}"{name}}}')
            of = "" if fold.operator == "count" else f'of: "{__name__}:{fold.of}"'
            store = f"store: {fold.store}" if fold.store else ""
            text.append(f"      - {fold.operator}: {{{', '.join(filter(None, (of, store)))}}}")
            text.append("    to: {topic: out, value: json}")
    return read_yaml("\n".join(text), "shop.yaml")


@dataclass(frozen=True)
class Owner:
    """What wrote a store: its operator, its functions, and where its records come from."""

    operator: str
    functions: tuple[str, ...]
    keys: frozenset[tuple[str, str]] = field(default_factory=frozenset[tuple[str, str]])


def owners(graph: Graph) -> dict[str, Owner]:
    """Return who owns each store, from the nodes of the graph: no name has a part in it."""
    writers: dict[str, set[tuple[str, str]]] = {}
    for source in graph.sources:
        for step in _followers(source.children):
            for sink in step.children:
                if isinstance(sink, Sink) and isinstance(sink.topic, str):
                    writers.setdefault(sink.topic, set()).add((source.topic, step.function.name))
    return {
        node.store.name: Owner(
            str(node.fold),
            tuple(function.name for function in node.functions.values()),
            frozenset(writers.get(source.topic, set())),
        )
        for part in graph.sub_topologies
        for source in part.sources
        for node in nodes_of(replace(part, sources=(source,)))
        if isinstance(node, Aggregate)
    }


def _followers(nodes: Sequence[Any]) -> Iterator[Step]:
    for node in nodes:
        if isinstance(node, Step):
            yield node
            yield from _followers(node.children)
