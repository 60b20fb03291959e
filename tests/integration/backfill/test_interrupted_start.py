"""Ctrl-C while Spark is being started leaves no process behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

import psutil
import pytest

from tests.support.applications.pipeline import wait_until
from tests.support.processes.programs import REPOSITORY
from tests.support.processes.waiting import PATIENCE_SECONDS

STARTING = """\
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from eosframework.spark.backfill import spark_session
spark_session(None, {})
"""


@pytest.mark.usefixtures("spark")  # where there is no Java for Spark, there is nothing to show
def test_a_jvm_that_is_being_started_ends_with_its_caller() -> None:
    caller = subprocess.Popen(
        [sys.executable, "-c", STARTING],
        cwd=REPOSITORY,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    found: list[psutil.Process] = []

    def has_jvm() -> bool:
        found[:] = _jvms(psutil.Process(caller.pid).children())
        return bool(found)

    try:
        wait_until(has_jvm, "a JVM is being started")
        caller.send_signal(signal.SIGINT)
        assert caller.wait(PATIENCE_SECONDS) != 0
        wait_until(lambda: not any(map(_runs, found)), "the JVM ends")
    finally:
        caller.kill()
        for jvm in filter(_runs, found):
            jvm.kill()


def _jvms(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    return [p for p in processes if _runs(p) and "java" in _program(p)]


def _program(process: psutil.Process) -> str:
    """Return what a process runs; nothing if it has ended meanwhile."""
    with suppress(psutil.Error):
        return "".join(process.cmdline()[:1])
    return ""


def _runs(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
