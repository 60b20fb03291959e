"""The doctor: what stands between an application, its settings and its cluster and the promise.

Owns the table of checks and what each of them means. `collecting` asks the cluster and judges
nothing; the checks are pure functions of what it saw. Refuses to change anything: it writes no
record, joins no group and takes no transactional id.
"""

from eosframework.operations.doctor.checks import CHECKS
from eosframework.operations.doctor.examination import Report, examine
from eosframework.operations.doctor.findings import Check, Finding, Severity
from eosframework.operations.doctor.snapshot_collection import take_snapshot

__all__ = ["CHECKS", "Check", "Finding", "Report", "Severity", "examine", "take_snapshot"]
