"""Alerts on cards that spend too much, or are declined too often, within a time."""

from __future__ import annotations

from payments import (
    add,
    add_totals,
    are_guesses,
    guessed,
    is_approved,
    is_too_much,
    nothing_paid,
    paid_at,
    payment_id,
    spent_too_much,
)

from eosframework import Topology, dead_letter, hopping, session

app = Topology("payments")
broken = dead_letter("payments.dead")
payments = app.stream("payments", key="string", value="json", timestamp=paid_at, on_error=broken)

once = payments.group_by_key().deduplicate("1d", by=payment_id, store="seen")
approved, declined = once.on_error(broken).split(is_approved)

spent = (
    approved.group_by_key()
    .window(hopping("10m", every="5m"), grace="1m")
    .aggregate(nothing_paid, add, store="spent")
    .filter(is_too_much)
    .map_values(spent_too_much)
)
tried = (
    declined.group_by_key()
    .window(session(minutes=5), grace="1m")
    .aggregate(nothing_paid, add, merge=add_totals, emit="close", store="tried")
    .filter(are_guesses)
    .map_values(guessed)
)
once_spent = spent.group_by_key().deduplicate("10m", store="alerted")
once_spent.merge(tried).to("payments.alerts", value="json")
