"""A broker of our own for one run of the benchmarks, and names that nothing else has."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from benchmarks.contestants.work import Contestant, Work
from benchmarks.inputs import (
    KEYS,
    create_topics,
    delete_topics,
    delete_topics_of,
    json_records,
    load,
)
from benchmarks.measure import CommittedOffsets
from benchmarks.processes import Child, running
from eosframework.embedded import start_kafka
from eosframework.kafka.own_topics import SETTINGS, OwnRole

HEAP_MEGABYTES = 1024

Measured = TypeVar("Measured")


@dataclass
class Session:
    """A broker with the inputs that were loaded into it."""

    bootstrap_servers: str
    directory: Path
    _inputs: dict[tuple[int, int, int], str] = field(
        default_factory=dict[tuple[int, int, int], str]
    )
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def name(self, prefix: str) -> str:
        """A name that is new in this session."""
        return f"{prefix}.{next(self._numbers)}"

    def input_topic(self, records: int, *, padding_bytes: int = 0, keys: int = KEYS) -> str:
        """The topic with these records; loaded at the first call."""
        key = (records, padding_bytes, keys)
        if key not in self._inputs:
            topic = self.name("input")
            create_topics(self.bootstrap_servers, topic)
            made = json_records(records, padding_bytes=padding_bytes, keys=keys)
            load(self.bootstrap_servers, topic, made)
            self._inputs[key] = topic
        return self._inputs[key]

    def work(self, input_topic: str) -> Work:
        """Work with a new application and a new output topic."""
        work = Work(
            bootstrap_servers=self.bootstrap_servers,
            input_topic=input_topic,
            output_topic=self.name("output"),
            application=self.name("bench"),
            directory=self.directory,
        )
        create_topics(self.bootstrap_servers, work.output_topic)
        return work

    def run(
        self,
        contestant: Contestant,
        input_topic: str,
        measure: Callable[[CommittedOffsets, Child, Work], Measured],
        *,
        changelog: bool = False,
    ) -> Measured:
        """Let a contestant work while `measure` watches; then it is stopped, its output deleted.

        Args:
            changelog: whether the work has one that must be there before it begins.

        Raises:
            ProcessFailed: it ended by itself or made no progress.
        """
        work = self.work(input_topic)
        if changelog:
            settings = SETTINGS[OwnRole.CHANGELOG]
            create_topics(self.bootstrap_servers, work.changelog_topic, settings=settings)
        offsets = CommittedOffsets(self.bootstrap_servers, work.application, input_topic)
        log_file = self.directory / f"{work.application}.log"
        try:
            with running(contestant.command(work), log_file) as child:
                return measure(offsets, child, work)
        finally:
            offsets.close()
            delete_topics(self.bootstrap_servers, work.output_topic)
            delete_topics_of(self.bootstrap_servers, work.application)


@contextlib.contextmanager
def open_session() -> Iterator[Session]:
    """Start a broker for the length of the block; its data is removed with it."""
    directory = Path(tempfile.mkdtemp(prefix="eosframework-bench-"))
    try:
        with start_kafka(directory / "kafka", heap_megabytes=HEAP_MEGABYTES) as cluster:
            yield Session(cluster.bootstrap_servers, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
