"""The evolution of a topology: the changes since the one that ran before, and their consequences.

Takes a `graph.Graph` and the record of the topology that ran; gives a list of changes, each with
the rule that applies to it (`rules.yaml`). Pure: `application/topology_changes.py` stores the
record and knows which workers run.
"""

from eosframework.topology.evolution.recorded import (
    RecordedPart,
    RecordedRepartition,
    RecordedStore,
    RecordedTopology,
    recorded,
)
from eosframework.topology.evolution.topology_diff import (
    Change,
    Rule,
    Verdict,
    as_markdown,
    changes_between,
    follow_rows,
    rules,
)

__all__ = [
    "Change",
    "RecordedPart",
    "RecordedRepartition",
    "RecordedStore",
    "RecordedTopology",
    "Rule",
    "Verdict",
    "as_markdown",
    "changes_between",
    "follow_rows",
    "recorded",
    "rules",
]
