"""Windows on a real broker, through a restart that finds no stores."""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import KafkaService
from tests.support.applications.feeding import feeder
from tests.support.applications.pipeline import wait_until
from tests.support.applications.windowed import Windowed


@pytest.mark.exhaustive
@pytest.mark.slow
def test_windows_go_out_once_each_and_survive_the_loss_of_their_stores(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    name = unique_name("windows")
    windowed = Windowed(kafka.bootstrap_servers, name, tmp_path / name)
    try:
        windowed.feed(1000)
        windowed.finish(settings=windowed.keeping)
        assert len(windowed.results("counted")) == 90, "the last ten are open"
        shutil.rmtree(windowed.state)
        worker = windowed.start_worker(settings=windowed.keeping)
        wait_until(windowed.is_complete, "the clock to close what nothing comes for")
        windowed.feed(1000)
        wait_until(windowed.is_complete, "every window")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log[-3000:]
        assert windowed.findings() == []
        assert_late_records_are_reported(windowed)
    finally:
        windowed.stop()


def assert_late_records_are_reported(windowed: Windowed) -> None:
    """The first warning comes with the first late record; the last one when a worker ends.

    Visits get their records in order: those of the latest time of their source wait for a run that
    finds no input.
    """
    producer = feeder(windowed.bootstrap_servers)
    for number in range(7):
        producer.produce(windowed.source, json.dumps({"n": number}), timestamp=1)
    assert producer.flush(60) == 0
    workers = windowed.finish_all(settings=windowed.keeping)
    assert len(windowed.read(f"{windowed.name}.late")) == 2 * 7
    reported: Counter[tuple[str, str]] = Counter()
    for event in (event for worker in workers for event in worker.events("late_records")):
        reported[str(event["step"]), str(event["topic"])] += int(str(event["new"]))
    own = f"{windowed.name}-"
    assert reported == {
        ("counted.steps[0] count()", f"{own}counted-repartition"): 7,
        ("visits.steps[0] count()", f"{own}visits-repartition"): 7,
    }
