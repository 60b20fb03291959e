"""What is wrong with the stores of a topology."""

from __future__ import annotations

from collections.abc import Iterator

from eosframework.errors import TopologyError
from eosframework.topology.spec.loaded import KEY, Finding, LoadedApp, Path
from eosframework.topology.spec.topology_spec import TopologySpec
from eosframework.txnid import refuse_bad_name


def store_findings(app: LoadedApp) -> Iterator[Finding]:
    """Return the findings about stores."""
    first: dict[str, Path] = {}
    for name, path in declared_stores(app.spec):
        place = app.source_map.find(path)
        try:
            refuse_bad_name("store", name)
        except TopologyError as error:
            yield Finding(place, "name", str(error))
        if name in first:
            yield Finding(
                place,
                "duplicate-store",
                f"store {name!r} is declared twice (line "
                f"{app.source_map.find(first[name]).line}); each step that keeps something needs "
                f"one of its own. Give this one another name: store: NAME",
            )
        first.setdefault(name, path)


def declared_stores(spec: TopologySpec) -> Iterator[tuple[str, Path]]:
    """Yield the name of each store, and where it is declared."""
    topics: set[str] = set()
    for name, source in spec.sources.items():
        if source.is_table and not source.global_ and source.topic not in topics:
            topics.add(source.topic)
            yield name, ("sources", name, KEY)
    for name, stream in spec.streams.items():
        joins = 0
        for i, step in enumerate(stream.steps):
            path = ("streams", name, "steps", i, step.operator)
            if step.keyed is not None:
                yield step.keyed.store or f"{name}.{step.operator}", path
            elif step.join is not None and step.join.is_within:
                joins += 1
                number = str(joins) if joins > 1 else ""
                yield step.join.store or f"{name}.join{number}", path
