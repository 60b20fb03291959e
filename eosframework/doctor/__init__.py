"""The doctor: what stands between an application, its settings and its cluster and the promise.

Owns the table of checks and what each of them means. `collecting` asks the cluster and judges
nothing; the checks are pure functions of what it saw. Refuses to change anything: it writes no
record, joins no group and takes no transactional id.
"""

from eosframework.doctor.checks import CHECKS
from eosframework.doctor.collecting import take_snapshot
from eosframework.doctor.examining import Report, examine
from eosframework.doctor.findings import Check, Finding, Severity

__all__ = ["CHECKS", "Check", "Finding", "Report", "Severity", "examine", "take_snapshot"]
