"""The `eosframework` command in a process of its own, as a user runs it."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from eosframework.cli import main
from tests.support.applications.feeding import feeder
from tests.support.processes.programs import (
    REPOSITORY,
    Finished,
    framework_command,
    run_command,
    start_command,
)
from tests.support.processes.waiting import PATIENCE_SECONDS
from tests.support.servers.kafka_admin import NewTopic, OffsetSpec
from tests.support.servers.topics import create_topics

_STARTING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
"""Errors of a broker whose internal topics are being created."""


def here(*arguments: str) -> Finished:
    """Run a command in this process: for commands that start no worker."""
    out, err, path, stdin = io.StringIO(), io.StringIO(), list(sys.path), sys.stdin
    code: str | int | None = 0
    sys.stdin = io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(list(arguments))
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.path[:], sys.stdin = path, stdin
    return Finished(int(code or 0), out.getvalue(), err.getvalue())


class Folder:
    """A user's directory, with commands that reach one broker.

    Args:
        bootstrap_servers: reached by default; None: the default of the command.
    """

    def __init__(self, path: Path, bootstrap_servers: str | None = None) -> None:
        self.path = path
        self.bootstrap_servers = bootstrap_servers

    def write(self, name: str, text: str) -> str:
        (self.path / name).write_text(text)
        return name

    def command(self, *arguments: str) -> list[str]:
        return framework_command(*arguments)

    def environment(self, own: Mapping[str, str] | None = None) -> dict[str, str]:
        return os.environ | self._own(own)

    def _own(self, own: Mapping[str, str] | None) -> dict[str, str]:
        chosen = {"PYTHONPATH": str(REPOSITORY)} | dict(own or {})
        if self.bootstrap_servers is not None:
            chosen.setdefault("EOS_KAFKA__BOOTSTRAP_SERVERS", self.bootstrap_servers)
        return chosen

    def run(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        seconds: float = PATIENCE_SECONDS,
    ) -> Finished:
        """Run a command to its end."""
        return run_command(
            *arguments,
            environment=self._own(environment),
            directory=self.path,
            seconds=seconds,
        )

    def start(
        self,
        *arguments: str,
        log: Path,
        environment: Mapping[str, str] | None = None,
        prepare: Callable[[], None] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a command that runs until it is stopped."""
        return start_command(
            self.command(*arguments),
            out=log,
            environment=self._own(environment),
            directory=self.path,
            prepare=prepare,
        )


class Cluster:
    """Requests of tests to a broker, with plain clients."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._settings = {"bootstrap.servers": bootstrap_servers}
        self.admin = AdminClient({**self._settings})

    def create(self, *topics: str, partitions: int = 1) -> None:
        wanted = [NewTopic(topic, partitions, 1) for topic in topics]
        create_topics(self.admin, wanted)

    def feed(self, topic: str, *values: bytes, timestamp_ms: int = 0) -> None:
        """Write values; a timestamp of 0 means now."""
        producer = feeder(self.bootstrap_servers)
        for value in values:
            producer.produce(topic, value, timestamp=timestamp_ms)
        assert producer.flush(60) == 0

    def end(self, topic: str) -> int:
        """The end of partition 0: 0 if nothing was ever written into it, committed or not."""
        return self._end(topic, IsolationLevel.READ_UNCOMMITTED)

    def stable_end(self, topic: str) -> int:
        """The last stable offset of partition 0."""
        return self._end(topic, IsolationLevel.READ_COMMITTED)

    def _end(self, topic: str, isolation_level: IsolationLevel) -> int:
        partition = TopicPartition(topic, 0)
        latest = OffsetSpec.latest()
        assert latest is not None
        asked = self.admin.list_offsets({partition: latest}, isolation_level=isolation_level)
        return asked[partition].result(60).offset

    def committed(self, group: str, topic: str) -> int | None:
        """The offset that the group has committed in partition 0."""
        consumer = Consumer({**self._settings, "group.id": group})
        wanted = [TopicPartition(topic, 0)]
        deadline = time.monotonic() + PATIENCE_SECONDS
        try:
            while True:
                try:
                    [position] = consumer.committed(wanted, timeout=20)
                    return position.offset if position.offset >= 0 else None
                except KafkaException as error:
                    if error.args[0].code() not in _STARTING or time.monotonic() > deadline:
                        raise
        finally:
            consumer.close()
