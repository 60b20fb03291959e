"""An outbox on a database of its own, its relays, and an independent verifier.

The verifier shares no code with the framework: what was committed is known to the test, and what
arrived is read by a plain read_committed consumer.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka.admin import AdminClient
from pydantic import SecretStr

from eosframework.config import DatabaseSettings
from eosframework.postgres.database import Database, migrate
from eosframework.postgres.outbox import emit, publish
from tests.support.applications.pipeline import KEEP, WorkerProcess, read_committed, wait_until
from tests.support.processes.programs import FAULTY, REPOSITORY, Finished, fork_program, run_command
from tests.support.processes.waiting import PATIENCE_SECONDS
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics

PARTITIONS = 3


def entry(topic: Any, key: bytes | None, value: bytes | None, headers: Any = None) -> bytes:
    """What `emit` writes into the log."""
    facts = {
        "id": str(uuid.uuid4()),
        "topic": topic,
        "key": None if key is None else len(key),
        "value": None if value is None else len(value),
        "headers": headers,
        "at": 1_700_000_000_000,  # Longer ago than a strict topic takes.
    }
    return json.dumps(facts).encode() + b"\n" + (key or b"") + (value or b"")


@dataclass
class Arrived:
    """What an independent reader found, against what was committed."""

    lost: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return self == Arrived()


class OutboxWorld:
    """One relay's name, topic and database.

    Args:
        kind: `table` or `slot`.
        shards: into how many the outbox is divided.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        dsn: str,
        directory: Path,
        *,
        kind: str = "table",
        shards: int = 1,
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.dsn = dsn
        self.name = f"relay{uuid.uuid4().hex[:10]}"
        self.topic = f"{self.name}.orders"
        self.kind = kind
        self.shards = shards
        self.committed: dict[str, list[str]] = defaultdict(list)
        self.relays: list[WorkerProcess] = []
        self.settings = [
            f"outbox.name={self.name}",
            f"outbox.source={kind}",
            f"outbox.shards={shards}",
            "outbox.keep_seconds=0.2",
        ]
        self._directory = directory
        self._numbers = 0
        directory.mkdir(parents=True, exist_ok=True)
        migrate(Database(DatabaseSettings(dsn=SecretStr(dsn))))
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        wanted = [NewTopic(self.topic, PARTITIONS, 1, config=KEEP)]
        create_topics(admin, wanted)

    @property
    def send(self) -> Callable[..., None]:
        """`publish` or `emit`."""
        return publish if self.kind == "table" else emit

    def publish(self, count: int = 1, *, key: str | None = None, each: int = 1) -> None:
        """Commit messages, `each` in a transaction; keys are `k0` to `k4` unless one is given."""
        with psycopg.connect(self.dsn) as connection:
            for start in range(0, count, each):
                for _ in range(min(each, count - start)):
                    self.publish_on(connection, key or f"k{self._numbers % 5}")
                connection.commit()

    def publish_on(self, connection: psycopg.Connection[Any], key: str) -> str:
        """Publish the next message; the caller commits."""
        value = str(self._numbers)
        self._numbers += 1
        self.send(connection, self.topic, key, value)
        self.committed[key].append(value)
        return value

    def start_relay(
        self,
        *arguments: str,
        faults: Sequence[str] = (),
        settings: Sequence[str] = (),
        dsn: str | None = None,
        bootstrap_servers: str | None = None,
    ) -> WorkerProcess:
        """Start `relay-outbox` in a process of its own; logs are JSON in a file."""
        number = len(self.relays)
        fault_directory = self._directory / f"faults{number}"
        fault_directory.mkdir()
        log_file = self._directory / f"relay{number}.log"
        command = ["relay-outbox", *self._options(settings), *arguments]
        own = {
            "EOS_TEST_FAULTS": ";".join(faults),
            "EOS_TEST_FAULT_DIRECTORY": str(fault_directory),
        }
        process = fork_program(
            FAULTY,
            command,
            environment=self._environment(dsn, bootstrap_servers) | own,
            out=log_file,
        )
        relay = WorkerProcess(process, log_file, fault_directory)
        self.relays.append(relay)
        return relay

    def reconcile(
        self, *arguments: str, dsn: str | None = None, settings: Sequence[str] = ()
    ) -> Finished:
        """Run `relay-outbox reconcile` to its end."""
        return run_command(
            *("relay-outbox", "reconcile", *self._options(settings), *arguments),
            environment=self._environment(dsn, None),
        )

    def finish(self, *, dsn: str | None = None, seconds: float = PATIENCE_SECONDS) -> None:
        """Let a healthy relay send what is left, and see it end well."""
        relay = self.start_relay("--until-caught-up", dsn=dsn)
        code = relay.wait(seconds)
        assert code == 0, f"exit code {code}:\n{relay.log[-4000:]}"

    def end_sessions(self) -> None:
        """Cut every relay's session with the database, as a network would."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                "WHERE application_name = %s",
                [f"eosframework relay {self.name}"],
            )

    def arrived(self) -> dict[str, list[str]]:
        """What a read_committed reader finds, by key and in order."""
        found: dict[str, list[str]] = defaultdict(list)
        for message in read_committed(self.bootstrap_servers, self.topic):
            found[(message.key() or b"").decode()].append((message.value() or b"").decode())
        return found

    def wait_for(self, count: int, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until so many messages have arrived."""
        wait_until(
            lambda: sum(map(len, self.arrived().values())) >= count, f"{count} messages", seconds
        )

    def verify(self) -> Arrived:
        """Compare what arrived with what was committed."""
        arrived = self.arrived()
        verdict = Arrived()
        for key in {*arrived, *self.committed}:
            expected, found = Counter(self.committed[key]), Counter(arrived[key])
            verdict.lost += sorted((expected - found).elements())
            extra = found - expected
            verdict.duplicated += sorted(v for v in extra.elements() if v in expected)
            verdict.unexpected += sorted(v for v in extra.elements() if v not in expected)
            places = {value: place for place, value in enumerate(self.committed[key])}
            order = [places[value] for value in arrived[key] if value in places]
            verdict.reordered += [key] if order != sorted(order) else []
        return verdict

    def positions(self) -> dict[str, Any]:
        """The positions that Kafka holds, by key of the registry."""
        found: dict[str, Any] = {}
        for message in read_committed(self.bootstrap_servers, f"{self.name}-control"):
            value = message.value()
            found[(message.key() or b"").decode()] = json.loads(value) if value else None
        return found

    def stop(self) -> None:
        """End every process that this world started."""
        for relay in self.relays:
            if relay.process.poll() is None:
                relay.process.kill()
                relay.process.wait()

    def _options(self, settings: Sequence[str]) -> list[str]:
        return [part for setting in (*self.settings, *settings) for part in ("--set", setting)]

    def _environment(self, dsn: str | None, bootstrap_servers: str | None) -> dict[str, str]:
        return {
            "PYTHONPATH": str(REPOSITORY),
            "EOS_DATABASE__DSN": dsn or self.dsn,
            "EOS_KAFKA__BOOTSTRAP_SERVERS": bootstrap_servers or self.bootstrap_servers,
        }
