"""Audits: prove that each input record of an application took effect exactly once.

Owns the outputs that must exist (by receipts, or by running the same functions over the input), the
comparison with the records that a `read_committed` reader sees, and the verdict. It repairs nothing
and does not rely on the application's own state: it reads only topics and committed offsets.
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
