"""docs/reference/api.md: the public API from its docstrings.

`python -m tests.support.documents.api_reference` writes the page again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import griffe

from tests.house import REPOSITORY

PAGE = REPOSITORY / "docs" / "reference" / "api.md"
PACKAGES = ("", "testing", "kafka", "postgres.outbox", "spark.backfill", "spark")
"""The public packages: `eosframework` and four packages in it."""

INTERNAL = {
    "GlobalTable.node",
    "GlobalTable.recording",
    "KeyedStream.declared",
    "KeyedStream.node",
    "KeyedStream.recording",
    "Stream.declared",
    "Stream.node",
    "Stream.recording",
    "Topology.loaded",
    "Topology.spec",
}
"""Members that modules of `eosframework.topology` need of each other, and that users do not."""

GIVEN = {
    "Context",
    "GlobalTable",
    "KeyedStore",
    "KeyedStream",
    "WindowedStream",
    "RunningWorker",
    "Stream",
    "WorkerStatus",
}
"""Classes whose objects a user is given and does not make."""

ARGUMENT_TYPES = (
    "serialization.serdes.SerdeLike",
    "topology.dsl.declarations.FunctionLike",
    "topology.dsl.declarations.ValueFunction",
    "topology.dsl.declarations.RecordFunction",
    "topology.dsl.declarations.BinaryFunction",
    "topology.dsl.declarations.SchemaLike",
    "topology.dsl.declarations.OnErrorLike",
    "topology.spec.keyed_spec.DurationLike",
    "topology.dsl.declarations.AggregateOptions",
    "topology.dsl.builder.SourceOptions",
    "topology.dsl.declarations.StoreOptions",
)
"""Types that signatures name and that a user passes as plain values."""

_HEAD = """\
# Public API

Everything that is not on this page is internal and may change in any release. Generated from the
docstrings by `python -m tests.support.documents.api_reference`.
"""


@cache
def _package() -> griffe.Module:
    loaded = griffe.load(
        "eosframework",
        search_paths=[str(REPOSITORY)],
        docstring_parser="google",
        allow_inspection=False,
    )
    assert isinstance(loaded, griffe.Module)
    return loaded


def public_names(package: str) -> list[str]:
    """Return the names in `__all__` of `eosframework`, or of a package in it."""
    module: Any = _package()[package] if package else _package()
    return [str(name).strip("'\"") for name in module.exports]


def markdown() -> str:
    """Return docs/reference/api.md."""
    return "\n".join([_HEAD, *_body()]) + "\n"


def _body() -> Iterator[str]:
    for package in PACKAGES:
        yield from _lines_of(package)
    yield "## Types of arguments"
    for path in ARGUMENT_TYPES:
        found: Any = _package()[path]
        yield from _class(found) if found.is_class else _alias(found)


def _alias(found: Any) -> Iterator[str]:
    yield f"### {found.name}"
    value = str(found.value).replace("'", '"')
    yield f"```python\n{found.name} = {value}\n```"
    yield from _text(found)


def _lines_of(package: str) -> Iterator[str]:
    module: Any = _package()[package] if package else _package()
    yield f"## {'.'.join(filter(None, ['eosframework', package]))}"
    yield from _text(module)
    for name in public_names(package):
        found: Any = module[name]
        target = found.final_target if found.is_alias else found
        yield from _class(target) if target.is_class else _function(target, target.name, "###")


def _class(found: Any) -> Iterator[str]:
    constructor = found.members.get("__init__")
    yield f"### {found.name}"
    if found.name in GIVEN:
        shown = ""
    else:
        shown = constructor.signature() if constructor else _fields(found)
    yield f"```python\nclass {found.name}{shown.removeprefix('__init__').split(' -> ')[0]}\n```"
    yield from _text(found)
    for name, member in found.all_members.items():
        if name.startswith("_") or f"{found.name}.{name}" in INTERNAL:
            continue
        target = member.final_target if member.is_alias else member
        if target.is_function:
            yield from _function(target, f"{found.name}.{name}", "####")
        elif target.is_attribute and target.docstring:
            kind = f": `{target.annotation}`" if target.annotation is not None else ""
            yield f"#### {found.name}.{name}{kind}"
            yield from _text(target)


def _fields(found: Any) -> str:
    """Return the signature of a class whose fields make its constructor."""
    fields = [
        f"{name}: {member.annotation}" + (f" = {member.value}" if member.value else "")
        for name, member in found.members.items()
        if member.is_attribute and member.annotation is not None and not name.startswith("_")
    ]
    return f"({', '.join(fields)})" if fields else ""


def _function(found: Any, shown: str, heading: str) -> Iterator[str]:
    signature = found.signature().replace("(self, ", "(").replace("(self)", "()")
    yield f"{heading} {shown}"
    yield f"```python\n{signature}\n```"
    yield from _text(found)


def _text(found: Any) -> Iterator[str]:
    for section in found.docstring.parsed if found.docstring else ():
        kind = section.kind.value
        if kind == "text":
            yield section.value + "\n"
        elif kind in ("parameters", "attributes"):
            yield from _items((f"`{item.name}`", item.description) for item in section.value)
        elif kind == "raises":
            yield from _items(
                (f"raises `{item.annotation}`", item.description) for item in section.value
            )
        elif kind in ("returns", "yields"):
            yield from _items((kind, item.description) for item in section.value)
        else:
            raise ValueError(f"{found.path}: no way to print the section {kind!r} of its docstring")


def _items(items: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield "\n".join(f"- {name}: {' '.join(text.split())}" for name, text in items) + "\n"


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(markdown(), encoding="utf-8")
