"""The outcome of open records follows from what is left of their producer's history."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from eosframework.kafka.inspect.decisions import History, OpenRun, Verdict, verdict
from eosframework.kafka.inspect.formats import StateValue, TxnState
from eosframework.kafka.inspect.log_scan import SKEW_MILLISECONDS
from eosframework.kafka.inspect.transaction_trace import TracedTransaction, split
from eosframework.records import TopicPartition

OUT, LOG = TopicPartition("out", 0), TopicPartition("__transaction_state", 3)
SINCE_MS = 1_000_000
RUN = OpenRun(OUT, 7, (2, 2), SINCE_MS)
COMMIT, ABORT = TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT

Decided = tuple[TracedTransaction, bool]


def decided(
    state: TxnState, after_ms: int = 10, *, epoch: int = 2, has_marker: bool = False
) -> Decided:
    """A transaction that was decided some time after the last marker before the open records."""
    time_ms = SINCE_MS + after_ms
    value = StateValue(7, epoch, 60_000, state, (OUT,), time_ms, time_ms - 5)
    (entry,) = split([(after_ms, time_ms, value)])
    return entry, has_marker


def judged(*entries: Decided, is_complete: bool = True, run: OpenRun = RUN) -> Verdict:
    return verdict(run, [History("shop:late:0", LOG, entries, is_complete)], is_whole=True)


@pytest.mark.parametrize(
    ("entries", "outcome"),
    [
        ([decided(COMMIT)], True),
        ([decided(ABORT)], False),
        ([decided(COMMIT, 1, has_marker=True), decided(ABORT)], False),
        ([decided(ABORT, 1), decided(COMMIT, 2, has_marker=True), decided(COMMIT)], True),
        ([decided(COMMIT, 1), decided(COMMIT, 2)], True),
        ([decided(ABORT, -SKEW_MILLISECONDS - 1), decided(COMMIT)], True),
        ([decided(COMMIT, epoch=1), decided(ABORT, 20, epoch=3)], False),
        ([decided(COMMIT, has_marker=True)], False),
        ([], False),
    ],
    ids=[
        "committed",
        "aborted",
        "after one of the same epoch",
        "another one was ended by a later marker",
        "two with one decision",
        "one decided before the records were written",
        "other epochs; a fence raises it",
        "a delayed frame",
        "nothing in a complete history",
    ],
)
def test_the_outcome_is_that_of_the_transactions_without_a_marker(
    entries: Sequence[Decided], outcome: bool
) -> None:
    assert judged(*entries).is_committed is outcome


def test_records_of_a_committed_and_an_aborted_transaction_have_no_outcome() -> None:
    found = judged(decided(COMMIT, 1), decided(ABORT, 2))
    assert found.is_committed is None
    assert [candidate.is_committed for candidate in found.candidates] == [True, False]
    assert "committed at 1970-01-01 00:16:40 UTC ('shop:late:0', __transaction_state[3] at" in (
        found.reason
    )
    assert "or aborted at" in found.reason


def test_a_history_that_was_compacted_gives_no_outcome_and_names_what_is_left() -> None:
    found = judged(decided(COMMIT), is_complete=False)
    assert (found.is_committed, len(found.candidates)) == (None, 1)
    assert "compaction" in found.reason
    assert "committed at" in found.reason
    assert judged(is_complete=False).is_committed is None


@pytest.mark.parametrize(("is_whole", "outcome"), [(True, False), (False, None)])
def test_a_producer_without_a_state_wrote_in_no_transaction_unless_its_states_may_be_gone(
    is_whole: bool, outcome: bool | None
) -> None:
    assert verdict(RUN, [], is_whole=is_whole).is_committed is outcome
