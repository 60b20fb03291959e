"""A worker that is fenced runs again once; a second fence is a rival's."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException
from structlog.testing import capture_logs

from eosframework.application.composition.worker_start import RIVAL_SECONDS, OwnFences
from eosframework.engine.worker.worker_plan import WorkerCounts
from eosframework.errors import InstanceFenced
from eosframework.kafka.taxonomy import Call, InstanceReplaced, exception_for


def replaced() -> InstanceReplaced:
    error = KafkaException(KafkaError(KafkaError.FENCED_INSTANCE_ID))
    raised = exception_for(error, Call.CONSUME, transactional_id=None)
    assert isinstance(raised, InstanceReplaced)
    return raised


class Runs:
    """Runs of a worker that processes ten records each, and is fenced at some times.

    Args:
        fences: how many runs end fenced.
        lasts: seconds of each run.
    """

    def __init__(self, fences: int, lasts: float = 1.0) -> None:
        self.started = 0
        self.reported: list[int] = []
        self.counts = WorkerCounts()
        self._fences, self._lasts, self._now = fences, lasts, 0.0

    def clock(self) -> float:
        return self._now

    def run(self) -> None:
        own = OwnFences("one", self.clock)
        while self.started <= self._fences:
            self.started += 1
            self._now += self._lasts
            for records in (5, 10):
                self.counts = own.with_former(WorkerCounts(records=records, lag=7))
                self.reported.append(self.counts.records)
            if self.started <= self._fences:
                own.excuse(replaced())
        self.counts = own.with_former(WorkerCounts(records=10))


def test_a_worker_that_its_own_request_fenced_runs_again_and_its_counts_go_on() -> None:
    runs = Runs(fences=1)
    with capture_logs() as events:
        runs.run()
    assert (runs.started, runs.counts.records, runs.counts.lag) == (2, 20, 0)
    assert runs.reported == [5, 10, 15, 20]
    [event] = events
    assert (event["event"], event["instance"]) == ("worker_fenced", "one")


def test_a_rival_that_fences_it_again_ends_it() -> None:
    runs = Runs(fences=2, lasts=RIVAL_SECONDS / 2)
    with pytest.raises(InstanceFenced):
        runs.run()
    assert runs.started == 2


def test_fences_that_are_far_apart_are_no_rivals() -> None:
    runs = Runs(fences=3, lasts=RIVAL_SECONDS)
    runs.run()
    assert runs.counts.records == 40
