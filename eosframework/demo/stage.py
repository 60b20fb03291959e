"""The common frame of the demos: servers in a directory, kills, waits, a verdict, an orderly stop.

A demo opens a stage, starts more servers on it, reports its kills to it and ends with `conclude`.
"""

from __future__ import annotations

import random
import signal
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Generic, Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from eosframework.config import KafkaSettings
from eosframework.demo.services import Kill
from eosframework.embedded import KafkaCluster, PostgresServer, start_kafka, start_postgres
from eosframework.errors import RunError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin, TopicToCreate

_LINE_SECONDS = 10.0


class Story:
    """Prints events, with the seconds since the start."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def title(self, text: str) -> None:
        """Print the title."""
        self._console.print(f"[bold]{text}[/bold]", highlight=False)

    def say(self, text: str, style: str = "") -> None:
        """Print an event."""
        self._console.print(
            f"[dim]{self.seconds:6.1f} s[/dim]  {text}",
            style=style,
            highlight=False,
            soft_wrap=True,
        )

    def plain(self, text: str = "") -> None:
        """Print text without the time."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def bars(self, total: int, *names: str) -> Bars:
        """Return the bars of a run over `total` records, a context manager.

        Args:
            total: number of records.
            names: names of the counters.
        """
        return Bars(self, self._console, total, names)


class Bars:
    """The progress of each stage of a run."""

    def __init__(self, story: Story, console: Console, total: int, names: Sequence[str]) -> None:
        self._story = story
        self._due = time.monotonic() + _LINE_SECONDS
        self._progress = Progress(
            TextColumn("          {task.description:<10}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._stages = {name: self._progress.add_task(name, total=total) for name in names}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def show(self, *counts: int) -> None:
        """Draw, or print a line if the last one is old enough.

        Args:
            counts: one for each name.
        """
        for stage, count in zip(self._stages.values(), counts, strict=True):
            self._progress.update(stage, completed=count)
        if self._progress.disable and time.monotonic() >= self._due:
            self._due = time.monotonic() + _LINE_SECONDS
            stages = zip(self._stages, counts, strict=True)
            self._story.say(", ".join(f"{count:,} {name}" for name, count in stages))


PARTITIONS = 4

_BROKER = {
    "log.retention.ms": "-1",
    "log.roll.ms": str(2**62),
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "8",
}
"""- log.retention.ms, log.roll.ms: the flights are of 2013, older than any retention.
- the internal topics: few partitions are made quickly."""

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Stopping:
    """Ctrl-C and SIGTERM, noticed only between two steps.

    librdkafka loses an exception that a signal handler raises while it serves callbacks.
    """

    def __init__(self) -> None:
        self._asked = False

    @contextmanager
    def watched(self) -> Generator[None]:
        """Record SIGINT and SIGTERM during the block."""

        def ask(number: int, frame: FrameType | None) -> None:
            self._asked = True

        before = [signal.signal(number, ask) for number in _STOP_SIGNALS]
        try:
            yield
        finally:
            for number, handler in zip(_STOP_SIGNALS, before, strict=True):
                signal.signal(number, handler)

    def check(self) -> None:
        """Return if no request to stop came.

        Raises:
            KeyboardInterrupt: one came.
        """
        if self._asked:
            raise KeyboardInterrupt


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a demo.

    Args:
        counts: numbers of its verdict by name.
        is_right: the verdict found no fault.
        deaths_seen: kills with an observed effect.
    """

    counts: Mapping[str, int]
    is_right: bool
    planned_kills: int
    kills: int
    deaths_seen: int
    seconds: float

    @property
    def proves_enough(self) -> bool:
        """True if all planned kills were done and had an effect."""
        return self.planned_kills == self.kills == self.deaths_seen

    @property
    def good(self) -> bool:
        """True if the verdict found no fault in spite of all kills."""
        return self.is_right and self.proves_enough

    def as_data(self) -> dict[str, int | float]:
        """Return the last line of the demo."""
        return {**self.counts, "kills": self.kills, "seconds": round(self.seconds, 1)}


@dataclass(slots=True)
class Stage:
    """The environment of a demo.

    Args:
        directory: of data and logs.
        keep: servers outlive the demo.
        planned_kills: number of processes to kill.
        check: raises KeyboardInterrupt after SIGINT or SIGTERM.
        cleanup: actions at the end, last first.
    """

    story: Story
    directory: Path
    keep: bool
    planned_kills: int
    check: Callable[[], None]
    cleanup: ExitStack
    kills: int = 0

    def start_kafka(self, name: str) -> KafkaCluster:
        """Start a broker that ends with the demo unless kept.

        Raises:
            ComponentFailed: it did not start.
        """
        place = self.directory / name
        cluster = start_kafka(place, properties=_BROKER, fast_start=True, detached=self.keep)
        address = f"the broker at {cluster.bootstrap_servers}"
        self._end_later(cluster.kill, address, "broker", cluster.data_dir)
        self.story.say(f"Kafka is up at {cluster.bootstrap_servers}")
        self.check()
        return cluster

    def start_postgres(self, name: str) -> PostgresServer:
        """Start a database that ends with the demo unless kept.

        Raises:
            ComponentFailed: it did not start.
        """
        server = start_postgres(self.directory / name, detached=self.keep)
        self._end_later(server.kill, f"database {name}", "database", server.data_dir)
        self.check()
        return server

    def create_topics(self, cluster: KafkaCluster, topics: list[str]) -> KafkaSettings:
        """Create topics, report it, and return the connection to the broker."""
        settings = KafkaSettings(bootstrap_servers=cluster.bootstrap_servers)
        wanted = [TopicToCreate(topic, PARTITIONS) for topic in topics]
        ClusterAdmin(settings).create_topics(wanted)
        self.story.say(f"topics with {PARTITIONS} partitions each: {', '.join(topics)}")
        return settings

    def record_kill(self, kill: Kill | None) -> None:
        """Count and report a kill; None: there was no victim at work."""
        if kill is not None:
            self.kills += 1
            self.story.say(f"kill {self.kills} of {self.planned_kills}: {kill}", style="red")

    def pause(self, seconds: float) -> None:
        """Sleep between two steps."""
        time.sleep(seconds)
        self.check()

    def wait(
        self,
        done: Callable[[], bool],
        look: Callable[[], object],
        *,
        seconds: float,
        pause_seconds: float,
        late: Callable[[], str],
    ) -> None:
        """Wait for a condition.

        Args:
            done: the condition.
            look: called between two checks of it.
            seconds: longest wait.
            pause_seconds: between two checks.
            late: describes the failure, and names the log.

        Raises:
            RunError: the wait took too long.
        """
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                raise RunError(f"{late()} (--keep leaves it there)")
            self.pause(pause_seconds)
            look()

    def conclude(
        self, counts: Mapping[str, int], *, is_right: bool, deaths_seen: int, good: str, bad: str
    ) -> Outcome:
        """Report the verdict and return the outcome.

        Args:
            counts: numbers of the verdict by name.
            is_right: it found no fault.
            deaths_seen: kills with an observed effect.
            good: last line of a good outcome.
            bad: last line after a fault.
        """
        outcome = Outcome(
            counts, is_right, self.planned_kills, self.kills, deaths_seen, self.story.seconds
        )
        if not outcome.proves_enough:
            self.story.say(
                f"{outcome.planned_kills} kills were planned, {outcome.kills} done and "
                f"{outcome.deaths_seen} seen: this run proves too little"
            )
        if outcome.good:
            self.story.say(good, style="green")
        elif not is_right:
            self.story.say(bad, style="bold red")
        return outcome

    def _end_later(
        self, kill: Callable[[], None], what: str, command: str, data_dir: object
    ) -> None:
        if not self.keep:
            self.cleanup.callback(kill)
            return

        def say() -> None:
            self.story.plain(f"{what} stays up; where it is, and how to stop it:")
            self.story.plain(f"  eosframework {command} status --data-dir {data_dir}")
            self.story.plain(f"  eosframework {command} down --data-dir {data_dir}")

        self.cleanup.callback(say)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The parameters of every demo.

    Args:
        seed: of its random choices.
        keep: leave the servers running.
    """

    seed: int
    keep: bool = False


AnyPlan = TypeVar("AnyPlan", bound=Plan)


class Demo(ABC, Generic[AnyPlan]):
    """One run of a demo."""

    def __init__(self, plan: AnyPlan, stage: Stage) -> None:
        self._plan = plan
        self._stage = stage
        self._story = stage.story
        self._chance = random.Random(plan.seed)

    @abstractmethod
    def run(self) -> Outcome:
        """Return the outcome; servers and processes may still run."""


@contextmanager
def open_stage(console: Console, title: str, *, planned_kills: int, keep: bool) -> Generator[Stage]:
    """Prepare a demo; after the block no process is left running, whatever the outcome.

    Args:
        console: output of the demo.
        title: of the demo.
        planned_kills: number of processes to kill.
        keep: leave servers running, and print the commands that stop them.

    Raises:
        KeyboardInterrupt: SIGINT or SIGTERM came; everything has been stopped.
    """
    story = Story(console)
    try:
        stopping = _Stopping()
        with stopping.watched(), ExitStack() as cleanup:
            directory = _directory(cleanup, keep=keep)
            story.title(title)
            yield Stage(story, directory, keep, planned_kills, stopping.check, cleanup)
    except KeyboardInterrupt:
        story.say("stopped before the end; all processes have ended")
        raise


def _directory(cleanup: ExitStack, *, keep: bool) -> Path:
    if keep:
        return Path(tempfile.mkdtemp(prefix="eos-demo-"))
    return Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="eos-demo-")))
