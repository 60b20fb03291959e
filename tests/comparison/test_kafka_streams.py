"""The same flights through this framework and Kafka Streams give the same, or what a rule says."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.comparison import pairs, rules, versions
from tests.comparison.both_sides import BothSides
from tests.comparison.flights import inputs
from tests.comparison.rules import Inputs, Output, Rule, Sides, counted
from tests.conftest import TOLD, KafkaService

FLIGHTS = 50_000


@dataclass(frozen=True)
class Case:
    """An output that is compared.

    Args:
        theirs: of Kafka Streams.
        ours: None: of the same name.
        rules: the known differences, in the order in which they apply.
        by_window: results are ordered in each window, and not across the windows of a key.
    """

    theirs: str
    ours: str | None = None
    rules: Sequence[Rule] = ()
    by_window: bool = False


OUTER = (
    pairs.pairs_after_an_interval,
    pairs.late_records_alone,
    pairs.alone_at_once_and_paired_afterwards,
    pairs.alone_before_others,
)
HISTORY = (
    versions.rows_older_than_the_history,
    versions.history_by_the_time_of_rows,
)
CASES = (
    Case("count"),
    Case("sum"),
    Case("reduce"),
    Case("tumbling.each"),
    Case("tumbling.reduce.each"),
    Case("tumbling.close"),
    Case("tumbling.suppressed", "tumbling.close"),
    Case("hopping.each"),
    Case("hopping.close"),
    Case("sliding.each", rules=[rules.late_records_missing_in_sliding_windows], by_window=True),
    Case("sliding.close", rules=[rules.late_records_missing_in_sliding_windows], by_window=True),
    Case(
        "session.each",
        rules=[rules.null_before_an_unchanged_session, rules.late_records_join_closed_sessions],
    ),
    Case("session.close", rules=[rules.late_records_join_closed_sessions]),
    Case(
        "session.suppressed",
        "session.close",
        [
            rules.sessions_suppressed_before_they_close,
            rules.late_records_join_closed_sessions,
        ],
    ),
    Case(
        "few.tumbling.close",
        rules=[rules.windows_forgotten_before_they_close],
        by_window=True,
    ),
    Case("few.session.close", rules=[rules.sessions_forgotten_before_they_close]),
    Case("pairs.inner", rules=[pairs.pairs_after_an_interval]),
    Case("pairs.left", rules=OUTER),
    Case("pairs.outer", rules=OUTER),
    Case("lookup.inner"),
    Case("lookup.left"),
    Case("versions.inner", rules=HISTORY),
    Case("versions.left", rules=HISTORY),
    Case("cogroup"),
    Case("cogroup.tumbling.each"),
    Case("cogroup.tumbling.close"),
    Case("tables.inner", rules=[rules.deletions_of_absent_rows]),
    Case("tables.left", rules=[rules.deletions_of_absent_rows]),
    Case("tables.outer", rules=[rules.deletions_of_absent_rows]),
)


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_the_same_flights_give_what_kafka_streams_gives_or_what_a_rule_says(
    kafka: KafkaService,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    seed: int,
) -> None:
    fed = inputs(FLIGHTS, seed)
    both = BothSides(kafka.bootstrap_servers, unique_name("compared"), tmp_path, fed)
    both.create_topics([case.theirs for case in CASES if not case.ours], [c.theirs for c in CASES])
    both.feed()
    both.run_theirs()
    both.run_ours()
    applied: Counter[str] = Counter()
    findings: list[str] = []
    for case in CASES:
        ours, theirs = both.ours(case.ours or case.theirs), both.theirs(case.theirs)
        assert ours, f"{case.theirs}: nothing was sent"
        findings += compared(case, fed, ours, theirs, applied)
    record_property(TOLD, f"rules applied: {dict(applied)}")
    assert findings == []
    wanted = {rule.__name__ for case in CASES for rule in case.rules}
    assert {name for name in wanted if applied[name] == 0} == set(), "rules that never apply"


def compared(
    case: Case,
    fed: Inputs,
    ours: Sequence[Output],
    theirs: Sequence[Output],
    applied: Counter[str],
) -> list[str]:
    """Return the keys whose results differ although all rules were applied."""
    for rule in case.rules:
        theirs, times = rule(Sides(fed, ours, theirs))
        applied[rule.__name__] += times
    mine, others = _sequences(case, ours), _sequences(case, theirs)
    keys = [key for key in {**mine, **others} if mine[key] != others[key]]
    return [
        f"{case.theirs}, {len(keys)} keys differ, as {key}: ours {_lacking(mine[key], others[key])}"
        f", Kafka Streams {_lacking(others[key], mine[key])}"
        for key in keys[:3]
    ]


def _sequences(case: Case, outputs: Sequence[Output]) -> defaultdict[Hashable, list[Output]]:
    found: defaultdict[Hashable, list[Output]] = defaultdict(list)
    for output in outputs:
        bounds = (output.value["start"], output.value["end"]) if case.by_window else ()
        found[output.key, *bounds].append(output)
    return found


def _lacking(results: Sequence[Output], others: Sequence[Output]) -> list[Output]:
    known = counted(others)
    return [result for result in results if repr(result) not in known][:3]
