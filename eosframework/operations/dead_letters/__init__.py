"""Dead letters: listed, shown and replayed.

Owns reading a dead letter back into its record, the selection, the target topic of each selected
one, and the transaction that sends the record together with its replay mark. It does not run a
user's functions: the tasks do, as with any other record.
"""

from eosframework.operations.dead_letters.dead_letter import DeadLetter
from eosframework.operations.dead_letters.dead_letter_reader import (
    DeadLetters,
    Group,
    dead_letters_of,
)
from eosframework.operations.dead_letters.replay import Replayed, marked_of, marks_of, replay
from eosframework.operations.dead_letters.replay_plan import (
    ReplayPlan,
    Target,
    plan_replay,
    targets,
)
from eosframework.operations.dead_letters.selection import Choice, DeadLetterPlace, moment_of

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
    "marks_of",
    "moment_of",
    "plan_replay",
    "replay",
    "targets",
]
