"""What may become of a topology whose workers have run: which change asks for what.

It owns what is remembered of a topology, the table of changes, and their comparison. It is pure,
and refuses to know where the memory lies and who runs: `kafka/upgrades.py` does.
"""

from eosframework.upgrading.changes import Change, changes_between
from eosframework.upgrading.recorded import (
    RecordedPart,
    RecordedStore,
    RecordedTopology,
    RecordedWay,
    recorded,
)
from eosframework.upgrading.rules import Rule, Verdict, as_markdown, rules

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
