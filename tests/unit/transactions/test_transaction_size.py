"""Sizes of transactions under a quota: simulated brokers count the bytes of ten seconds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eosframework.errors import RunError, TransactionThrottled
from eosframework.transactions.session.transaction_size import QUOTA_SECONDS, TransactionSize

TIMEOUT_SECONDS = 30.0
RECORD_BYTES = 1000
BACKLOG = 4000


class QuotaRun:
    """Sends a backlog, as a worker does: what is throttled for too long is sent again."""

    def __init__(self, quota: float) -> None:
        self.now = 0.0
        self.sent: list[tuple[float, int]] = []
        self.committed = 0
        self.failed = 0
        self.quota = quota
        self.size = TransactionSize(TIMEOUT_SECONDS, lambda: self.now)

    def throttle_seconds(self) -> float:
        """As brokers compute it: by the rate of the last ten seconds."""
        self.sent = [sent for sent in self.sent if sent[0] > self.now - QUOTA_SECONDS - 1]
        return max(0.0, sum(size for _, size in self.sent) / self.quota - QUOTA_SECONDS)

    def transaction(self) -> None:
        self.now += self.size.rest_seconds
        self.size.begin()
        room = self.size.room(0)
        records = BACKLOG if room is None else min(room, BACKLOG)
        self.size.wrote([("out", b"v" * RECORD_BYTES, None, 0, None, None, 0, None)] * records)
        self.sent.append((self.now, records * RECORD_BYTES))
        seconds = self.throttle_seconds()
        self.size.sent(records, seconds)
        if seconds <= TIMEOUT_SECONDS / 2:
            self.now += 0.1 + seconds
            self.size.committed()
            self.committed += records
            return
        self.failed += 1
        self.now += 0.1
        self.size.failed(records, seconds)
        self.size.refuse(TransactionThrottled("throttled", seconds=seconds))


@settings(max_examples=25)
@given(st.floats(RECORD_BYTES / TIMEOUT_SECONDS * 2, 10**8))
def test_there_is_progress_at_each_quota_at_which_a_record_takes_half_of_the_timeout(
    quota: float,
) -> None:
    run = QuotaRun(quota)
    while run.committed < 10:
        run.transaction()
    assert run.failed <= 15
    assert run.now < 300 + 10 * 2 * RECORD_BYTES / quota


@settings(max_examples=25)
@given(st.floats(RECORD_BYTES / 10, 10**5))
def test_at_least_half_of_what_a_quota_allows_is_committed(quota: float) -> None:
    run = QuotaRun(quota)
    while run.now < 200:
        run.transaction()
    assert run.committed * RECORD_BYTES >= quota * 200 / 2


@settings(max_examples=25)
@given(st.floats(0.1, RECORD_BYTES / (TIMEOUT_SECONDS / 2 + QUOTA_SECONDS) - 1))
def test_a_lower_quota_is_refused_with_its_numbers(quota: float) -> None:
    run = QuotaRun(quota)
    run.transaction()
    while run.size.limit != 1 or run.failed < 2:
        run.transaction()
    with pytest.raises(RunError) as error:
        run.transaction()
    assert run.committed == 0
    assert f"about {quota:,.0f} bytes/s" in str(error.value)
    assert f"{RECORD_BYTES:,} bytes" in str(error.value)
    assert "worker.transaction_timeout_seconds=30" in str(error.value)


def test_the_limit_ends_after_the_quota() -> None:
    run = QuotaRun(20_000)
    while run.committed < 100:
        run.transaction()
    assert run.size.limit is not None
    run.quota = 1e12
    until = run.now + 300
    while run.size.limit is not None and run.now < until:
        run.transaction()
    assert run.size.limit is None
