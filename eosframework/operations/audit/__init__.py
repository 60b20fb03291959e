"""Proves that each input record of an application took effect exactly once, or shows where not.

Owns what must be there, by the receipts of the outputs or by the same functions run over the
input again, the comparison with what a `read_committed` reader sees, and the verdict. Refuses to
repair anything and to believe the application: it looks only at topics and at the group's
committed positions.
"""

from eosframework.operations.audit.application import Proof, audit_application
from eosframework.operations.audit.bounds import Bound, Scope
from eosframework.operations.audit.comparison import compare
from eosframework.operations.audit.ledger import Ledger
from eosframework.operations.audit.verdict import Detail, Verdict

__all__ = [
    "Bound",
    "Detail",
    "Ledger",
    "Proof",
    "Scope",
    "Verdict",
    "audit_application",
    "compare",
]
