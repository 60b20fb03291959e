"""Topologies whose schemas are in a registry, over a real broker and a real registry.

What producers and readers outside do is done by confluent_kafka's own serializers.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.support.applications import schema_functions as air
from tests.support.applications.pipeline import read_committed, wait_until
from tests.support.faults.registry_proxy import registry_proxy
from tests.support.processes.commands import Cluster, Folder
from tests.support.processes.programs import Finished
from tests.support.processes.waiting import PATIENCE_SECONDS
from tests.support.servers.schema_registry import Registry

HERE = "tests.support.applications.schema_functions"

# Their constructors are assigned to __init__, which a checker takes for that of object.
WRITER: Any = AvroSerializer
READERS: dict[str, Any] = {
    "avro": AvroDeserializer,
    "json": JSONDeserializer,
    "protobuf": ProtobufDeserializer,
}

LATE = f"""\
application: NAME
sources:
  flights:
    topic: NAME.in
    value: {{avro: {{schema: "{HERE}:GROWN", model: "{HERE}:Flight"}}}}
    on_error: POLICY
streams:
  late:
    from: flights
    steps: [filter: "{HERE}:is_late"]
    to: [{{topic: NAME.out, value: {{avro: {{schema: "{HERE}:LATE", model: "{HERE}:Flight"}}}}}}]
"""

OTHERS = f"""\
  as_json:
    from: late
    to: [{{topic: NAME.json, value: {{json_schema: {{model: "{HERE}:Flight"}}}}}}]
  as_messages:
    from: late
    steps: [map_values: "{HERE}:as_message"]
    to: [{{topic: NAME.messages, value: {{protobuf: {{message: "{HERE}:FlightMessage"}}}}}}]
"""


class World:
    """One application, a folder with its topology, and what is outside of it."""

    def __init__(self, folder: Folder, cluster: Cluster, registry: Registry, name: str) -> None:
        self.folder, self.cluster, self.name = folder, cluster, name
        self.client = SchemaRegistryClient({"url": registry.url})
        self.environment = {
            "EOS_SCHEMA_REGISTRY__URL": registry.url,
            "EOS_SCHEMA_REGISTRY__REQUEST_TIMEOUT_SECONDS": "10",
            "EOS_TOPICS__PARTITIONS": "1",
        }
        cluster.create(f"{name}.in", f"{name}.out", f"{name}.dead")

    def write(self, text: str, policy: str = "fail") -> None:
        text = text.replace("POLICY", policy).replace("NAME", self.name)
        self.folder.write("app.yaml", text)

    def run(self, *arguments: str) -> Finished:
        return self.folder.run(*arguments, environment=self.environment)

    def start(self, log: Path) -> subprocess.Popen[bytes]:
        """Start a worker, which registers what it writes with."""
        environment = {**self.environment, "EOS_SCHEMA_REGISTRY__AUTO_REGISTER": "true"}
        return self.folder.start("run-worker", "app.yaml", log=log, environment=environment)

    def written(self, schema: dict[str, Any], **value: Any) -> bytes:
        """Return a value as a producer outside writes it; the schema is registered by that."""
        write = WRITER(self.client, orjson.dumps(schema).decode())
        data = write(value, SerializationContext(f"{self.name}.in", MessageField.VALUE))
        assert data is not None
        return data

    def feed(self, *values: bytes) -> None:
        self.cluster.feed(f"{self.name}.in", *values)

    def read(self, topic: str, read: Callable[..., Any]) -> list[Any]:
        """Return what a reader outside finds."""
        context = SerializationContext(topic, MessageField.VALUE)
        records = read_committed(self.cluster.bootstrap_servers, f"{self.name}.{topic}")
        return [read(record.value(), context) for record in records]

    def late(self) -> list[Any]:
        return self.read("out", READERS["avro"](self.client))


@pytest.fixture
def world(
    kafka: Any, registry: Registry, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[World]:
    folder = Folder(tmp_path, kafka.bootstrap_servers)
    made = World(folder, Cluster(kafka.bootstrap_servers), registry, unique_name("air"))
    yield made
    made.client.close()


def test_readers_and_writers_outside_share_topics_and_schemas(world: World) -> None:
    world.write(LATE + OTHERS)
    old, new = {"carrier": "UA", "minutes": 20}, {"carrier": "DL", "minutes": 30, "gate": "B7"}
    world.feed(world.written(air.FLIGHT, **old), world.written(air.GROWN, **new))
    planned = world.run("plan", "app.yaml", "--json").json["schemas"]
    assert {p["subject"].rpartition(".")[2]: p["state"] for p in planned} == {
        "out-value": "to register",
        "json-value": "to register",
        "messages-value": "to register",
    }
    applied = world.run("apply", "app.yaml", "--json")
    assert f"schema of subject {world.name}.out-value" in applied.json["created"], applied.err
    done = world.run("run-worker", "app.yaml", "--until-caught-up")
    assert done.exit_code == 0, done.err
    assert world.late() == [old, {"carrier": "DL", "minutes": 30}]
    schema = orjson.dumps(air.Flight.model_json_schema()).decode()
    assert world.read("json", READERS["json"](schema)) == [{**old, "gate": "none"}, new]
    read = READERS["protobuf"](air.message_class(), {}, world.client)
    messages = world.read("messages", read)
    assert [(m.carrier, m.minutes) for m in messages] == [("UA", 20), ("DL", 30)]


def test_what_names_no_schema_is_a_dead_letter_with_its_bytes(world: World) -> None:
    world.write(LATE, "{dead_letter: NAME.dead}".replace("NAME", world.name))
    good = world.written(air.FLIGHT, carrier="UA", minutes=20)
    bad = (b'{"carrier":"UA"}', b"\0\x7f\xff\xff\xff\4UA\x28", good[:6])
    world.feed(good, *bad, good)
    world.environment["EOS_SCHEMA_REGISTRY__AUTO_REGISTER"] = "true"
    done = world.run("run-worker", "app.yaml", "--until-caught-up")
    assert done.exit_code == 0, done.err
    assert [flight["carrier"] for flight in world.late()] == ["UA", "UA"]
    dead = read_committed(world.cluster.bootstrap_servers, f"{world.name}.dead")
    assert tuple(record.value() for record in dead) == bad


@pytest.mark.slow
def test_a_record_waits_for_a_registry_that_is_away(world: World, registry: Registry) -> None:
    world.write(LATE, "skip")
    first = world.written(air.FLIGHT, carrier="UA", minutes=20)
    second = world.written(air.GROWN, carrier="DL", minutes=30, gate="B7")
    world.feed(first)
    log = world.folder.path / "worker.log"
    worker = world.start(log)
    try:
        wait_until(lambda: len(world.late()) == 1, "the first record's output")
        with registry.standing_still():
            world.feed(second)
            wait_until(lambda: "the record waits for it" in log.read_text(), "the wait")
            assert world.cluster.committed(world.name, f"{world.name}.in") == 1
        wait_until(lambda: len(world.late()) == 2, "the second record's output")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE_SECONDS) == 0
    finally:
        worker.kill()
        worker.wait()
    assert [flight["carrier"] for flight in world.late()] == ["UA", "DL"]
    assert '"event":"transaction_aborted"' in log.read_text().replace(" ", "")


def test_a_schema_that_does_not_fit_is_refused_before_anything_is_made(world: World) -> None:
    world.write(LATE)
    world.feed(world.written(air.FLIGHT, carrier="UA", minutes=20))
    unregistered = world.run("run-worker", "app.yaml", "--until-caught-up")
    assert unregistered.exit_code == 2
    assert f"no schema of avro(schema={HERE}:LATE" in unregistered.error
    assert "run `eosframework apply`" in unregistered.error
    schema = Schema(orjson.dumps(air.LATE).decode(), "AVRO")
    world.client.register_schema(f"{world.name}.out-value", schema)
    world.write(LATE.replace(f"{HERE}:LATE", f"{HERE}:LATE_BROKEN") + OTHERS)
    refused = world.run("apply", "app.yaml")
    assert refused.exit_code == 2
    assert f"subject '{world.name}.out-value': the schema registry rejects" in refused.error
    assert f"{world.name}.json" not in world.cluster.admin.list_topics(timeout=60).topics


def with_field(name: str) -> dict[str, Any]:
    """A schema of its own, which readers of the others can read."""
    field = {"name": name, "type": "string", "default": ""}
    return {**air.FLIGHT, "fields": [*air.FIELDS, field]}


def number_of(data: bytes) -> int:
    """The schema's number in a value."""
    return int.from_bytes(data[1:5])


def test_an_answer_about_a_record_is_the_records_the_registrys_or_the_frameworks(
    world: World, registry: Registry
) -> None:
    """One worker meets a schema that is refused, one that fails for a while, one it may not see."""
    names = ("Good", "Refused", "Failing", "Forbidden")
    values = {name: world.written(with_field(name), carrier=name, minutes=20) for name in names}
    log = world.folder.path / "worker.log"
    world.write(LATE, "{dead_letter: NAME.dead}")
    with registry_proxy(registry.url) as proxy:
        world.environment["EOS_SCHEMA_REGISTRY__URL"] = proxy.url
        for name, status in (("Refused", 422), ("Failing", 500), ("Forbidden", 403)):
            proxy.statuses[number_of(values[name])] = status
        world.feed(values["Good"], values["Refused"], values["Failing"], values["Good"])
        worker = world.start(log)
        try:
            wait_until(lambda: "the record waits for it" in log.read_text(), "the wait")
            del proxy.statuses[number_of(values["Failing"])]
            wait_until(lambda: len(world.late()) == 3, "all outputs")
            world.feed(values["Forbidden"])
            assert worker.wait(PATIENCE_SECONDS) == 1
        finally:
            worker.kill()
            worker.wait()
    assert set(proxy.given) == {422, 500, 403}
    assert [flight["carrier"] for flight in world.late()] == ["Good", "Failing", "Good"]
    dead = read_committed(world.cluster.bootstrap_servers, f"{world.name}.dead")
    assert [record.value() for record in dead] == [values["Refused"]]
    told = log.read_text()
    assert "Traceback" not in told
    assert f"error: the schema registry at {proxy.url} is needed to read {world.name}.in" in told
    assert "correct schema_registry.user and schema_registry.password" in told
