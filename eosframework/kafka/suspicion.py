"""Decides whether a producer may still have a frame in flight, from the signs of `watch`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from eosframework.kafka.deadline import Deadline
from eosframework.kafka.watch import Sample, StatsSamples

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
        self._clean_generation: int | None = None
        self._known_faults: Mapping[str, int] = {}
        self._transaction_ended_microseconds = 0

    def transaction_ended(self) -> None:
        """Remember that the last call of a transaction returned just now."""
        self._transaction_ended_microseconds = _now_microseconds()

    def faults_since_clean(self, generation: int) -> Mapping[str, int] | None:
        """Return the faults that make the producer suspect; None: no frame can be in flight.

        1. If `generation` is the one last found clean, no socket of the process changed since.
        2. Otherwise wait for a sample newer than the end of the transaction: a fault that made
           librdkafka repeat a request of the transaction is counted in it.
        3. If no broker's count rose, this `generation` is clean for this producer.

        Args:
            generation: of the connection watch, looked at after the transaction ended.
        """
        if generation == self._clean_generation:
            return None
        sample = self._sample_after(self._transaction_ended_microseconds)
        if sample is None:
            return {"no statistics": 1}
        if sample.shows_more_than(self._known_faults):
            return sample.faults
        self._clean_generation = generation
        return None

    def take_faults_as_known(self) -> None:
        """Wait for a sample: what it counts happened before the first transaction."""
        sample = self._sample_after(_now_microseconds())
        self._known_faults = sample.faults if sample else {}

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
