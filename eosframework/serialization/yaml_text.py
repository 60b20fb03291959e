"""YAML from users, as plain data, with bounds on its expansion.

Aliases let a few hundred bytes stand for more values than memory holds ("a billion laughs"), and
deep nesting overflows Python's stack. The text itself is read in linear time, so both are counted
before any value is constructed.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any, TypeVar, cast

import yaml
from pydantic import TypeAdapter

Table = TypeVar("Table")
Row = TypeVar("Row")


def read_text(package: str, name: str) -> str:
    """Return the text of the file `name` in `package`."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def read_table(package: str, name: str, kind: type[Table]) -> Table:
    """Return the content of the YAML file `name` in `package`, as a value of `kind`."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content: Any = yaml.load(read_text(package, name), Loader=loader)
    return TypeAdapter(kind).validate_python(content)


def named_rows(rows: Mapping[str, Mapping[str, Any]], kind: type[Row]) -> dict[str, Row]:
    """Return the rows of a table by name, each as a `kind` with that name."""
    named = {name: {"name": name, **row} for name, row in rows.items()}
    adapter = TypeAdapter(kind)
    return {name: adapter.validate_python(row) for name, row in named.items()}


_MOST_VALUES = 100_000
"""Most maps, lists, keys and scalars of a text, counted as often as aliases repeat them."""

_DEEPEST = 100
"""Most levels of nested maps and lists."""


class BoundedLoader(yaml.SafeLoader):
    """PyYAML's safe loader; raises `yaml.MarkedYAMLError` for every invalid text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next node; see `yaml.composer.Composer`."""
        self._depth += 1
        try:
            if self._depth > _DEEPEST:
                raise _too_deep(cast(Any, self).peek_event().start_mark)
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return the value of a node; see `yaml.constructor.BaseConstructor`."""
        try:
            return super().construct_object(node, deep)  # pyright: ignore[reportUnknownMemberType]
        except (ValueError, LookupError, AttributeError, TypeError, OverflowError) as error:
            # `!!int ""`, `!!bool x`, `2020-13-45`, a number of 5,000 digits.
            kind = node.tag.rpartition(":")[2]
            raise yaml.MarkedYAMLError(
                problem=f"'{node.value!s:.40}' is no {kind}", problem_mark=node.start_mark
            ) from error

    def bounded_node(self) -> yaml.Node | None:
        """Return the root of the document, after checking the bounds; None: it is empty.

        Raises:
            yaml.YAMLError: the text is not YAML, has more than one document, or exceeds a bound.
        """
        root = self.get_single_node()
        if root is not None:
            _Extents().of(root)
        return root


def read_plain(text: str) -> Any:
    """Return the data of a text with one document; None: it is empty.

    Raises:
        yaml.YAMLError: the text is not YAML, has more than one document, or exceeds a bound.
    """
    loader = BoundedLoader(text)
    node = loader.bounded_node()
    if node is None:
        return None
    return loader.construct_document(node)  # pyright: ignore[reportUnknownMemberType]


class _Extents:
    """Counts the values and levels of nodes, each node once: an anchor precedes its aliases."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}
        self._open: set[int] = set()

    def of(self, node: yaml.Node) -> tuple[int, int]:
        """Return the number of values of a node, and their levels of nesting.

        Raises:
            yaml.MarkedYAMLError: a bound is exceeded, or an alias contains itself.
        """
        if id(node) in self._open:
            raise yaml.MarkedYAMLError(
                problem="an alias contains itself", problem_mark=node.start_mark
            )
        if (known := self._known.get(id(node))) is not None:
            return known
        self._open.add(id(node))
        values, depth = 1, 0
        for child in _children(node):
            more, inner = self.of(child)
            values, depth = values + more, max(depth, inner)
            if values > _MOST_VALUES:
                raise yaml.MarkedYAMLError(
                    problem=f"the aliases in it stand for more than {_MOST_VALUES:,} values; "
                    f"write fewer, or in several files",
                    problem_mark=node.start_mark,
                )
        self._open.discard(id(node))
        if depth + 1 > _DEEPEST:
            raise _too_deep(node.start_mark)
        self._known[id(node)] = values, depth + 1
        return values, depth + 1


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        pairs = cast("list[tuple[yaml.Node, yaml.Node]]", node.value)
        return [each for pair in pairs for each in pair]
    return cast("list[yaml.Node]", node.value) if isinstance(node, yaml.SequenceNode) else []


def _too_deep(mark: yaml.Mark | None) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(
        problem=f"maps and lists are nested deeper than {_DEEPEST} levels", problem_mark=mark
    )
