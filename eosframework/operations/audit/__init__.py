"""Audits: prove that each input record of an application took effect exactly once.

Owns the outputs that must exist (by receipts, or by running the same functions over the input), the
comparison with the records that a `read_committed` reader sees, and the verdict. It repairs nothing
and does not rely on the application's own state: it reads only topics and committed offsets.
"""

from eosframework.operations.audit.application_audit import Proof, audit_application, audit_topology
from eosframework.operations.audit.audit_verdict import Bound, Detail, Scope, Verdict
from eosframework.operations.audit.output_comparison import Ledger, compare

__all__ = [
    "Bound",
    "Detail",
    "Ledger",
    "Proof",
    "Scope",
    "Verdict",
    "audit_application",
    "audit_topology",
    "compare",
]
