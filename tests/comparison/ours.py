"""The applications that are compared; those of the folder java are the same.

Topic names begin with COMPARED_NAME.
"""

from __future__ import annotations

import os
from typing import Any

from eosframework import Topology, hopping, session, sliding, tumbling

NAME = os.environ.get("COMPARED_NAME", "compared")
GRACE = "2h"
HISTORY = "12h"
Value = dict[str, Any]


WINDOWS = {
    "tumbling": tumbling(hours=1),
    "hopping": hopping("2h", every="30m"),
    "sliding": sliding(hours=1),
    "session": session(minutes=30),
}


def declare_windows() -> Topology:
    app = Topology(f"{NAME}.ours.windows")
    flights = app.stream(f"{NAME}.in.flights", name="flights", key=str, value="json").group_by_key()
    for name, plain in (
        ("count", flights.count(store="count")),
        ("sum", flights.sum(miles, store="sum")),
        ("reduce", flights.reduce(later_and_miles, store="reduce")),
    ):
        plain.to(_output(name), value="json")

    for name, window in WINDOWS.items():
        windowed = flights.window(window, grace=GRACE)
        windowed.count(store=f"{name}.each").to(_output(f"{name}.each"))
        windowed.count(store=f"{name}.close", emit="close").to(_output(f"{name}.close"))
    reduced = flights.window(WINDOWS["tumbling"], grace=GRACE).reduce(later_and_miles, store="tre")
    reduced.to(_output("tumbling.reduce.each"))
    return app


def declare_unretained() -> Topology:
    app = Topology(f"{NAME}.ours.unretained")
    flights = app.stream(f"{NAME}.in.few", name="few", key=str, value="json").group_by_key()
    for name in ("tumbling", "session"):
        windowed = flights.window(WINDOWS[name], grace=GRACE)
        windowed.count(store=name, emit="close").to(_output(f"few.{name}.close"))
    return app


def declare_pairs() -> Topology:
    app = Topology(f"{NAME}.ours.pairs")
    departures = app.stream(f"{NAME}.in.departures", name="departures", key=str, value="json")
    landings = app.stream(f"{NAME}.in.landings", name="landings", key=str, value="json")
    for how in ("inner", "left", "outer"):
        pairs = departures.join_within(
            landings, both, before="0s", after="8h", grace=GRACE, how=how, store=how
        )
        pairs.to(_output(f"pairs.{how}"), value="json")
    return app


def declare_lookups() -> Topology:
    app = Topology(f"{NAME}.ours.lookups")
    departures = app.stream(f"{NAME}.in.departures", name="departures", key=str, value="json")
    rows = app.table(f"{NAME}.in.rows", name="rows", key=str, value="json")
    departures.join(rows, both).to(_output("lookup.inner"), value="json")
    departures.join(rows, both, how="left").to(_output("lookup.left"), value="json")
    return app


def declare_versions() -> Topology:
    app = Topology(f"{NAME}.ours.versions")
    departures = app.stream(f"{NAME}.in.departures", name="departures", key=str, value="json")
    rows = app.table(f"{NAME}.in.rows", name="rows", key=str, value="json", history=HISTORY)
    departures.join(rows, both).to(_output("versions.inner"), value="json")
    departures.join(rows, both, how="left").to(_output("versions.left"), value="json")
    return app


def declare_tables() -> Topology:
    app = Topology(f"{NAME}.ours.tables")
    departed = app.table(f"{NAME}.in.departed", name="departed", key=str, value="json")
    landed = app.table(f"{NAME}.in.rows", name="rows", key=str, value="json")
    for how in ("inner", "left", "outer"):
        departed.join(landed, both, how=how).to(_output(f"tables.{how}"), value="json")
    return app


def declare_cogroups() -> Topology:
    app = Topology(f"{NAME}.ours.cogroups")
    departures = app.stream(f"{NAME}.in.departures", name="departures", key=str, value="json")
    landings = app.stream(f"{NAME}.in.landings", name="landings", key=str, value="json")
    adds = {departures.group_by_key(): departed, landings.group_by_key(): landed}
    plain = app.cogroup(adds, initial=nothing, store="met")
    plain.to(_output("cogroup"), value="json")
    hours: dict[str, Any] = {"window": WINDOWS["tumbling"], "grace": GRACE, "initial": nothing}
    app.cogroup(adds, **hours, store="each").to(_output("cogroup.tumbling.each"))
    closed = app.cogroup(adds, **hours, store="close", emit="close")
    closed.to(_output("cogroup.tumbling.close"))
    return app


def nothing() -> Value:
    return {}


def departed(met: Value, flight: Value) -> Value:
    return _added(met, "departures", flight)


def landed(met: Value, flight: Value) -> Value:
    return _added(met, "landings", flight)


def _added(met: Value, kind: str, flight: Value) -> Value:
    """Add a flight, with the number of the last one: the order of records shows."""
    return {**met, kind: met.get(kind, 0) + 1, "last": f"{kind} {flight['n']}"}


def miles(flight: Value) -> int:
    return flight["miles"]


def later_and_miles(former: Value, later: Value) -> Value:
    """Add the miles, with the number of the later one: the order of records shows."""
    return {"n": later["n"], "miles": former["miles"] + later["miles"]}


def both(left: Value | None, right: Value | None) -> dict[str, Value | None]:
    return {"left": left, "right": right}


def _output(name: str) -> str:
    return f"{NAME}.ours.{name}"


windows = declare_windows()
unretained = declare_unretained()
pairs = declare_pairs()
lookups = declare_lookups()
versions = declare_versions()
tables = declare_tables()
cogroups = declare_cogroups()
