"""The start of workers on Spark: a session without speculation, checked executors, the fleet."""

from __future__ import annotations

import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

import structlog

from eosframework.config import Settings
from eosframework.engine.worker.worker_plan import WorkerCounts
from eosframework.errors import ConfigurationError
from eosframework.process.progress import ProgressEvents, ProgressLine, total
from eosframework.process.signals import handled
from eosframework.process.supervisor import (
    PAUSE_SECONDS,
    QUICK_DEATHS,
    QUICK_SECONDS,
    Display,
    instances_for,
)
from eosframework.spark.session.executors import reason_of
from eosframework.spark.workers.slot import (
    LOST,
    Link,
    LinkClosed,
    Slot,
    SlotEnd,
    accepted,
    run_slot,
)

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_POLL_SECONDS = 0.05
_SPARE_POLL_SECONDS = 1.0
_WAITING_SECONDS = 30.0
"""Time after which a slot that no executor runs is named."""

MakeSlot = Callable[[str, tuple[str, int], bytes], Slot]
"""Makes the slot of an instance name, with the driver's address and the run's key."""


@dataclass(slots=True)
class _Place:
    """A slot as the driver sees it.

    Args:
        link: to the task that runs it; None: no task has connected.
        waits_since: clock time since which no task runs it.
        lost: clock times at which Spark lost its task lately.
    """

    slot: Slot
    link: Link | None = None
    host: str = ""
    counts: WorkerCounts = field(default_factory=WorkerCounts)
    done_counts: WorkerCounts = field(default_factory=WorkerCounts)
    waits_since: float | None = 0.0
    lost: list[float] = field(default_factory=list[float])
    end: SlotEnd | None = None


class _Fleet:
    """Workers that Spark places, until each has ended.

    Args:
        context: Spark's.
        make_slot: makes the slot of an instance name.
        instances: names of the workers.
        stop_deadline_seconds: time that workers have to stop before their jobs are cancelled.
    """

    def __init__(
        self,
        context: SparkContext,
        make_slot: MakeSlot,
        instances: Sequence[str],
        stop_deadline_seconds: float,
    ) -> None:
        self._context = context
        self._key = secrets.token_bytes(32)
        settings = dict(context.getConf().getAll())
        host = settings.get("spark.driver.host", socket.gethostname())
        bound = settings.get("spark.driver.bindAddress", host)
        self._server = socket.create_server((bound, 0), backlog=2 * len(instances))
        address = host, int(self._server.getsockname()[1])
        now = time.monotonic()
        self._places = {
            name: _Place(make_slot(name, address, self._key), waits_since=now) for name in instances
        }
        self._stop_deadline_seconds = stop_deadline_seconds
        self._stopping_since: float | None = None
        self._arrived: list[tuple[Link, Mapping[str, Any]]] = []
        self._events = structlog.get_logger("eosframework.spark")

    @property
    def is_stopping(self) -> bool:
        """True once the workers were asked to stop."""
        return self._stopping_since is not None

    def run(self, display: Display) -> SlotEnd:
        """Run until every worker has ended; SIGTERM and SIGINT stop them in order.

        Returns:
            The first end with an error, else any end.
        """
        keepers = [
            threading.Thread(target=self._keep, args=(place,), name=name, daemon=True)
            for name, place in self._places.items()
        ]
        threading.Thread(target=self._accept, name="links", daemon=True).start()
        threading.Thread(target=self._prepare_spares, name="spares", daemon=True).start()
        with handled(self._asked_to_stop):
            for keeper in keepers:
                keeper.start()
            try:
                while any(keeper.is_alive() for keeper in keepers):
                    self._turn(display)
                    time.sleep(_POLL_SECONDS)
            finally:
                with suppress(OSError):
                    self._server.shutdown(socket.SHUT_RDWR)
                self._server.close()
        ends = [place.end for place in self._places.values() if place.end is not None]
        return next((end for end in ends if end.exit_code), ends[0])

    # --- main thread --------------------------------------------------------------------

    def _turn(self, display: Display) -> None:
        while self._arrived:
            self._connected(*self._arrived.pop(0))
        for place in self._places.values():
            if place.link is not None:
                self._read(place, place.link)
            elif place.end is None:
                self._name_waiting(place)
            if place.end is not None and place.end.exit_code and not self.is_stopping:
                self._stop()
        since = self._stopping_since
        if since is not None and time.monotonic() > since + self._stop_deadline_seconds:
            self._stopping_since = float("inf")
            self._events.warning("workers_killed", after_seconds=self._stop_deadline_seconds)
            self._context.cancelAllJobs()
        counts = [c for p in self._places.values() for c in (p.done_counts, p.counts)]
        display.show(total(counts))

    def _connected(self, link: Link, hello: Mapping[str, Any]) -> None:
        place = self._places.get(str(hello.get("instance")))
        if place is None:
            link.close()
            return
        if place.link is not None:
            # Spark took the first task for lost. It ends when its connection does.
            self._disconnected(place, place.link)
        place.link, place.host, place.waits_since = link, str(hello.get("host")), None
        self._events.info("worker_placed", instance=place.slot.instance, host=place.host)
        if self.is_stopping:
            self._ask_to_stop(place)

    def _read(self, place: _Place, link: Link) -> None:
        try:
            while (message := link.received()) is not None:
                place.counts = WorkerCounts(**message["counts"])
        except LinkClosed:
            self._disconnected(place, link)

    def _disconnected(self, place: _Place, link: Link) -> None:
        link.close()
        place.link, place.waits_since = None, time.monotonic()
        place.done_counts = total([place.done_counts, place.counts])
        place.done_counts.lag = place.done_counts.restoring = 0
        place.counts = WorkerCounts()

    def _name_waiting(self, place: _Place) -> None:
        since = place.waits_since
        if since is not None and time.monotonic() > since + _WAITING_SECONDS:
            place.waits_since = None
            self._events.warning(
                "worker_waits_for_an_executor",
                instance=place.slot.instance,
                remedy="give the Spark application more executors, or start fewer --workers",
            )

    def _asked_to_stop(self, number: int, frame: FrameType | None) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._stopping_since is None:
            self._stopping_since = time.monotonic()
            for place in self._places.values():
                self._ask_to_stop(place)

    def _ask_to_stop(self, place: _Place) -> None:
        if place.link is None:
            # No task has connected: it is asked when it does, or never starts.
            self._context.cancelJobGroup(self._group(place))
            return
        with suppress(LinkClosed):
            place.link.send({"stop": True})

    # --- threads ------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                taken, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._greet, args=(taken,), daemon=True).start()

    def _greet(self, taken: socket.socket) -> None:
        with suppress(LinkClosed):
            link = accepted(taken, self._key)
            hello = link.first()
            self._arrived.append((link, hello))

    def _keep(self, place: _Place) -> None:
        """Run the job of a slot; again as long as Spark loses it."""
        from py4j.protocol import Py4JError, Py4JNetworkError  # pyright: ignore[reportMissingTypeStubs]

        instance = place.slot.instance
        self._context.setJobGroup(self._group(place), f"worker {instance}", interruptOnCancel=True)
        while place.end is None:
            try:
                [end] = self._context.parallelize([place.slot], 1).map(run_slot).collect()
            except Py4JNetworkError as error:
                place.end = SlotEnd(1, f"the driver's JVM has ended: {error}", "")
            except Py4JError as error:
                if self.is_stopping:
                    place.end = SlotEnd(0, "", place.host)
                    return
                self._lost(place, reason_of(error))
            else:
                if end.exit_code != LOST or self.is_stopping:
                    place.end = end
                else:
                    self._lost(place, end.message)

    def _prepare_spares(self) -> None:
        """Start Python's daemon on executors without a worker, so that one can start there at once.

        Only while each worker is placed: a task here would keep a worker waiting.
        """
        from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]

        scheduler: Any = cast(Any, self._context)._jsc.sc()  # noqa: SLF001
        prepared: set[str] = set()
        while not self.is_stopping:
            running = [place for place in self._places.values() if place.end is None]
            try:
                found = set(str(scheduler.getExecutorIds().mkString(" ")).split())
                spares = len(found) - len(running)
                if found - prepared and spares > 0 and all(place.link for place in running):
                    self._context.parallelize(range(spares), spares).map(abs).collect()
                    prepared = found
            except Py4JError:
                return
            time.sleep(_SPARE_POLL_SECONDS)

    def _lost(self, place: _Place, reason: str) -> None:
        now = time.monotonic()
        place.lost = [t for t in place.lost if now - t < QUICK_SECONDS] + [now]
        pause_seconds = PAUSE_SECONDS if len(place.lost) > QUICK_DEATHS else 0.0
        self._events.warning(
            "worker_lost",
            instance=place.slot.instance,
            host=place.host,
            error=reason,
            restart_in_seconds=pause_seconds,
        )
        time.sleep(pause_seconds)

    def _group(self, place: _Place) -> str:
        return f"{place.slot.name}.{place.slot.instance}"


_SUBMITTED = "spark-submit"
"""Master of a program that spark-submit has started, which names its master itself."""

_BASE_INSTANCE = "spark"

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
        master: of Spark; `_SUBMITTED`: that of spark-submit.
        options: properties of Spark, by name.
        workers: number of workers of each kind.
        until_caught_up: end once all input is processed.

    Raises:
        ConfigurationError: Spark cannot be started, or cannot run workers; nothing was started.
    """
    from eosframework.spark.session.spark_session import (
        check_executors,
        quiet_bridge,
        quiet_server,
        stop_session,
    )

    place = Path(application)
    application = str(place.resolve()) if place.exists() else application
    base = settings.worker.instance or _BASE_INSTANCE
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
    session = _session(None if master == _SUBMITTED else master, options)
    quiet_server(session)
    try:
        check_executors(session)
        end = SlotEnd(0, "", "")
        for stage in of_kind.values() if until_caught_up else [every]:
            deadline_seconds = settings.worker.stop_deadline_seconds + 20
            fleet = _Fleet(session.sparkContext, make_slot, stage, deadline_seconds)
            end = _run_shown(fleet)
            if end.exit_code or fleet.is_stopping:
                break
        return end
    finally:
        stop_session(session)


def _run_shown(fleet: _Fleet) -> SlotEnd:
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
    from eosframework.spark.session.spark_session import live_session

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
