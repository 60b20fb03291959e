"""Proves that each input record of an application took effect exactly once, or shows where not.

Owns what must be there, by the receipts of the outputs or by the same functions run over the
input again, the comparison with what a `read_committed` reader sees, and the verdict. Refuses to
repair anything and to believe the application: it looks only at topics and at the group's
committed positions.
"""

from eosframework.audit.application import Proof, audit_application
from eosframework.audit.bounds import Bound, Scope
from eosframework.audit.compare import compare
from eosframework.audit.ledger import Ledger
from eosframework.audit.verdict import Detail, Verdict

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
