"""Workers in a program: `run` and `start`, for scripts, notebooks and services.

They are functions and not methods of `Topology`: a topology is a declaration that backfills, Spark
executors and the test driver read, too, and `topology/` imports nothing that runs one.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any, Self

import structlog

from eosframework.application.composition.worker_run import (
    LOOK_SECONDS,
    WorkerRun,
    WorkerStatus,
    waited,
)
from eosframework.config import load_settings
from eosframework.engine.worker.worker_plan import WorkerCounts
from eosframework.errors import KeyElsewhere, StoreNotReady
from eosframework.process.logs import configure_embedded_logs
from eosframework.process.progress import (
    ProgressEvents,
    is_notebook,
    notebook_line,
    terminal_line,
)
from eosframework.process.signals import SIGNALS, handled
from eosframework.state.query import QueriedStore, encoded_key, queried_store
from eosframework.topology.dsl.builder import Topology
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve


class RunningWorker:
    """A worker that `start` has started in a thread of this program.

    As a context manager it is stopped at the end of the block. A program that ends without stopping
    it stops it then, and waits for it up to `worker.stop_deadline_seconds`.
    """

    def __init__(self, run: WorkerRun) -> None:
        self._run = run

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        self.stop()
        if error_type is None:
            self.wait()
        else:
            waited(self._run.ended)

    def __repr__(self) -> str:
        return f"<RunningWorker {self.status()}>"

    def stop(self) -> None:
        """Ask the worker to commit what is complete and to end; returns at once.

        It may be called from any thread and from a signal handler, and more than once.
        """
        self._run.stop()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the worker has ended: it was stopped, is caught up, or failed.

        Args:
            timeout_seconds: return after this time at the latest; None: wait without limit.

        Returns:
            Whether it has ended.

        Raises:
            RunError: processing could not continue; complete transactions are committed.
            InstanceFenced: another worker took this one's identity over.
        """
        return self._run.wait(timeout_seconds)

    def status(self) -> WorkerStatus:
        """Return the status, which is at most a second old; from any thread."""
        return self._run.status()

    def get(self, store: str, key: Any) -> Any:
        """Return the committed value of a key; from any thread.

        Args:
            store: its name, as `describe` lists it.
            key: as the store's serde decodes it.

        Returns:
            The value, or None if the key has none. Of a store with windows, of a join or a
            deduplication a list: one value for each window or record, a `WindowResult` for a
            window.

        Raises:
            ConfigurationError: there is no such store, or the key is not one of its keys.
            StoreNotReady: the store is brought up to date, so ask again; or the worker has ended.
            KeyElsewhere: another worker has the key's partition; with `worker.http_address` it
                names that worker and its address.
            RunError, InstanceFenced: as `wait`, once the worker has failed.
        """
        queried = self._queried(store)
        try:
            found = self._run.stores.get(queried, encoded_key(queried.store, key), key)
        except KeyElsewhere as error:
            raise self._run.with_owner(queried, error) from None
        values = [row.value for row in found.rows or ()]
        if queried.layout.has_one_row:
            return values[0] if values else None
        return values

    def scan(self, store: str, first: Any = None, last: Any = None) -> Iterator[tuple[Any, Any]]:
        """Yield committed keys and values of the partitions that this worker has.

        The rows of a partition are those of one moment, partition by partition. A partition that
        moves meanwhile ends early.

        Args:
            store: its name, as `describe` lists it.
            first: the first key, in the order of encoded keys; None: from the begin.
            last: the key before which the rows end; None: at the end.

        Raises:
            ConfigurationError, StoreNotReady: as `get`.
        """
        queried = self._queried(store)
        from_ = b"" if first is None else encoded_key(queried.store, first)
        to = None if last is None else encoded_key(queried.store, last)
        return ((row.key, row.value) for _, row in self._run.stores.scan(queried, from_, to))

    def _queried(self, name: str) -> QueriedStore:
        stores = self._run.stores
        queried = stores.stores.get(name) or queried_store(self._run.graph, name)
        if self._run.wait(0):
            raise StoreNotReady(f"the worker has ended, so store {name!r} is not read here")
        stores.require_up_to_date(queried)
        if not stores.here(queried):
            raise StoreNotReady(
                f"this worker has no partition of store {name!r} yet; ask again, or ask the worker "
                f"that has it"
            )
        return queried


def start(
    app: str | Topology,
    *,
    config: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    until_caught_up: bool = False,
) -> RunningWorker:
    """Start a topology in a thread of this program: each record takes effect exactly once.

    Signals, the configuration of logs and the garbage collector stay those of the program. If the
    topology has transforms and table sinks, each kind runs in a thread.

    Args:
        app: a `Topology`, or its name as on the command line.
        config: file with settings, as `--config`. EOS_ variables override it.
        overrides: settings by SECTION.NAME, as `--set`: `{"worker.instance": "shop.0"}`.
        until_caught_up: end once every input is processed to the end that it had at the start.

    Returns:
        A worker that has passed its checks and joins its group.

    Raises:
        UserError: nothing was started; names the cause and the next step. Its `exit_code` is the
            command's, as that of each other error.
    """
    show = ProgressEvents().show
    run = _prepared(app, config, overrides, until_caught_up=until_caught_up, show=show)
    run.begin()
    try:
        waited(run.begun)
    except BaseException:  # A Ctrl-C while it starts.
        run.stop()
        raise
    run.wait(0)
    return RunningWorker(run)


def run(
    app: str | Topology,
    *,
    config: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    until_caught_up: bool = False,
) -> WorkerStatus:
    """Run a topology until it is stopped or caught up: each record takes effect exactly once.

    In the main thread SIGTERM, Ctrl-C and a notebook's interrupt stop it as they stop `run-worker`:
    complete work is committed, and the call returns. The same signal again takes its former effect.
    In other threads signals are left alone. Progress is one line on a terminal and in a notebook,
    else log events.

    Args:
        app: a `Topology`, or its name as on the command line.
        config: file with settings, as `--config`. EOS_ variables override it.
        overrides: settings by SECTION.NAME, as `--set`: `{"worker.instance": "shop.0"}`.
        until_caught_up: end once every input is processed to the end that it had at the start.

    Returns:
        The status at the end.

    Raises:
        UserError: nothing was started; names the cause and the next step.
        RunError: processing cannot continue; complete transactions are committed.
        InstanceFenced: another worker took this one's identity over.
    """
    in_main = threading.current_thread() is threading.main_thread()
    drawn = _drawn() if in_main else None
    show = ProgressEvents().show if drawn is None else _ignore
    run = _prepared(app, config, overrides, until_caught_up=until_caught_up, show=show)
    with _stopped_by_signals(run) if in_main else nullcontext():
        run.begin()
        if drawn is None:
            run.wait()
        else:
            with drawn as draw:
                while not run.wait(LOOK_SECONDS):
                    draw(run.counts)
                draw(run.counts)
    return run.status()


def _prepared(
    app: str | Topology,
    config: str | Path | None,
    overrides: Mapping[str, Any] | None,
    *,
    until_caught_up: bool,
    show: Callable[[WorkerCounts], object],
) -> WorkerRun:
    graph = resolve(load_app(app) if isinstance(app, str) else app.loaded())
    settings = load_settings(None if config is None else Path(config), overrides=overrides)
    log = settings.log
    if is_notebook() and "level" not in log.model_fields_set:
        # Events of each task would hide the line that shows progress.
        log = log.model_copy(update={"level": "warning"})
    configure_embedded_logs(log)
    return WorkerRun(graph, settings, until_caught_up=until_caught_up, show=show)


@contextmanager
def _stopped_by_signals(run: WorkerRun) -> Generator[None]:
    """Stop a run on SIGTERM and SIGINT; the same signal again takes its former effect."""
    former = {number: signal.getsignal(number) for number in SIGNALS}
    logger = structlog.get_logger("eosframework.worker")

    def stop(number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number)
        before = former[name]
        signal.signal(number, signal.SIG_DFL if before is None else before)
        logger.info("stop_requested", signal=name.name)
        run.stop()

    with handled(stop):
        yield


def _drawn() -> AbstractContextManager[Callable[[WorkerCounts], None]] | None:
    """Return the line that shows progress; None: there is neither a terminal nor a notebook."""
    if is_notebook():
        return notebook_line()
    return terminal_line() if sys.stderr.isatty() else None


def _ignore(_: WorkerCounts) -> None:
    """Show nothing; the thread that waits draws."""
