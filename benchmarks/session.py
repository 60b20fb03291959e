"""A broker of our own for one run of the benchmarks, and names that nothing else has."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.contestants.work import Contestant, Work
from benchmarks.inputs import (
    KEYS,
    PARTITIONS,
    Made,
    create_topics,
    delete_topics,
    delete_topics_of,
    json_records,
    load,
)
from benchmarks.measure import CommittedOffsets
from benchmarks.processes import Child, running
from eosframework.application.topic_settings import TopicRole, settings_at_creation
from eosframework.embedded import start_kafka

HEAP_MEGABYTES = 1024

Measured = TypeVar("Measured")


@dataclass
class Session:
    """A broker with the inputs that were loaded into it."""

    bootstrap_servers: str
    directory: Path
    _inputs: dict[Hashable, str] = field(default_factory=dict[Hashable, str])
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def name(self, prefix: str) -> str:
        """A name that is new in this session."""
        return f"{prefix}.{next(self._numbers)}"

    def input_topic(self, records: int, *, padding_bytes: int = 0, keys: int = KEYS) -> str:
        """The topic with these JSON records; loaded at the first call."""

        def make(count: int) -> Iterator[Made]:
            return json_records(count, padding_bytes=padding_bytes, keys=keys)

        return self._loaded((records, padding_bytes, keys), make, records, PARTITIONS)

    def topic_of(
        self,
        make: Callable[[int], Iterable[Made]],
        records: int,
        partitions: int = PARTITIONS,
        *,
        by_key: bool = False,
    ) -> str:
        """The topic with the records that `make` makes; loaded at the first call.

        Args:
            by_key: a record's key chooses its partition; else they are filled in turn.
        """
        key = make, records, partitions, by_key
        return self._loaded(key, make, records, partitions, by_key=by_key)

    def _loaded(
        self,
        key: Hashable,
        make: Callable[[int], Iterable[Made]],
        records: int,
        partitions: int,
        *,
        by_key: bool = False,
    ) -> str:
        if key not in self._inputs:
            topic = self.name("input")
            create_topics(self.bootstrap_servers, topic, partitions=partitions)
            load(self.bootstrap_servers, topic, make(records), partitions, by_key=by_key)
            self._inputs[key] = topic
        return self._inputs[key]

    def work(self, input_topic: str, *, outputs: Sequence[str] = (), **given: Any) -> Work:
        """Work with a new application and a new output topic.

        Args:
            outputs: what the names of further outputs have behind that of the first.
            given: fields of `Work`.
        """
        work = Work(
            bootstrap_servers=self.bootstrap_servers,
            input_topic=input_topic,
            output_topic=self.name("output"),
            application=self.name("bench"),
            directory=self.directory,
            **given,
        )
        topics = [work.output_topic + suffix for suffix in ("", *outputs)]
        create_topics(self.bootstrap_servers, *topics, partitions=work.partitions)
        return work

    def run(
        self,
        contestant: Contestant,
        input_topic: str,
        measure: Callable[[CommittedOffsets, Child, Work], Measured],
        *,
        changelog: bool = False,
        outputs: Sequence[str] = (),
        **given: Any,
    ) -> Measured:
        """Let a contestant work while `measure` watches; then it is stopped, its output deleted.

        Args:
            changelog: whether the work has one that must be there before it begins.
            outputs: what the names of further outputs have behind that of the first.
            given: fields of `Work`.

        Raises:
            ProcessFailed: it ended by itself or made no progress.
        """
        servers = self.bootstrap_servers
        work = self.work(input_topic, outputs=outputs, **given)
        if changelog:
            settings = settings_at_creation(TopicRole.CHANGELOG)
            create_topics(
                servers, work.changelog_topic, partitions=work.partitions, settings=settings
            )
        offsets = CommittedOffsets(servers, work.application, input_topic, work.partitions)
        log_file = self.directory / f"{work.application}.log"
        try:
            with running(contestant.command(work), log_file) as child:
                return measure(offsets, child, work)
        finally:
            offsets.close()
            delete_topics(servers, *(work.output_topic + suffix for suffix in ("", *outputs)))
            delete_topics_of(servers, work.application)


@contextlib.contextmanager
def open_session() -> Iterator[Session]:
    """Start a broker for the length of the block; its data is removed with it."""
    directory = Path(tempfile.mkdtemp(prefix="eosframework-bench-"))
    try:
        with start_kafka(directory / "kafka", heap_megabytes=HEAP_MEGABYTES) as cluster:
            yield Session(cluster.bootstrap_servers, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
