"""Rates of the edges inside a sub-topology, as far as they follow from those of topics.

Workers count the records of topics, not of steps: a counter in each step would cost each record.
Most edges follow from two rules: a step sends the same records to each of its followers, and some
operators send exactly one record for each that they get.

Internal: no module here is public.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from eosframework.operations.console.topology_view import Passing, TopologyView


@dataclass(slots=True)
class _Ends:
    """The edges of a step, by their numbers."""

    incoming: list[int] = field(default_factory=list[int])
    outgoing: list[int] = field(default_factory=list[int])


def edge_rates(view: TopologyView, topics: Mapping[str, float | None]) -> tuple[float | None, ...]:
    """Return the records per second of each edge of a view; None: it does not follow.

    Args:
        view: of the topology.
        topics: records per second of each topic; None: not known.
    """
    writers = Counter(edge.topic for edge in view.edges if edge.topic and not edge.is_read)
    rates: list[float | None] = [
        topics.get(edge.topic)
        if edge.topic is not None and (edge.is_read or writers[edge.topic] == 1)
        else None
        for edge in view.edges
    ]
    ends = {node.id: _Ends() for node in view.nodes if node.kind == "step"}
    for number, edge in enumerate(view.edges):
        if edge.is_side:
            continue
        if edge.source in ends:
            ends[edge.source].outgoing.append(number)
        if edge.target in ends:
            ends[edge.target].incoming.append(number)
    steps = [(node.passing, ends[node.id]) for node in view.nodes if node.id in ends]
    while any([_fill(rates, passing, own) for passing, own in steps]):
        pass
    return tuple(rates)


def _fill(rates: list[float | None], passing: Passing, own: _Ends) -> bool:
    """Fill in what follows at a step; return whether something did."""
    if passing is Passing.SPLITS:
        return False
    incoming = [rates[number] for number in own.incoming]
    known = [rate for rate in incoming if rate is not None]
    sent = next((r for r in (rates[n] for n in own.outgoing) if r is not None), None)
    if sent is None and passing is Passing.ONE_TO_ONE and known and len(known) == len(incoming):
        sent = sum(known)
    if sent is None:
        return False
    filled = [number for number in own.outgoing if rates[number] is None]
    for number in filled:
        rates[number] = sent
    unknown = [number for number in own.incoming if rates[number] is None]
    if passing is Passing.ONE_TO_ONE and len(unknown) == 1:
        rates[unknown[0]] = max(0.0, sent - sum(known))
        return True
    return bool(filled)
