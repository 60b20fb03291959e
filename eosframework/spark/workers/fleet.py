"""The driver's part: one Spark job for each slot, started again when Spark loses it (W1)."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

import structlog

from eosframework.backfill.spark.executor_failures import reason_of
from eosframework.process.progress import total
from eosframework.process.signals import handled
from eosframework.process.supervisor import PAUSE_SECONDS, QUICK_DEATHS, QUICK_SECONDS, Display
from eosframework.processing.worker_plan import WorkerCounts
from eosframework.spark.workers.link import Link, LinkClosed, accepted
from eosframework.spark.workers.slot import LOST, Slot, SlotEnd, run_slot

if TYPE_CHECKING:
    from pyspark import SparkContext

POLL_SECONDS = 0.05
SPARE_POLL_SECONDS = 1.0
WAITING_SECONDS = 30.0
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


class Fleet:
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
                    time.sleep(POLL_SECONDS)
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
        if since is not None and time.monotonic() > since + WAITING_SECONDS:
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
            time.sleep(SPARE_POLL_SECONDS)

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
