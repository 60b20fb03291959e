"""The doctor: settings and cluster state that break an application's guarantee.

Owns the table of checks. `snapshot_collection` reads the cluster and judges nothing; the checks are
pure functions of its snapshot. The doctor changes nothing: it writes no record, joins no group and
takes no transactional id.
"""

from eosframework.operations.doctor.examination import CHECKS, Report, examine
from eosframework.operations.doctor.findings import Check, Finding, Severity
from eosframework.operations.doctor.snapshot_collection import take_snapshot

__all__ = ["CHECKS", "Check", "Finding", "Report", "Severity", "examine", "take_snapshot"]
