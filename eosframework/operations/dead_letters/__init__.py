"""Dead letters: listed, shown and replayed.

Owns reading a dead letter back into its record, the selection, the target topic of each selected
one, and the transaction that sends the record together with its replay mark. It does not run a
user's functions: the tasks do, as with any other record.
"""

from eosframework.operations.dead_letters.dead_letter import Letter
from eosframework.operations.dead_letters.dead_letter_reader import Group, Letters
from eosframework.operations.dead_letters.replay import Replayed, marks_of, replay
from eosframework.operations.dead_letters.replay_plan import Survey, survey
from eosframework.operations.dead_letters.selection import Choice, LetterPlace, moment_of
from eosframework.operations.dead_letters.targets import Target, targets

__all__ = [
    "Choice",
    "Group",
    "Letter",
    "LetterPlace",
    "Letters",
    "Replayed",
    "Survey",
    "Target",
    "marks_of",
    "moment_of",
    "replay",
    "survey",
    "targets",
]
