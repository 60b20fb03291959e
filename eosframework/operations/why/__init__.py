"""The cause of an output: its input record, transaction, steps and the state that it met.

Owns the search in logs and changelogs, and the task that runs the record again. It writes nothing
to the cluster, and shows nothing that the logs do not prove: what is not recorded it names.
"""

from eosframework.operations.why.cause import Cause, cause_of
from eosframework.operations.why.explanation import Explanation, as_text

__all__ = ["Cause", "Explanation", "as_text", "cause_of"]
