"""The same topology as delays.yaml, in Python."""

from __future__ import annotations

from flights import (
    HourlyDelays,
    add_delay,
    departure,
    destination,
    hourly_delays,
    no_delay,
    origin,
    shape,
    tail_number,
    with_airline,
    with_destination,
    with_plane,
    with_weather,
)

from eosframework import Topology, dead_letter, tumbling

app = Topology("delays")

broken = dead_letter("flights.dead")
flights = app.stream(
    "flights.landed",
    name="flights",
    key=str,
    value=dict,
    timestamp=departure,
    sub_topology="flights",
    on_error=broken,
)
airlines = app.global_table("airlines", key=str, value=dict)
airports = app.global_table("airports", key=str, value=dict)
planes = app.table("planes", key=str, value=dict)
weather = app.table("weather", key=str, value=dict, history="366d")

described = (
    flights.map_values(shape)
    .join(airlines, with_airline, how="left")
    .join(airports, with_destination, key=destination, how="left")
    .group_by(tail_number, name="by_plane")
    .join(planes, with_plane, how="left")
    .group_by(origin, name="by_origin")
    .join(weather, with_weather, how="left")
    .named("described")
)
described.to("flights.described")

hourly = (
    flights.group_by_key()
    .window(tumbling(hours=1), grace="6h", late="flights.too_late")
    .aggregate(no_delay, add_delay, emit="close", store="hourly")
    .named("hourly")
    .on_error(broken)
)
hourly.to("flights.hourly")
hourly.to_table("hourly_delays", mode="append", row=hourly_delays, model=HourlyDelays)
