"""A worker that is fenced runs again once; a second fence is a rival's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException
from structlog.testing import capture_logs

from eosframework.application.composition.own_fence import (
    RIVAL_SECONDS,
    Report,
    run_through_own_fence,
)
from eosframework.engine.worker.worker_plan import WorkerCounts
from eosframework.errors import EosError, InstanceFenced, RunError
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
        self._fences, self._lasts, self._now = fences, lasts, 0.0

    def clock(self) -> float:
        return self._now

    def run(self, report: Report) -> WorkerCounts:
        self.started += 1
        self._now += self._lasts
        for records in (5, 10):
            counts = WorkerCounts(records=records, lag=7)
            self.reported.append(report(counts).records)
        if self.started <= self._fences:
            raise replaced()
        return WorkerCounts(records=10)


def test_a_worker_that_its_own_request_fenced_runs_again_and_its_counts_go_on() -> None:
    runs = Runs(fences=1)
    with capture_logs() as events:
        counts = run_through_own_fence(runs.run, "one", runs.clock)
    assert (runs.started, counts.records, counts.lag) == (2, 20, 0)
    assert runs.reported == [5, 10, 15, 20]
    [event] = events
    assert (event["event"], event["instance"]) == ("worker_fenced", "one")


def test_a_rival_that_fences_it_again_ends_it() -> None:
    runs = Runs(fences=2, lasts=RIVAL_SECONDS / 2)
    with pytest.raises(InstanceFenced):
        run_through_own_fence(runs.run, "one", runs.clock)
    assert runs.started == 2


def test_fences_that_are_far_apart_are_no_rivals() -> None:
    runs = Runs(fences=3, lasts=RIVAL_SECONDS)
    assert run_through_own_fence(runs.run, "one", runs.clock).records == 40


@pytest.mark.parametrize("error", [RunError("a store is damaged"), InstanceFenced("3 times")])
def test_no_other_error_is_taken_for_a_fence_of_its_own(error: EosError) -> None:
    def fails(report: Callable[[WorkerCounts], WorkerCounts]) -> WorkerCounts:
        raise error

    with pytest.raises(type(error), match=str(error)), capture_logs() as events:
        run_through_own_fence(fails, "one")
    assert events == []
