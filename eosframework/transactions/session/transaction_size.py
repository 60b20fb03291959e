"""The size of transactions while a quota of the brokers throttles their producer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from eosframework.errors import RunError, TransactionThrottled
from eosframework.transactions.ports import Output

AIM_SHARE = 0.1
"""Share of the transaction timeout for which a transaction may be throttled before the next one
becomes smaller. It is below the timeout of a request, which would break the connection."""

UNLIMITED_RECORDS = 100_000
"""A limit above that has no effect, and ends."""

QUOTA_SECONDS = 10
"""Brokers compare a quota with the rate of the last 10 seconds (quota.window.num), so B bytes are
throttled for B / quota - 10 s."""


class TransactionSize:
    """The most records of a transaction; unlimited until brokers throttle.

    A limit follows the throttle time in proportion: half of it after each failure would take
    minutes from thousands of records to the few that a low quota allows.

    Args:
        timeout_seconds: the transaction timeout.
        clock: seconds, monotonic.
    """

    def __init__(self, timeout_seconds: float, clock: Callable[[], float]) -> None:
        self.limit: int | None = None
        self._clock = clock
        self._rests_until = self._grow_at = 0.0
        self._timeout_seconds = timeout_seconds
        self._aim_seconds = timeout_seconds * AIM_SHARE
        self._bytes = 0
        self._refused_alone = 0

    @property
    def rest_seconds(self) -> float:
        """The time for which the brokers still count what they throttled last."""
        return 0.0 if self.limit is None else max(0.0, self._rests_until - self._clock())

    def begin(self) -> None:
        """Begin to count the bytes of another transaction."""
        self._bytes = 0

    def wrote(self, outputs: Sequence[Output]) -> None:
        """Count outputs, which a message about the quota needs."""
        if self.limit is not None:
            self._bytes += sum(len(output[1] or b"") + len(output[2] or b"") for output in outputs)

    def room(self, records: int) -> int | None:
        """Return how many more records the open transaction of `records` may take; None: any."""
        return None if self.limit is None else max(self.limit - records, 0)

    def sent(self, records: int, throttled_seconds: float) -> None:
        """Choose the limit after a transaction, whatever its outcome.

        After one that was too large, or cannot be smaller, nothing is sent until the brokers have
        forgotten it: the next one is then throttled for nothing but itself.
        """
        if throttled_seconds > self._aim_seconds:
            if self.limit is None:
                structlog.get_logger("eosframework.worker").warning(
                    "transactions_limited",
                    records=records,
                    throttled_seconds=round(throttled_seconds, 3),
                )
            share = self._aim_seconds / throttled_seconds
            self.limit = max(1, int(min(records, self.limit or records) * share))
            self._grow_at = self._clock() + QUOTA_SECONDS
            if records <= 1 or throttled_seconds > self._timeout_seconds / 2:
                self._rests_until = self._clock() + QUOTA_SECONDS + 2
        elif self.limit is not None and self._clock() >= self._grow_at:
            # Not sooner: brokers throttle none of these 10 seconds, then all of them at once.
            self._grow_at = self._clock() + QUOTA_SECONDS
            self.limit = None if self.limit > UNLIMITED_RECORDS else self.limit * 2

    def failed(self, records: int, throttled_seconds: float) -> None:
        """Count transactions with a single record that are too large."""
        if throttled_seconds > self._timeout_seconds / 2:
            self._refused_alone = self._refused_alone + 1 if records <= 1 else 0

    def committed(self) -> None:
        """Note that a transaction was sent in time."""
        self._refused_alone = 0

    def refuse(self, error: TransactionThrottled) -> None:
        """Refuse a quota that is too low for two transactions with a single record in a row.

        Raises:
            RunError: names the quota, the bytes and the timeout.
        """
        if self._refused_alone > 1:
            quota = self._bytes / (error.seconds + QUOTA_SECONDS)
            raise RunError(
                f"{error}. It had one record, for which {self._bytes:,} bytes are written, so the "
                f"quota is about {quota:,.0f} bytes/s: they take longer than half of "
                f"worker.transaction_timeout_seconds={self._timeout_seconds:g}. Raise the quota "
                f"(producer_byte_rate of this user or client id), or the timeout"
            ) from error
