"""The start of workers on Spark: a session without speculation, checked executors, the fleet."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from eosframework.config import Settings
from eosframework.errors import ConfigurationError
from eosframework.process.progress import ProgressEvents, ProgressLine
from eosframework.process.supervisor import instances_for
from eosframework.spark.workers.fleet import Fleet
from eosframework.spark.workers.slot import Slot, SlotEnd

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUBMITTED = "spark-submit"
"""Master of a program that spark-submit has started, which names its master itself."""

BASE_INSTANCE = "spark"

DAEMON = "eosframework.spark.workers.daemon"


def run_on_spark(
    application: str,
    name: str,
    kinds: Sequence[str],
    settings: Settings,
    *,
    master: str,
    options: Mapping[str, str],
    workers: int,
    until_caught_up: bool,
) -> SlotEnd:
    """Run workers on a Spark cluster until they end or are asked to stop.

    Args:
        application: of `run-worker`.
        name: the application's name.
        kinds: of workers that it needs, in the order in which input flows.
        settings: of the workers.
        master: of Spark; `SUBMITTED`: that of spark-submit.
        options: properties of Spark, by name.
        workers: number of workers of each kind.
        until_caught_up: end once all input is processed.

    Raises:
        ConfigurationError: Spark cannot be started, or cannot run workers; nothing was started.
    """
    from eosframework.backfill.spark.jvm import quiet_bridge, quiet_server, stop_session
    from eosframework.backfill.spark.preflight import check_executors

    place = Path(application)
    application = str(place.resolve()) if place.exists() else application
    base = settings.worker.instance or BASE_INSTANCE
    of_kind = {
        kind: instances_for(base, workers, "" if kind == kinds[0] else kind) for kind in kinds
    }
    every = [instance for instances in of_kind.values() for instance in instances]
    kind_of = {instance: kind for kind, instances in of_kind.items() for instance in instances}

    def make_slot(instance: str, driver: tuple[str, int], key: bytes) -> Slot:
        kind = kind_of[instance]
        return Slot(
            application, name, settings, kind, instance, every, driver, key, until_caught_up
        )

    quiet_bridge()
    session = _session(None if master == SUBMITTED else master, options)
    quiet_server(session)
    try:
        check_executors(session)
        end = SlotEnd(0, "", "")
        for stage in of_kind.values() if until_caught_up else [every]:
            deadline_seconds = settings.worker.stop_deadline_seconds + 20
            fleet = Fleet(session.sparkContext, make_slot, stage, deadline_seconds)
            end = _run_shown(fleet)
            if end.exit_code or fleet.is_stopping:
                break
        return end
    finally:
        stop_session(session)


def _run_shown(fleet: Fleet) -> SlotEnd:
    """Run a fleet; show its progress on the terminal, or in the log."""
    if not sys.stderr.isatty():
        return fleet.run(ProgressEvents())
    with ProgressLine() as line:
        return fleet.run(line)


def _session(master: str | None, options: Mapping[str, str]) -> SparkSession:
    """Return a session on which a task has an executor for itself, and is never copied.

    Raises:
        ConfigurationError: the running session, or an option, says otherwise.
    """
    from eosframework.backfill.spark.spark_session import live_session

    cores = options.get("spark.executor.cores", "1")
    needed = {"spark.speculation": "false", "spark.task.cpus": cores}
    options = {"spark.python.daemon.module": DAEMON, **options}
    if master is not None and not master.startswith("local"):
        needed["spark.executor.cores"] = cores
    for key, value in needed.items():
        if options.get(key, value) != value:
            raise ConfigurationError(
                f"--spark {key}={options[key]} cannot be used for workers: each has an executor "
                f"for itself, and is never copied; leave it out"
            )
    session = live_session(master, {**options, **needed})
    context = session.sparkContext
    running = dict(context.getConf().getAll())
    if running.get("spark.speculation", "false") == "true":
        raise ConfigurationError(
            "this Spark application copies slow tasks (spark.speculation=true), and a copy of a "
            "worker fences it; start it with --conf spark.speculation=false"
        )
    cores = running.get("spark.executor.cores", "1")
    if not str(context.master).startswith("local") and running.get("spark.task.cpus", "1") != cores:
        raise ConfigurationError(
            f"this Spark application runs several tasks in an executor of {cores} cores; start it "
            f"with --conf spark.task.cpus={cores}, so that each worker has one for itself"
        )
    return session
