"""Dead letters: what there are of, what is in one, and their way through the topology again.

Owns how a letter is read back into the record it was, which are chosen, where a chosen one goes,
and the transaction in which it goes there together with the mark that it did. Refuses to run a
user's functions: the tasks do that, as with any other record.
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
