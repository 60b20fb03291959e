"""The page of positions: of transforms, of table sinks, and of outbox relays."""

from __future__ import annotations

from eosframework.console.pages.page import Console, Fields, Page


def positions_page(console: Console, fields: Fields) -> Page:
    """Return the page of positions.

    Raises:
        TopologyError: the topology does not resolve.
    """
    app = console.app
    graph = app.graph()
    processes = app.processes()
    relays = {
        address: reading
        for address, reading in processes.items()
        if reading.value is not None and reading.value["process"] == "relay"
    }
    values = {
        "transforms": app.positions() if graph.sub_topologies else None,
        "tables": app.table_positions() if graph.table_sinks else None,
        "table_sinks": graph.table_sinks,
        "relays": relays,
        "history": app.history,
    }
    return Page("positions.html", "Positions", values)


def backfills_page(console: Console, fields: Fields) -> Page:
    """Return the page of the backfill jobs."""
    return Page("backfills.html", "Backfills", {"reading": console.backfills.look()})
