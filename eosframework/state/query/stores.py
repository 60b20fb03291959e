"""The stores of an application, by name."""

from __future__ import annotations

from dataclasses import dataclass

from eosframework.errors import ConfigurationError
from eosframework.serialization import references
from eosframework.state.query.layouts import Layout, layout_of
from eosframework.topology.graph.graph import Graph, Store


@dataclass(frozen=True, slots=True)
class QueriedStore:
    """A store with the layout of its entries.

    Args:
        sub_topology: name of its sub-topology; each of its tasks has a part of the store.
    """

    sub_topology: str
    store: Store
    layout: Layout

    @property
    def name(self) -> str:
        """The store's name."""
        return self.store.name


def queried_stores(graph: Graph) -> dict[str, QueriedStore]:
    """Return all stores of an application by name."""
    return {
        store.name: QueriedStore(part.name, store, layout_of(part, store))
        for part in graph.sub_topologies
        for store in part.stores
    }


def queried_store(graph: Graph, name: str) -> QueriedStore:
    """Return a store of an application.

    Raises:
        ConfigurationError: the application has no such store.
    """
    stores = queried_stores(graph)
    if name not in stores:
        known = ", ".join(stores) or "none"
        raise ConfigurationError(
            f"application {graph.application!r} has no store {name!r}; its stores are {known}"
            f"{references.closest(name, stores)}"
        )
    return stores[name]
