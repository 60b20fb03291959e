"""A worker in threads of a program, from its start to its end.

    state        next       when
    starting     running    every worker has passed its checks and joins its group
    starting     failed     nothing was started; the error is a UserError
    starting     stopping   it was asked to stop
    running      stopping   it was asked to stop, or the main thread has ended
    running      stopped    it is caught up
    running      failed     processing cannot continue; what was complete is committed
    stopping     stopped    what was complete is committed, and the group is left
    stopping     failed     the last commit or the start failed

The worker never runs in the program's main thread. So a signal never interrupts a transaction, and
a main thread that waits handles Ctrl-C although the worker waits inside librdkafka. It waits in
steps (`waited`): Python handles a signal in the main thread only, and the kernel may give it to
another one, and the main thread sleeps on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from eosframework.application.composition.worker import Kind, kinds
from eosframework.application.composition.worker_start import (
    run_embedded,
    settings_of_child,
    turn_seconds,
)
from eosframework.application.monitoring.owners import Owners
from eosframework.application.monitoring.stores_here import StoresHere
from eosframework.config import Settings
from eosframework.engine.stores.shared_stores import SharedStores
from eosframework.engine.worker.worker_plan import WorkerCounts
from eosframework.engine.worker.worker_views import WorkerView
from eosframework.errors import ClusterUnreachable, KeyElsewhere, StoreNotReady
from eosframework.kafka.client.partitioner import partition_of
from eosframework.process.instance import own_instance
from eosframework.process.progress import total
from eosframework.process.supervisor import instances_for
from eosframework.process.watchdog import EmbeddedWatch
from eosframework.state.query import QueriedStore
from eosframework.topology.graph.graph import Graph

LOOK_SECONDS = 0.5
"""Time between two snapshots of a worker, and the longest wait without handling signals."""


def waited(event: threading.Event, timeout_seconds: float | None = None) -> bool:
    """Wait for an event in steps, so that signals of other threads are handled in between."""
    deadline = float("inf") if timeout_seconds is None else time.monotonic() + timeout_seconds
    while not event.wait(min(LOOK_SECONDS, max(deadline - time.monotonic(), 0))):
        if time.monotonic() >= deadline:
            return False
    return True


class WorkerState(StrEnum):
    """The state of a running worker."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """The status of a running worker, at most a second old.

    Args:
        application: its name.
        state: `"starting"`, `"running"`, `"stopping"`, `"stopped"` or `"failed"`.
        tasks: the state of each task that this worker owns, by its name.
        records: number of input records processed since the start.
        lag: number of input records that are not processed yet, in the partitions of `tasks`.
        commits: number of committed transactions.
        skipped: number of failed records that were skipped.
        dead_letters: number of failed records that were sent to a dead-letter topic.
        retries: number of failed records that were sent to a retry topic.
        late: number of records that came too late for a window.
        restoring: number of changelog records to read before every task runs.
        error: the error that ended the worker; None: there is none.
    """

    application: str
    state: str
    tasks: Mapping[str, str] = field(default_factory=dict[str, str])
    records: int = 0
    lag: int = 0
    commits: int = 0
    skipped: int = 0
    dead_letters: int = 0
    retries: int = 0
    late: int = 0
    restoring: int = 0
    error: BaseException | None = None

    def __str__(self) -> str:
        """Return the status as one line."""
        texts = [f"{len(self.tasks)} tasks", f"{self.records:,} records", f"lag {self.lag:,}"]
        numbers = {
            "skipped": self.skipped,
            "dead letters": self.dead_letters,
            "retries": self.retries,
            "late": self.late,
            "to restore": self.restoring,
        }
        texts += [f"{name} {number:,}" for name, number in numbers.items() if number]
        if self.error is not None:
            texts.append(f"{type(self.error).__name__}: {self.error}")
        return f"{self.application}: {self.state}, {', '.join(texts)}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show the same line in a notebook, which calls this."""
        printer.text(str(self))


@dataclass(slots=True)
class _Part:
    """The worker of one kind.

    Args:
        counts: its latest counts.
        stop: stops it; None: it has not begun.
    """

    kind: Kind
    settings: Settings
    counts: WorkerCounts = field(default_factory=WorkerCounts)
    tasks: Mapping[str, str] = field(default_factory=dict[str, str])
    stop: Callable[[], None] | None = None
    due: float = 0.0


@dataclass(frozen=True, slots=True)
class _Thread:
    """The `Host` of one worker."""

    run: WorkerRun
    part: _Part
    watch: EmbeddedWatch

    @property
    def shared(self) -> SharedStores:
        return self.run.shared

    def began(
        self, stop: Callable[[], None], tasks: Mapping[str, int], owners: Owners | None
    ) -> None:
        self.run.stores.partitions = tasks
        self.run.owners = owners or self.run.owners
        self.run.began(self.part, stop)

    def turned(self, counts: WorkerCounts, view: Callable[[], WorkerView]) -> None:
        self.run.turned(self.part, counts, view)

    def is_stopped(self) -> bool:
        return self.run.state is WorkerState.STOPPING


class WorkerRun:
    """The workers of a topology in threads of this program, one for each kind.

    Args:
        graph: of the application.
        settings: of the workers.
        until_caught_up: end once every input is processed to the end that it had at the start.
        show: called with the counts after each turn, in a worker's thread.
    """

    def __init__(
        self,
        graph: Graph,
        settings: Settings,
        *,
        until_caught_up: bool,
        show: Callable[[WorkerCounts], object],
    ) -> None:
        self.graph = graph
        self._settings = settings
        self._until_caught_up = until_caught_up
        self._show = show
        self._parts: list[_Part] = []
        self._lock = threading.Lock()
        self._stopping = False
        self._error: BaseException | None = None
        self.shared = SharedStores()
        self.stores = StoresHere(graph, self.shared, {}, partition_of)
        """The stores of the tasks that run here."""
        self.owners: Owners | None = None
        """The owners of all tasks; None: no worker here serves HTTP."""
        self.begun = threading.Event()
        """Every worker has passed its checks, or the run has ended."""
        self.ended = threading.Event()

    def begin(self) -> None:
        """Start the threads."""
        name = f"eos-{self.graph.application}"
        # Not a daemon: the interpreter waits for it, and `EmbeddedWatch` stops it.
        threading.Thread(target=self._run_all, name=name, daemon=False).start()

    def stop(self) -> None:
        """Ask the workers to stop; from any thread, and in a signal handler."""
        # `_run_part` sets a part's `stop` before it reads the flag, so none is missed.
        self._stopping = True
        for part in [*self._parts]:
            if part.stop is not None:
                part.stop()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the end, and raise the error; see `RunningWorker.wait`."""
        has_ended = waited(self.ended, timeout_seconds)
        if has_ended and self._error is not None:
            raise self._error
        return has_ended

    @property
    def counts(self) -> WorkerCounts:
        """The counts of all workers."""
        return total([part.counts for part in [*self._parts]])

    @property
    def state(self) -> WorkerState:
        """The state; see the module's table."""
        if self.ended.is_set():
            return WorkerState.STOPPED if self._error is None else WorkerState.FAILED
        if self._stopping:
            return WorkerState.STOPPING
        return WorkerState.RUNNING if self.begun.is_set() else WorkerState.STARTING

    def with_owner(self, store: QueriedStore, error: KeyElsewhere) -> KeyElsewhere:
        """Return the error with the worker that has the key, if it is known."""
        if self.owners is None or error.partition is None:
            return error
        try:
            owner = self.owners.owner(store.sub_topology, error.partition)
        except (StoreNotReady, ClusterUnreachable):
            return error
        at = "an unknown address" if owner.address is None else owner.address
        return KeyElsewhere(f"{error}, {owner.instance!r} at {at}", partition=error.partition)

    def status(self) -> WorkerStatus:
        """Return the status; from any thread."""
        counts, state = self.counts, self.state
        return WorkerStatus(
            self.graph.application,
            state.value,
            {name: state for part in [*self._parts] for name, state in part.tasks.items()},
            counts.records,
            counts.lag,
            counts.commits,
            counts.skipped,
            counts.dead_letters,
            counts.retries,
            counts.late,
            counts.restoring,
            self._error,
        )

    # --- what a thread reports: see `Host` ------------------------------------------------

    def began(self, part: _Part, stop: Callable[[], None]) -> None:
        """Note that the worker of one kind has passed its checks."""
        part.stop = stop
        if all(each.stop is not None for each in self._parts):
            self.begun.set()
        if self._stopping:
            stop()

    def turned(self, part: _Part, counts: WorkerCounts, view: Callable[[], WorkerView]) -> None:
        """Take the counts of one kind."""
        part.counts = counts
        self._show(self.counts)
        if (now := time.monotonic()) >= part.due:
            part.due = now + LOOK_SECONDS
            part.tasks = {task.name: task.state for task in view().tasks}

    # --- the threads --------------------------------------------------------------------

    def _run_all(self) -> None:
        try:
            wanted = kinds(self.graph)
            if len(wanted) == 1:
                self._run_stage([_Part(wanted[0], self._settings)])
            else:
                self._run_both(wanted)
        except BaseException as error:
            self._fail(error)
        finally:
            self.ended.set()
            self.begun.set()

    def _run_both(self, wanted: Sequence[Kind]) -> None:
        """Run workers of two kinds, at the same time, or one after the other if they are to end."""
        settings = self._settings
        with own_instance(self.graph.application, settings.worker) as base:
            names = {
                kind: instances_for(base, 1, kind if kind is Kind.TABLES else "")[0]
                for kind in wanted
            }
            parts = [
                _Part(kind, settings_of_child(settings, name, [*names.values()]))
                for kind, name in names.items()
            ]
            for stage in [[part] for part in parts] if self._until_caught_up else [parts]:
                if not self._stopping:
                    self._run_stage(stage)

    def _run_stage(self, parts: list[_Part]) -> None:
        self._parts += parts
        own, others = parts[0], parts[1:]
        threads = [
            threading.Thread(target=self._run_part, args=(part,), name=f"eos-{part.kind}")
            for part in others
        ]
        for thread in threads:
            thread.start()
        self._run_part(own)
        for thread in threads:
            thread.join()

    def _run_part(self, part: _Part) -> None:
        try:
            with EmbeddedWatch(
                turn_seconds=turn_seconds(part.settings),
                stop_seconds=part.settings.worker.stop_deadline_seconds,
                stop=self.stop,
            ) as watch:
                part.counts = run_embedded(
                    self.graph,
                    part.settings,
                    part.kind,
                    _Thread(self, part, watch),
                    until_caught_up=self._until_caught_up,
                )
        except BaseException as error:
            self._fail(error)
        finally:
            part.tasks = {}

    def _fail(self, error: BaseException) -> None:
        """Keep the first error, and stop the other worker."""
        with self._lock:
            self._error = self._error or error
        self.stop()
