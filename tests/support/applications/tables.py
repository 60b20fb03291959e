"""A topology that ends in tables, its workers, and an independent look at what is in them.

The verifier shares no code with the framework: it reads the input with a plain consumer and the
tables with plain psycopg.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from tests.support.applications.feeding import feeder
from tests.support.applications.pipeline import Pipeline, WorkerProcess, number_in, wait_until
from tests.support.processes.commands import Folder
from tests.support.processes.programs import Finished
from tests.support.processes.waiting import PATIENCE_SECONDS

DIRECT = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  kept:
    from: numbers
    to: [{table: numbers, mode: append}]
"""

BOTH_KINDS = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  doubled:
    from: numbers
    steps: [{map_values: "tests.support.applications.functions:double"}]
    to: [{table: doubled, model: "tests.support.applications.rows:Number", value: json}]
"""
"""A transform gives the rows, so workers of both kinds run."""


@dataclass
class Kept:
    """What an independent reader found in a table, against the input."""

    lost: list[int] = field(default_factory=list)
    duplicated: list[int] = field(default_factory=list)
    unexpected: list[int] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return self == Kept()


class TablesWorld(Pipeline):
    """One application that fills tables of a database of its own.

    Args:
        dsn: of the database, for the test; workers may be given another way to it.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        name: str,
        directory: Path,
        dsn: str,
        *,
        topology: str = DIRECT,
        partitions: int = 4,
        outputs: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(
            bootstrap_servers,
            name,
            directory,
            topology=topology,
            partitions=partitions,
            outputs=outputs or {},
        )
        self.dsn = dsn

    def start_worker(
        self, *arguments: str, dsn: str | None = None, **options: Any
    ) -> WorkerProcess:
        """Start `run-worker`; `dsn` is how it reaches the database."""
        own = {"EOS_DATABASE__DSN": dsn or self.dsn}
        environment: Mapping[str, str] = {**own, **(options.pop("environment", None) or {})}
        return super().start_worker(*arguments, environment=environment, **options)

    def run(self, command: str, *arguments: str, seconds: float = PATIENCE_SECONDS) -> Finished:
        """Run another command on this topology to its end."""
        return Folder(self.directory, self.bootstrap_servers).run(
            *command.split(),
            str(self.topology_file),
            *arguments,
            environment={"EOS_DATABASE__DSN": self.dsn},
            seconds=seconds,
        )

    def apply(self) -> None:
        done = self.run("apply")
        assert done.exit_code == 0, done.err

    def see(self, query: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """What a plain connection is answered."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(query.encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    def count(self, table: str = "numbers") -> int:
        return self.see(f"SELECT count(*) FROM {table}")[0][0]

    def wait_for(
        self, count: int, table: str = "numbers", seconds: float = PATIENCE_SECONDS
    ) -> None:
        def there() -> bool:
            running = [w for w in self.workers if w.process.poll() is None]
            assert running or self.count(table) >= count, self.workers[-1].log[-4000:]
            return self.count(table) >= count

        try:
            wait_until(there, f"{count} rows in {table}", seconds)
        except AssertionError as error:
            error.add_note(self._standing(table))
            raise

    def _standing(self, table: str) -> str:
        """Tell how far the input, its rows and their positions are, for a test that failed."""
        ends = Counter((m.topic(), m.partition()) for m in self.read(self.source))
        shown = self.run("positions", "show", "--tables")
        return f"input: {dict(ends)}; rows: {self.count(table)}; {shown.out}{shown.err}"

    def produce(self, *values: Any, key: bytes | None = None, partition: int = 0) -> None:
        """Append values to the input: bytes as they are, None as null, others as JSON."""
        producer = feeder(self.bootstrap_servers)
        for value in values:
            raw = value if value is None or isinstance(value, bytes) else json.dumps(value)
            producer.produce(self.source, raw, key, partition)
        assert producer.flush(60) == 0

    def kept(self, table: str = "numbers", factor: int = 1) -> Kept:
        """Compare a table of numbers with the input."""
        expected = Counter(number_in(message) * factor for message in self.read(self.source))
        found = Counter(n for (n,) in self.see(f"SELECT n FROM {table}"))
        extra = found - expected
        return Kept(
            lost=sorted((expected - found).elements()),
            duplicated=sorted(n for n in extra if n in expected),
            unexpected=sorted(n for n in extra if n not in expected),
        )
