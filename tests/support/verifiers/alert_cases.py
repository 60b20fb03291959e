"""Of each alert, series with which it fires, and series with which it does not."""

from __future__ import annotations

from collections.abc import Mapping

Series = Mapping[str, str]
"""By series, values a minute apart, as promtool writes them: from, step, how often."""


def histogram(metric: str, bound: str, *, slow: bool) -> Series:
    """A histogram whose values are all at most `bound`, or all between that and 30 s."""
    values = {bound: "0x60" if slow else "0+60x60", "30": "0+60x60", "+Inf": "0+60x60"}
    name = f"eosframework_{metric}_bucket"
    return {f'{name}{{application="a",le="{le}"}}': rise for le, rise in values.items()}


CASES: dict[str, tuple[Series, Series]] = {
    "EosProcessGone": (
        {'up{job="eosframework",instance="i"}': "0x60"},
        {'up{job="eosframework",instance="i"}': "1x60", 'up{job="other",instance="i"}': "0x60"},
    ),
    "EosNotReady": (
        {'eosframework_ready{application="a"}': "0x60"},
        {'eosframework_ready{application="a"}': "0 0 0 1 0 0 0 1 1 1 0 0 1 1 1 1 1 1 1 1 0 0 1"},
    ),
    "EosLagGrows": (
        {'eosframework_lag_records{application="a",topic="t"}': "0+1000x60"},
        {'eosframework_lag_records{application="a",topic="t"}': "90000-1000x60"},
    ),
    "EosHeldBack": (
        {
            'eosframework_held_back_records{application="a",topic="t"}': "1x60",
            'eosframework_records_read_total{application="a",topic="t"}': "7x60",
        },
        {
            'eosframework_held_back_records{application="a",topic="t"}': "5x60",
            'eosframework_records_read_total{application="a",topic="t"}': "0+60x60",
        },
    ),
    "EosAborts": (
        {
            'eosframework_transactions_total{application="a",outcome="committed"}': "0+90x60",
            'eosframework_transactions_total{application="a",outcome="aborted"}': "0+10x60",
        },
        {
            'eosframework_transactions_total{application="a",outcome="committed"}': "0+9000x60",
            'eosframework_transactions_total{application="a",outcome="aborted"}': "0+10x60",
        },
    ),
    "EosFenced": (
        {'eosframework_fences_total{application="a"}': "0+1x60"},
        {'eosframework_fences_total{application="a"}': "0x20 1x40"},
    ),
    "EosUnknownOutcomes": (
        {'eosframework_unknown_outcomes_total{application="a"}': "0+1x60"},
        {'eosframework_unknown_outcomes_total{application="a"}': "0x20 4x40"},
    ),
    "EosRecycles": (
        {'eosframework_producer_recycles_total{application="a"}': "0+10x60"},
        {'eosframework_producer_recycles_total{application="a"}': "0x20 10x40"},
    ),
    "EosDeadLetters": (
        {'eosframework_dead_letters_total{application="a"}': "0x55 3x5"},
        {'eosframework_dead_letters_total{application="a"}': "3x60"},
    ),
    "EosRestoring": (
        {'eosframework_restore_records{application="a"}': "90000-100x60"},
        {'eosframework_restore_records{application="a"}': "5000x20 0x40"},
    ),
    "EosStreamTimeHeld": (
        {'eosframework_upstream_tasks_missing{application="a"}': "2x60"},
        {'eosframework_upstream_tasks_missing{application="a"}': "2x5 0x55"},
    ),
    "EosCommitsSlow": (
        histogram("commit_seconds", "0.1", slow=True),
        histogram("commit_seconds", "0.1", slow=False),
    ),
    "EosTransactionsLong": (
        histogram("transaction_seconds", "1", slow=True),
        histogram("transaction_seconds", "1", slow=False),
    ),
    "EosRebalances": (
        {'eosframework_rebalances_total{application="a"}': "0+2x60"},
        {'eosframework_rebalances_total{application="a"}': "0x30 4x30"},
    ),
    "EosDatabaseAway": (
        {'eosframework_database_retries_total{application="a"}': "0+10x60"},
        {'eosframework_database_retries_total{application="a"}': "0x20 2x40"},
    ),
    "EosOutboxWaits": (
        {'eosframework_outbox_backlog_seconds{application="a"}': "0+60x60"},
        {'eosframework_outbox_backlog_seconds{application="a"}': "0 0 90 0 0 1x55"},
    ),
    "EosOutboxKeepsLog": (
        {'eosframework_outbox_backlog_bytes{application="a"}': "0+100000000x60"},
        {'eosframework_outbox_backlog_bytes{application="a"}': "50000000x60"},
    ),
}
"""Of each alert, series with which it fires within an hour, and such with which it does not."""
