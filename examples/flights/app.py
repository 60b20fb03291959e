"""The same topology as topology.yaml, in Python."""

from __future__ import annotations

from flights import departure, is_cancelled, is_late, shape

from eosframework import Topology, dead_letter

app = Topology("flights")

broken = dead_letter("flights.dead")
flights = app.stream(
    "flights.raw", name="flights", key=str, value=dict, timestamp=departure, on_error=broken
)
status = (
    flights.named("status")
    .on_error(broken)
    .branch(cancelled=is_cancelled, late=is_late, default="on_time")
)
for kind, stream in status.items():
    stream.map_values(shape).named(f"{kind}_flights").to(f"flights.{kind}")
