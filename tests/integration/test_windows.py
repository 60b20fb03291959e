"""Windows on a real broker, through a restart that finds no stores."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from tests.conftest import KafkaService
from tests.support.applications.pipeline import wait_until
from tests.support.applications.windowed import Windowed


def test_windows_go_out_once_each_and_survive_the_loss_of_their_stores(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    name = unique_name("windows")
    windowed = Windowed(kafka.bootstrap_servers, name, tmp_path / name)
    try:
        windowed.feed(1000)
        worker = windowed.start_worker(until_caught_up=True, settings=windowed.keeping)
        assert worker.wait() == 0, worker.log[-3000:]
        assert len(windowed.results("counted")) == 90, "the last ten are open"
        shutil.rmtree(windowed.state)
        worker = windowed.start_worker(settings=windowed.keeping)
        wait_until(windowed.is_complete, "the clock to close what nothing comes for")
        windowed.feed(1000)
        wait_until(windowed.is_complete, "every window")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log[-3000:]
        assert windowed.findings() == []
    finally:
        windowed.stop()
