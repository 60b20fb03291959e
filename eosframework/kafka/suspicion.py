"""Decides whether a producer may still have a frame in flight, from the signs of `watch`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from eosframework.kafka.deadline import Deadline
from eosframework.kafka.watch import Look, Sample, StatsSamples

SAMPLE_SECONDS = 2.0
"""Without statistics for so long a producer counts as suspect."""


class Suspicion:
    """What is known about the connections of one producer.

    Args:
        samples: takes the producer's statistics.
        serve: polls the producer for at most the given seconds, so that statistics arrive.
    """

    def __init__(self, samples: StatsSamples, serve: Callable[[float], object]) -> None:
        self._samples = samples
        self._serve = serve
        self._clean: Look | None = None
        self._connected = False
        self._known_faults: Mapping[str, int] = {}
        self._transaction_ended_microseconds = 0

    def transaction_ended(self) -> None:
        """Remember that the last call of a transaction returned just now."""
        self._transaction_ended_microseconds = _now_microseconds()

    def faults_since_clean(self, look: Look) -> Mapping[str, int] | None:
        """Return the faults that make the producer suspect; None: no frame can be in flight.

        1. If no socket came or went since the look last found clean, and none was opened in
           between either, nothing was repeated: a repetition needs a connection that broke.
        2. If there was a connection to every broker then, the sockets alone say so: to break, a
           connection that was opened since must have taken the place of one that is gone.
        3. Otherwise wait for a sample newer than the end of the transaction: a fault that made
           librdkafka repeat a request of the transaction is counted in it.
        4. If no broker's count rose, this `look` is clean for this producer.

        Args:
            look: of the connection watch, taken after the transaction ended.
        """
        if self._is_clean(look):
            return None
        sample = self._sample_after(self._transaction_ended_microseconds)
        if sample is None:
            return {"no statistics": 1}
        if faults := sample.faults_beyond(self._known_faults):
            return faults
        self._clean, self._known_faults = look, sample.faults
        since = sample.connected_since_microseconds
        self._connected = since is not None and since <= self._transaction_ended_microseconds
        return None

    def take_faults_as_known(self) -> None:
        """Wait for a sample: what it counts happened before the first transaction."""
        sample = self._sample_after(_now_microseconds())
        self._known_faults = sample.faults if sample else {}

    def _is_clean(self, look: Look) -> bool:
        if self._clean is None or look.sockets != self._clean.sockets:
            return False
        return self._connected or look.opened == self._clean.opened

    def _sample_after(self, microseconds: int) -> Sample | None:
        deadline = Deadline(SAMPLE_SECONDS)
        while True:
            sample = self._samples.newest()
            if sample is not None and sample.taken_microseconds > microseconds:
                return sample
            if deadline.is_over:
                return None
            self._serve(deadline.timeout(at_most=0.05))


def _now_microseconds() -> int:
    """Return the time on CLOCK_MONOTONIC, as librdkafka stamps its statistics."""
    return time.monotonic_ns() // 1000
