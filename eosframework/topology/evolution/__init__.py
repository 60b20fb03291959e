"""What may become of a topology whose workers have run: which change asks for what.

It owns what is remembered of a topology, the table of changes, and their comparison. It is pure,
and refuses to know where the memory lies and who runs: `application/topology_changes.py` does.
"""

from eosframework.topology.evolution.recorded import (
    RecordedPart,
    RecordedStore,
    RecordedTopology,
    RecordedWay,
    recorded,
)
from eosframework.topology.evolution.rules import Rule, Verdict, as_markdown, rules
from eosframework.topology.evolution.topology_diff import Change, changes_between

__all__ = [
    "Change",
    "RecordedPart",
    "RecordedStore",
    "RecordedTopology",
    "RecordedWay",
    "Rule",
    "Verdict",
    "as_markdown",
    "changes_between",
    "recorded",
    "rules",
]
