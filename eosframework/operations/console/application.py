"""The readings of one application, which the pages show."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from eosframework.application.composition.application_status import (
    ApplicationStatus,
    ask,
    asked,
    fetch,
    overview,
)
from eosframework.application.composition.ids import known_leases
from eosframework.application.composition.shown_positions import (
    positions_of_tables,
    positions_of_transforms,
)
from eosframework.application.composition.stored_state import (
    ChangelogStores,
    StoreFiles,
    look_up,
    scan,
)
from eosframework.application.composition.worker import load
from eosframework.application.context import ApplicationContext, connect
from eosframework.application.monitoring.metrics.alerts import Firing, Judge
from eosframework.application.ownership_topic import OwnershipTopic, ownership_of
from eosframework.config import Settings
from eosframework.errors import ConfigurationError
from eosframework.kafka.inspect import transaction_data
from eosframework.kafka.inspect.coordinators import list_transactions
from eosframework.kafka.inspect.hanging import find_open, remedy
from eosframework.kafka.inspect.transaction_trace import trace
from eosframework.kafka.inspect.wire import Wire
from eosframework.kafka.inspect.written_record import RecordPlace
from eosframework.operations.console.memory import SAMPLE_SECONDS, Memory
from eosframework.operations.console.readings import History, Reading, Readings
from eosframework.operations.dead_letters import DeadLetterPlace, dead_letters_of, marked_of
from eosframework.operations.dead_letters.dead_letter import shown
from eosframework.operations.why import cause_of
from eosframework.records import partitions_of
from eosframework.serialization.bounds import (
    CHANGELOG_BYTES,
    CONSOLE_ROWS,
    CONSOLE_SCANS,
    STATE_BYTES,
)
from eosframework.spark.job.job_entry import job_states
from eosframework.spark.job.job_status import StatusTracker
from eosframework.state.query import BoundedRows, QueriedStore, queried_store
from eosframework.topology.graph.graph import Graph
from eosframework.topology.graph.walk import dead_letter_topics, without_retries
from eosframework.transactions.ownership import parse
from eosframework.txnid import prefix

WAIT_SECONDS = 8.0
"""Longest wait of a page for a reading."""

DEAD_LETTERS_SECONDS = 15.0
"""Age from which dead letters are read again."""

TRACED = 5
"""Transactions of an id that its page shows."""


@dataclass(frozen=True, slots=True)
class Overview:
    """The application's status.

    Args:
        report: the status as plain data.
        dead_ends: sum of the end offsets of the dead-letter topics.
    """

    status: ApplicationStatus
    report: Mapping[str, Any]
    dead_ends: int = 0


class Application:
    """The application that a console shows.

    Args:
        name: names the topology, as on the command line.
        settings: of its workers.
        addresses: HTTP addresses of its processes.
    """

    def __init__(self, name: str, settings: Settings, addresses: Sequence[str]) -> None:
        self.name = name
        self.settings = settings
        self.addresses = tuple(addresses)
        self.history = History()
        self.memory = Memory()
        self.firing: list[Firing] = []
        self._judge = Judge()
        self._readings = Readings()
        self._lock = threading.Lock()
        self._graph: Graph | None = None
        self._contexts: dict[str, ApplicationContext] = {}
        self._letters_at = 0
        self._claims: OwnershipTopic | None = None
        self._scans = threading.BoundedSemaphore(CONSOLE_SCANS.value)

    def graph(self) -> Graph:
        """Return the topology, which is loaded again until it resolves.

        Raises:
            TopologyError: it cannot be loaded, or is inconsistent.
        """
        with self._lock:
            if self._graph is None:
                self._graph = load(self.name)
            return self._graph

    @property
    def title(self) -> str:
        """The application's name, or its topology's while that has not resolved."""
        return self.name if self._graph is None else self._graph.application

    def context(self) -> ApplicationContext:
        """Return the application with new clients, for a reading or a change of its own.

        Raises:
            TopologyError: the topology cannot be loaded.
        """
        return connect(self.graph(), self.settings)

    def kept_context(self, reading: str) -> ApplicationContext:
        """Return the application with the clients of one reading, which runs once at a time.

        Raises:
            TopologyError: the topology cannot be loaded.
        """
        if reading not in self._contexts:
            self._contexts[reading] = self.context()
        return self._contexts[reading]

    def sample_forever(self, stop: threading.Event) -> None:
        """Read the cluster and the processes at an interval, for rates, takeovers and charts."""
        interval = self.settings.console.refresh_seconds
        due = 0.0
        while not stop.is_set():
            began = time.monotonic()
            self.overview()
            self.processes()
            if began >= due:
                due = began + SAMPLE_SECONDS
                self.sample()
            stop.wait(max(0.0, interval - (time.monotonic() - began)))

    def sample(self) -> None:
        """Read the metrics of the processes, judge the alerts, and add a point to the charts."""
        now = time.time()
        for address in self.addresses:
            self.read(f"metrics {address}", self._sampler(address, now), 0.0)
        if self.addresses:
            self.firing = self._judge.firing(self.memory)
        reading: Reading[Overview] = self.known("overview")
        lag = rate = None
        if reading.value is not None and reading.error is None:
            lag = sum(task.lag for task in reading.value.status.tasks)
            rate = self.history.processed_per_second()
        self.memory.add_point(now, lag, rate)

    def overview(self) -> Reading[Overview]:
        """Return the members, tasks and lag: `eosframework status`."""
        return self.read("overview", self._overview, self.settings.console.refresh_seconds)

    def processes(self) -> dict[str, Reading[dict[str, Any]]]:
        """Return the answers of the asked processes to `/status`."""
        seconds = self.settings.console.refresh_seconds

        def reader(address: str) -> Any:
            return lambda: self._asked(address)

        return {a: self.read(f"ask {a}", reader(a), seconds) for a in self.addresses}

    @property
    def answers(self) -> dict[str, dict[str, Any]]:
        """The answers of the asked processes that answer now, by address."""
        found = self.processes()
        return {a: r.value for a, r in found.items() if r.value is not None and r.error is None}

    def known(self, name: str) -> Reading[Any]:
        """Return a reading as it is, without reading again."""
        return self._readings.look(name)

    def writers(self) -> Reading[dict[str, str]]:
        """Return the transactional ids that the newest claims of the tasks name, by task."""
        return self.read("writers", self._writers, 5.0)

    def open_transactions(self) -> Reading[dict[str, Any]]:
        """Return open and hanging transactions: `eosframework txn hanging`."""
        return self.read("transactions", self._open_transactions, 5.0)

    def transactional_ids(self) -> Reading[list[dict[str, Any]]]:
        """Return the application's ids: `eosframework txn list --application`."""
        return self.read("ids", self._transactional_ids, 5.0)

    def trace(self, transactional_id: str) -> Reading[dict[str, Any]]:
        """Return the last transactions of an id: `eosframework txn trace`."""

        def read() -> dict[str, Any]:
            with self.wire() as wire:
                return transaction_data.traced_data(trace(wire, transactional_id, TRACED))

        return self.read(f"trace {transactional_id}", read, 10.0)

    def why(self, place: RecordPlace) -> Reading[dict[str, Any]]:
        """Return the cause of an output, without a function: `eosframework why --no-run`."""

        def read() -> dict[str, Any]:
            return cause_of(place, self.settings, self.graph(), run=False).found.as_data()

        return self.read(f"why {place}", read, 60.0)

    def dead_letters(self) -> Reading[dict[str, Any]]:
        """Return the groups of dead letters: `eosframework dead-letters list`."""
        return self.read("dead letters", self._dead_letters, DEAD_LETTERS_SECONDS)

    def new_dead_letters(self) -> dict[str, Any] | None:
        """Return the groups of dead letters as they are known; None: there are none.

        Reading them takes as long as their topics are, so it is done only when these have grown,
        and nothing waits for it.
        """
        overview = self.known("overview").value
        if overview is None or not overview.dead_ends:
            return None
        has_grown = overview.dead_ends != self._letters_at
        reading: Reading[dict[str, Any]] = self._readings.get(
            "dead letters",
            self._dead_letters,
            max_age_seconds=DEAD_LETTERS_SECONDS if has_grown else float("inf"),
            wait_seconds=0.5,
        )
        return reading.value

    def dead_letter(self, place: str) -> Reading[dict[str, Any]]:
        """Return one dead letter: `eosframework dead-letters show`."""

        def read() -> dict[str, Any]:
            context = self.context()
            wanted = DeadLetterPlace.parse(place)
            letters = dead_letters_of(context)
            letter = letters.find(wanted)
            marks = marked_of(context, letters).get(letter.partition)
            was_replayed = marks is not None and letter.offset in marks
            return shown(context.graph, letter, was_replayed=was_replayed)

        return self.read(f"letter {place}", read, 15.0)

    def positions(self) -> Reading[list[dict[str, Any]]]:
        """Return the positions of transforms: `eosframework positions show`."""

        def read() -> list[dict[str, Any]]:
            return [asdict(row) for row in positions_of_transforms(self.kept_context("positions"))]

        return self.read("positions", read, 5.0)

    def table_positions(self) -> Reading[list[dict[str, Any]]]:
        """Return the positions of table sinks: `eosframework positions show --tables`."""

        def read() -> list[dict[str, Any]]:
            return [
                asdict(row) for row in positions_of_tables(self.kept_context("table positions"))
            ]

        return self.read("table positions", read, 5.0)

    def row_of(self, store: str, key: str, source: str) -> Reading[dict[str, Any]]:
        """Return the rows of a key: `eosframework state get`."""

        def read() -> dict[str, Any]:
            if source == "workers":
                return self._asked_for_state(f"/state/{quote(store)}/{quote(key, safe='')}")
            found = look_up(self._stores(source), self._store(store), key, STATE_BYTES.value)
            return found.as_data()

        return self._read_rows(f"get {source} {store} {key}", read)

    def rows_of(
        self, store: str, first: str | None, last: str | None, source: str
    ) -> Reading[dict[str, Any]]:
        """Return the rows of a range of keys: `eosframework state scan`."""

        def read() -> dict[str, Any]:
            if source == "workers":
                bounds = {"from": first, "to": last, "limit": CONSOLE_ROWS.value}
                given = urlencode({name: v for name, v in bounds.items() if v is not None})
                return self._asked_for_state(f"/state/{quote(store)}?{given}")
            most = CONSOLE_ROWS.value, STATE_BYTES.value
            return scan(self._stores(source), self._store(store), first, last, *most).as_data()

        return self._read_rows(f"scan {source} {store} {first!r} {last!r}", read)

    @contextmanager
    def wire(self) -> Generator[Wire]:
        """Connect to the cluster for requests about transactions, for the length of the block."""
        with Wire(self.settings.kafka, known_leases(self.settings)) as wire:
            yield wire

    def read_again(self, *names: str) -> None:
        """Read these again at their next request, because something was changed."""
        for name in names:
            self._readings.forget(name)

    def read(self, name: str, read: Any, max_age_seconds: float) -> Reading[Any]:
        """Return a reading of the application; see `Readings.get`."""
        return self._readings.get(
            name, read, max_age_seconds=max_age_seconds, wait_seconds=WAIT_SECONDS
        )

    def _read_rows(self, name: str, read: Callable[[], dict[str, Any]]) -> Reading[dict[str, Any]]:
        """Return a reading of stores, of which few run at a time: their rows may be large."""

        def bounded() -> dict[str, Any]:
            if not self._scans.acquire(timeout=WAIT_SECONDS):
                raise ConfigurationError(
                    f"the console reads stores {CONSOLE_SCANS.value} times at once; load the page "
                    f"again"
                )
            try:
                return read()
            finally:
                self._scans.release()

        return self.read(name, bounded, 2.0)

    def _overview(self) -> Overview:
        context = self.kept_context("overview")
        status = overview(context)
        graph = context.graph
        dead = dead_letter_topics(graph)
        names = {*graph.written_topics, *dead}
        found = context.admin.describe_topics(names)
        there = {name: facts.partitions for name, facts in found.items() if facts.exists}
        ends = context.admin.high_watermarks(list(partitions_of(there)))
        self.history.observe(status, ends)
        dead_ends = sum(end for partition, end in ends.items() if partition.topic in dead)
        return Overview(status, status.as_data(), dead_ends)

    def _asked(self, address: str) -> dict[str, Any]:
        answer = asked(address)
        self.history.observe_process(address, answer)
        return answer

    def _sampler(self, address: str, now: float) -> Callable[[], None]:
        def read() -> None:
            try:
                _, text = fetch(address, "/metrics")
                self.memory.take(address, now, text.decode())
            except ConfigurationError:
                self.memory.miss(address, now)
                raise
            except ValueError:  # what answers there has no metrics
                self.memory.miss(address, now)

        return read

    def _writers(self) -> dict[str, str]:
        context = self.kept_context("writers")
        if self._claims is None:
            self._claims = ownership_of(context)
        context.control_topic.refresh()
        if context.control_topic.state.ownership is None:
            return {}
        entries = parse(self._claims.read(), self._claims.topic)
        newest = sorted(entries, key=lambda entry: entry.offset)
        return {
            f"{claim.sub_topology}[{claim.partition}]": claim.transactional_id
            for claim in (entry.claim for entry in newest)
        }

    def _open_transactions(self) -> dict[str, Any]:
        with self.wire() as wire:
            findings = find_open(wire)
        data = transaction_data.findings_data(findings, datetime.now(UTC))
        remedies = [remedy(entry) for entry in findings.hanging]
        data["remedies"] = remedies
        return data

    def _transactional_ids(self) -> list[dict[str, Any]]:
        application = self.graph().application
        with self.wire() as wire:
            listed = list_transactions(wire)
        return [
            transaction_data.listed_data(entry)
            for entry in listed
            if entry.transactional_id.startswith(prefix(application))
            or (entry.lease is not None and entry.lease.application == application)
        ]

    def _dead_letters(self) -> dict[str, Any]:
        overview = self.known("overview").value
        self._letters_at = 0 if overview is None else overview.dead_ends
        context = self.kept_context("dead letters")
        letters = dead_letters_of(context)
        groups = letters.groups(marked_of(context, letters))
        return {
            "topics": letters.topics,
            "groups": [group.as_data() for group in groups],
            "foreign": dict(letters.foreign),
        }

    def _asked_for_state(self, path: str) -> dict[str, Any]:
        """Return the first worker's answer that has rows, or all rows of a scan."""
        if not self.addresses:
            raise ConfigurationError("no worker can be asked; start the console with --ask")
        good: list[dict[str, Any]] = []
        refusals: list[dict[str, Any]] = []

        def rows() -> Iterator[Any]:
            for address in self.addresses:
                status, content = ask(address, path)
                (good if status == 200 else refusals).append(content)
                yield from content.pop("found", ())

        bounded = BoundedRows(rows(), CONSOLE_ROWS.value, STATE_BYTES.value)
        found = [row for row, _ in bounded]
        if not good:
            raise ConfigurationError(str(refusals[0].get("error", refusals[0])))
        return {
            **good[0],
            "found": found,
            "more": bounded.more or any(one.get("more") for one in good),
        }

    def _store(self, name: str) -> QueriedStore:
        return queried_store(self.graph(), name)

    def _stores(self, source: str) -> ChangelogStores | StoreFiles:
        if source == "files":
            return StoreFiles(self.graph().application, self.settings)
        return ChangelogStores(self.settings, CHANGELOG_BYTES.value)


class Backfills:
    """The backfill jobs of an application.

    Args:
        app: of the console.
    """

    def __init__(self, app: Application) -> None:
        self._app = app
        self._trackers: dict[tuple[str, int], StatusTracker] = {}

    def look(self) -> Reading[list[dict[str, Any]]]:
        """Return the jobs with their stages and tasks, by start time."""
        return self._app.read("backfills", self._look, 2.0)

    def _look(self) -> list[dict[str, Any]]:
        context = self._app.kept_context("backfills")
        graph = without_retries(context.graph)
        states = job_states(graph.application, context.settings.kafka, context.admin)
        found = [((s.job.name, s.job.created_at), s) for s in states]
        self._trackers = {key: self._trackers.get(key) or StatusTracker(graph) for key, _ in found}
        now = time.time()
        return [self._trackers[key].look(state, now).as_data() for key, state in found]
