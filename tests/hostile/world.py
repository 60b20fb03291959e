"""The applications that take hostile records, their workers, and an account of every input."""

from __future__ import annotations

import gzip
import hashlib
import json
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import psycopg
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from tests.hostile.functions import NOON
from tests.hostile.inputs import ALL, MOST_BYTES, OUTPUT, Feeder, Input, Outcome
from tests.hostile.lanes import (
    IDENTIFIED,
    JOIN_MS,
    KEPT,
    LANES,
    OUTPUTS,
    PLAIN,
    REGISTERED,
    ROWS,
    TABLES,
    TRANSFORMS,
    WINDOW_MS,
)
from tests.support.applications.pipeline import WorkerProcess
from tests.support.processes.programs import FAULTY, REPOSITORY, Finished, fork_program, run_command
from tests.support.processes.waiting import PATIENCE_SECONDS
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics

OPEN_TOPIC = {
    "retention.ms": "-1",
    "message.timestamp.after.max.ms": str(2**63 - 1),
}
"""Of inputs: they take any time, and batches of Kafka's default size."""

ROUND_MS = 1_000_000
"""Event time from one round of inputs to the next; what closes all windows lies between."""

Place = tuple[str, int]
"""A lane, and an offset in its topic."""


@dataclass
class Seen:
    """What became of inputs, by lane and offset, as far as it was read."""

    outcomes: dict[Place, Counter[Outcome]] = field(
        default_factory=lambda: defaultdict[Place, Counter[Outcome]](Counter)
    )
    same: dict[str, list[tuple[bytes | None, bytes | None]]] = field(
        default_factory=lambda: defaultdict[str, list[Any]](list)
    )
    unexplained: list[str] = field(default_factory=list[str])


class HostileWorld:
    """Two applications: transforms, and what fills a table."""

    def __init__(
        self, bootstrap_servers: str, name: str, directory: Path, dsn: str, registry_url: str
    ) -> None:
        self.bootstrap_servers, self.name, self.dsn = bootstrap_servers, name, dsn
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.workers: list[WorkerProcess] = []
        self.fed: dict[Place, Input] = {}
        self.seen = Seen()
        self.rounds = 0
        self._prefix = f"{name}."
        self.letters: dict[Place, str] = {}
        """Places of dead letters, as commands take them."""
        self._rows = 0
        self._letters = 0
        self._ids: dict[tuple[str, int], Place] = {}
        self._places: dict[str, list[int]] = defaultdict(list)
        topics = [NewTopic(self._prefix + lane, 1, 1, config=OPEN_TOPIC) for lane in LANES]
        roomy = {"retention.ms": "-1", "max.message.bytes": str(MOST_BYTES)}
        topics += [
            NewTopic(
                self._prefix + output,
                1,
                1,
                config=roomy if output == "same.raw" else {"retention.ms": "-1"},
            )
            for output in OUTPUTS
        ]
        create_topics(AdminClient({"bootstrap.servers": bootstrap_servers}), topics)
        self._registry_url = registry_url
        self._registry = SchemaRegistryClient({"url": registry_url})
        self._schemas: dict[tuple[str, str], int] = {}
        self._feeder = Feeder(bootstrap_servers, self._prefix)
        self.transforms = self._application("transforms", TRANSFORMS, name)
        self.tables = self._application("tables", TABLES.replace(f"NAME.{KEPT}", f"{name}.{KEPT}"))
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "fetch.message.max.bytes": 20_000_000,
            }
        )
        assigned = [TopicPartition(self._prefix + output, 0, 0) for output in OUTPUTS]
        self._consumer.assign(assigned)

    @property
    def moment(self) -> int:
        """The event time at which this round of inputs begins."""
        return NOON + self.rounds * ROUND_MS

    def start(self) -> None:
        """Start a worker of each application."""
        self.workers += [self._start(self.transforms), self._start(self.tables)]
        self.workers[0].wait_for_event("task_assigned")
        self.workers[1].wait_for_event("partition_claimed")

    def start_tables(self, dsn: str) -> WorkerProcess:
        """Start only the worker that writes to the table, which reaches the database at `dsn`."""
        worker = self._start(self.tables, {"EOS_DATABASE__DSN": dsn})
        self.workers.append(worker)
        worker.wait_for_event("partition_claimed")
        return worker

    def feed(self, inputs: Sequence[Input]) -> None:
        """Write inputs, and behind them what closes every window that they opened."""
        assert len({each.id for each in inputs}) == len(inputs), "ids are unique"
        self._note(self._feeder.feed(map(self._framed, inputs)))
        end = self.moment + ROUND_MS - 2 * max(JOIN_MS, WINDOW_MS)
        last = max((each.id for each in inputs), default=0)
        closing: list[Input] = []
        for number, lane in enumerate(("window", "session", "left", "right")):
            for step in range(2):
                id_ = last + 1 + 2 * number + step
                at = end + step * (JOIN_MS + 1000)
                value = json.dumps({"id": id_, "k": "closing", "t": at}).encode()
                closing.append(Input(lane, id_, b"closing", value, expected=OUTPUT))
        for each in closing:
            self._note(self._feeder.feed([each]))
        self.rounds += 1

    def _framed(self, each: Input) -> Input:
        """Return an input with the number of its schema before the value."""
        if each.schema is None:
            return each
        known = (each.lane, each.schema)
        if known not in self._schemas:
            schema = Schema(each.schema, REGISTERED[each.lane][0])
            subject = f"{self._prefix}{each.lane}{len(self._schemas)}"
            self._schemas[known] = self._registry.register_schema(subject, schema)
        return replace(
            each, value=b"\0" + self._schemas[known].to_bytes(4, "big") + (each.value or b"")
        )

    def _note(self, fed: Mapping[Place, Input]) -> None:
        self.fed |= fed
        self._ids |= {(each.lane, each.id): place for place, each in fed.items()}

    def wait(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until something became of every input."""
        quiet = time.monotonic() + seconds

        def done() -> bool:
            self.read()
            dead = [worker for worker in self.workers if worker.process.poll() is not None]
            assert not dead, f"a worker ended:\n{dead[0].log[-6000:]}"
            return not self.waiting()

        while not done():
            missing = ", ".join(str(each) for each in self.waiting()[:5])
            assert time.monotonic() < quiet, f"nothing became of {missing}"

    def waiting(self) -> list[Input]:
        """Return the inputs of which nothing became yet."""
        return [
            each
            for place, each in self.fed.items()
            if not self.seen.outcomes.get(place) and not self._is_silent(each)
        ]

    def _is_silent(self, each: Input) -> bool:
        """Tell whether nothing has to come of an input.

        A row is kept, what closes windows may be in one that is open, and what has no key or no
        value is passed over by keyed steps.
        """
        if each.lane == ROWS:
            return Outcome.OUTPUT in each.expected
        if each.lane in ("window", "session") and b'"k": null' in (each.value or b""):
            return True
        if each.lane in ("asks", "left", "right"):
            has_value = (each.value or b"null").strip() != b"null"
            if each.key is None or not has_value:
                return True
        return each.key == b"closing" and each.lane in IDENTIFIED

    def wrong(self) -> list[str]:
        """Return what became of inputs that should not have."""
        found = list(self.seen.unexplained)
        for place, each in self.fed.items():
            outcomes = self.seen.outcomes.get(place, Counter[Outcome]())
            kinds = set(outcomes)
            if len(kinds) > 1 or (each.lane not in ("left", "right") and outcomes.total() > 1):
                found.append(f"{each} became {dict(outcomes)}")
            elif not kinds and not self._is_silent(each):
                found.append(f"nothing became of {each}")
            elif not kinds <= each.expected:
                found.append(f"{each} became {min(kinds)}, expected {sorted(each.expected)}")
        return found + self._changed()

    def _changed(self) -> list[str]:
        """Return the records that went through a plain lane and came out as others."""
        found: list[str] = []
        for lane in PLAIN:
            copies, places = self.seen.same[lane], self._places[lane]
            if len(copies) != len(places):
                found.append(f"lane {lane} has {len(copies)} copies of {len(places)} records")
                continue
            for (key, value), offset in zip(copies, places, strict=True):
                each = self.fed[lane, offset]
                if lane not in ("any", "item") and (key, value) != (each.key, each.value):
                    found.append(f"{each} came out as {key!r:.80}, {value!r:.80}")
                if lane == "any" and each.expected == OUTPUT and not _alike(value, each.value):
                    found.append(f"{each} came out as {value!r:.80}")
        return found

    def read(self) -> None:
        """Read what there is of the outputs and of the table."""
        for message in self._consumer.consume(2000, 0.3):
            error = message.error()
            assert error is None, error
            self._take((message.topic() or "").removeprefix(self._prefix), message)
        self._read_table()

    def _take(self, output: str, message: Message) -> None:
        value = message.value()
        if output in ("dead", "late"):
            outcome = Outcome.DEAD if output == "dead" else Outcome.OUTPUT
            self._letter(message, outcome)
        elif output.startswith("same."):
            self.seen.same[output.removeprefix("same.")].append((message.key(), value))
        elif output == "placed":
            place = json.loads(value or b"")
            lane = place["topic"].removeprefix(self._prefix)
            self._places[lane].append(place["offset"])
            each = self.fed[lane, place["offset"]]
            if lane in PLAIN and message.timestamp()[1] not in (each.timestamp, 1, -1):
                self.seen.unexplained.append(f"{each} came out with {message.timestamp()}")
            self._became((lane, place["offset"]), Outcome.OUTPUT)
        elif output.startswith("closed."):
            for id_ in json.loads(value or b"")["value"]:
                self._became_id((output.removeprefix("closed."),), id_, Outcome.OUTPUT)
        elif output == "paired":
            for lane, id_ in json.loads(value or b"").items():
                if id_ is not None:
                    self._became_id((lane,), id_, Outcome.OUTPUT)
        elif output in ("repeated", "looked"):
            lane = {"repeated": "again", "looked": "asks"}[output]
            self._became_id((lane,), json.loads(value or b"")["id"], Outcome.OUTPUT)

    def _letter(self, message: Message, outcome: Outcome) -> None:
        # The framework's headers are the last of their name.
        headers: dict[str, Any] = dict(message.headers() or ())
        topic = (headers["__streams.errors.topic"] or b"").decode().removeprefix(self._prefix)
        place = topic, int(headers["__streams.errors.offset"] or b"")
        if place in self.fed:
            each = self.fed[place]
            self.letters[place] = f"{message.topic()}[{message.partition()}]@{message.offset()}"
            if not _holds(message, headers, each):
                self.seen.unexplained.append(f"a letter of {each} holds {message.value()!r:.80}")
            self._became(place, outcome)
        else:
            with suppress(ValueError, KeyError, TypeError):
                self._became_id(IDENTIFIED, json.loads(message.value() or b"")["id"], outcome)
                return
            self.seen.unexplained.append(f"a letter comes from nowhere: {headers}")

    def _became_id(self, lanes: Iterable[str], id_: Any, outcome: Outcome) -> None:
        for lane in lanes:
            if (place := self._ids.get((lane, id_))) is not None:
                self._became(place, outcome)
                return
        self.seen.unexplained.append(f"{outcome} of id {id_!r:.80}, which was not fed")

    def _became(self, place: Place, outcome: Outcome) -> None:
        self.seen.outcomes[place][outcome] += 1

    def _read_table(self) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            rows = connection.execute(
                "SELECT place FROM kept ORDER BY place OFFSET %s", [self._rows]
            ).fetchall()
            letters = connection.execute(
                'SELECT "offset" FROM eosframework.dead_letters ORDER BY id OFFSET %s',
                [self._letters],
            ).fetchall()
        self._rows, self._letters = self._rows + len(rows), self._letters + len(letters)
        for found, outcome in ((rows, Outcome.OUTPUT), (letters, Outcome.DEAD)):
            for (offset,) in found:
                self._became((KEPT, offset), outcome)

    def seen_of_round(self) -> str:
        """Return how many inputs had which outcome."""
        counts = Counter(kind for found in self.seen.outcomes.values() for kind in found)
        return ", ".join(f"{count} x {kind}" for kind, count in sorted(counts.items()))

    def forget(self) -> None:
        """Forget inputs of which everything became that will; what closes windows stays.

        So do rows that are either kept, which is not seen, or dead letters: these may be to come.
        """
        staying = {
            place
            for place, each in self.fed.items()
            if each.key == b"closing" or (each.lane == ROWS and each.expected == ALL)
        }
        self.fed = {place: self.fed[place] for place in staying}
        self._ids = {key: place for key, place in self._ids.items() if place in staying}
        kept = {place: seen for place, seen in self.seen.outcomes.items() if place in staying}
        self.seen = Seen()
        self.seen.outcomes.update(kept)
        self._places.clear()

    def megabytes(self) -> list[int]:
        """Return how much memory each worker has."""
        sizes = [psutil.Process(worker.process.pid).memory_info().rss for worker in self.workers]
        return [size // 2**20 for size in sizes]

    def stop(self) -> list[int]:
        """Stop the workers and return their exit codes."""
        for worker in self.workers:
            worker.signal(signal.SIGTERM)
        return [worker.wait() for worker in self.workers]

    def close(self) -> None:
        """End what still runs."""
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.process.kill()
                worker.process.wait()
        self._consumer.close()
        self._registry.close()
        self._feeder.close()

    def run(self, *command: str) -> Finished:
        """Run a command to its end."""
        return run_command(*command, environment=self._environment, directory=self.directory)

    @property
    def _environment(self) -> dict[str, str]:
        return {
            "PYTHONPATH": str(REPOSITORY),
            "EOS_KAFKA__BOOTSTRAP_SERVERS": self.bootstrap_servers,
            "EOS_DATABASE__DSN": self.dsn,
            "EOS_SCHEMA_REGISTRY__URL": self._registry_url,
            "EOS_STATE__DIRECTORY": str(self.directory / "state"),
            "EOS_WORKER__RECEIPTS": "true",
            "EOS_TEST_FAULTS": "",
            "EOS_TEST_FAULT_DIRECTORY": str(self.directory),
        }

    def _application(self, kind: str, topology: str, name: str | None = None) -> Path:
        file = self.directory / f"{kind}.yaml"
        file.write_text(topology.replace("NAME", name or f"{self.name}.{kind}"))
        done = self.run("apply", str(file))
        assert done.exit_code == 0, done.err
        return file

    def _start(
        self, topology: Path, environment: Mapping[str, str] = MappingProxyType({})
    ) -> WorkerProcess:
        log = self.directory / f"{topology.stem}.log"
        command = ["run-worker", str(topology)]
        complete = {**self._environment, **environment}
        process = fork_program(FAULTY, command, environment=complete, out=log)
        return WorkerProcess(process, log, self.directory)


def _alike(found: bytes | None, fed: bytes | None) -> bool:
    """Tell whether two values are the same; JSON's null goes out as a null value."""
    return json.loads(found or b"null") == json.loads(fed or b"null")


def _holds(message: Message, headers: Mapping[str, Any], each: Input) -> bool:
    """Tell whether a dead letter holds its record, or a digest of it if it was too large."""
    key, value, form = message.key(), message.value(), headers.get("__eos.errors.form")
    if form == b"gzip":
        value = gzip.decompress(value or b"")
    if form in (None, b"gzip"):
        return (key, value) == (each.key, each.value)
    parts = [each.key, each.value, *(part for header in each.headers for part in header)]
    content = b"".join(b"-" if part is None else b"%d:%b" % (len(part), part) for part in parts)
    is_known = headers["__eos.errors.sha256"] == hashlib.sha256(content).hexdigest().encode()
    return is_known and value is None and key in ((each.key,) if form == b"place" else (None,))
