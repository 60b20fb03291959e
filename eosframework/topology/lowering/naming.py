"""The names of what each step keeps: stated, or derived from structure (docs/concepts/names.md).

A derived name has the source, or the stream or `group_by` that the user named last, and the
operator. It has no part of a function's name and no number, so no edit of another line changes
its meaning; where two steps would have the same one, lint refuses both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from eosframework.topology.spec.kept_names import KeptName, Kind, Option
from eosframework.topology.spec.loaded import KEY, LoadedApp, SpecPath
from eosframework.topology.spec.relation_names import as_topic
from eosframework.topology.spec.step_spec import GroupSpec, StepSpec
from eosframework.topology.spec.topology_spec import StreamSpec


@dataclass(frozen=True, slots=True)
class Base:
    """The start of the derived names at one position in a stream.

    Args:
        is_stated: the user gave the name to a stream or a `group_by`.
        repartition: the same name, if a repartition topic has it without being asked.
    """

    name: str
    is_stated: bool
    repartition: str | None = None


class Naming:
    """Names what the steps keep, stream by stream, and lists the names."""

    def __init__(self, app: LoadedApp) -> None:
        self.kept: list[KeptName] = []
        self._app = app
        self._ends = {name: Base(name, is_stated=False) for name in app.spec.sources}
        topics: set[str] = set()
        for name, source in app.spec.sources.items():
            if source.is_table and not source.global_ and source.topic not in topics:
                topics.add(source.topic)
                path = ("sources", name, KEY)
                self._add(Kind.STORE, name, path, Option.NAME, is_stated=True)

    def start(self, name: str, stream: StreamSpec) -> Base:
        """Return the base at the start of a stream: its name, or its parent's base if unnamed."""
        if name in self._app.unnamed:
            return self._ends[stream.from_[0]]
        return Base(name, is_stated=True)

    def end(self, name: str, stream: StreamSpec, base: Base) -> None:
        """Record the base at the end of a stream, where unnamed ones begin."""
        self._ends[name] = base
        for branch in stream.branch_names:
            named = Base(branch, is_stated=True)
            self._ends[branch] = base if branch in self._app.unnamed else named

    def rows(self, name: str, stream: StreamSpec) -> str:
        """Name a stream's topic of rows: as the stream, or as its table if that is unnamed."""
        is_stated = name not in self._app.unnamed
        rows = name if is_stated else min(as_topic(table.table) for _, table in stream.tables)
        path: SpecPath = ("streams", name, "to", 0)
        self._add(Kind.ROWS, rows, path, Option.NAMED, is_stated=is_stated)
        return rows

    def end_of(self, name: str) -> Base:
        """Return the base at the end of a source, stream or branch."""
        return self._ends[name]

    def group(self, base: Base, path: SpecPath, group: GroupSpec, words: tuple[str, ...]) -> Base:
        """Name the repartition topic of a `group_by`; the names after it start with its own."""
        name, is_stated = group.name or base.name, group.name is not None
        self._add(Kind.REPARTITION, name, path, Option.NAME, is_stated=is_stated, words=words)
        return Base(name, is_stated or base.is_stated, None if is_stated else name)

    def repartition(self, base: Base, path: SpecPath, operator: str, words: tuple[str, ...]) -> str:
        """Name the repartition topic that an operator requires because the key is new."""
        self._add(
            Kind.REPARTITION,
            name := f"{base.name}.{operator}",
            path,
            Option.NAMED,
            is_stated=False,
            is_anchored=base.is_stated,
            base=base.repartition,
            suffix=f".{operator}",
            words=words,
        )
        return name

    def step(self, base: Base, path: SpecPath, step: StepSpec, words: tuple[str, ...]) -> StepSpec:
        """Return a step that states the names of its stores."""
        operator = step.operator
        path = (*path, operator)
        if step.keyed is not None or (step.join is not None and step.join.is_within):
            stated = getattr(step, operator).store
            name = stated or f"{base.name}.{operator}"
            self._store(base, name, path, Option.STORE, is_stated=bool(stated), words=words)
            return step if stated else step.with_option("store", name)
        if (handler := step.handler) is not None:
            name = handler.name or base.name
            timers = ["timers"] if handler.on_timer is not None else []
            for given in (*handler.declared_stores, *timers):
                self._store(
                    base,
                    f"{name}.{given}",
                    path,
                    Option.NAME,
                    is_stated=bool(handler.name),
                    words=words,
                    suffix=f".{given}",
                )
            return step.with_option("name", name)
        return step

    def _store(
        self,
        base: Base,
        name: str,
        path: SpecPath,
        option: Option,
        *,
        is_stated: bool,
        words: tuple[str, ...],
        suffix: str = "",
    ) -> None:
        own = None if is_stated else base.repartition
        self._add(
            Kind.STORE,
            name,
            path,
            option,
            is_stated=is_stated,
            base=own,
            suffix=suffix,
            words=words,
        )

    def _add(
        self,
        kind: Kind,
        name: str,
        path: SpecPath,
        option: Option,
        *,
        is_stated: bool,
        is_anchored: bool = False,
        base: str | None = None,
        suffix: str = "",
        words: tuple[str, ...] = (),
    ) -> None:
        place = self._app.source_map.find(path)
        self.kept.append(
            KeptName(kind, name, path, place, option, is_stated, is_anchored, base, suffix, words)
        )


def words_of(steps: tuple[StepSpec, ...]) -> tuple[str, ...]:
    """Return the names of the functions of steps, for proposals; lambdas have none."""
    return tuple(_words(steps))


def _words(steps: tuple[StepSpec, ...]) -> Iterator[str]:
    for step in steps:
        for reference in step.functions.values():
            _, colon, name = reference.rpartition(":")
            if colon and "<" not in reference and " at " not in reference:
                yield "".join(c for c in name.rpartition(".")[2].lower() if c.isalnum() or c == "_")
