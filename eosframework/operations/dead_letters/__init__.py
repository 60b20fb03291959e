"""Dead letters: listed, shown and replayed.

Owns reading a dead letter back into its record, the selection, the target topic of each selected
one, and the transaction that sends the record together with its replay mark. It does not run a
user's functions: the tasks do, as with any other record.
"""

from eosframework.operations.dead_letters.dead_letter import (
    Choice,
    DeadLetter,
    DeadLetterPlace,
    DeadLetters,
    Group,
    dead_letters_of,
    moment_of,
)
from eosframework.operations.dead_letters.replay import (
    Replayed,
    ReplayPlan,
    Target,
    marked_of,
    plan_replay,
    replay,
    targets,
)

__all__ = [
    "Choice",
    "DeadLetter",
    "DeadLetterPlace",
    "DeadLetters",
    "Group",
    "ReplayPlan",
    "Replayed",
    "Target",
    "dead_letters_of",
    "marked_of",
    "moment_of",
    "plan_replay",
    "replay",
    "targets",
]
