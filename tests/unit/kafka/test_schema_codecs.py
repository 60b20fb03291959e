from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import httpx2 as httpx
import pytest
from confluent_kafka.schema_registry.error import SchemaRegistryError

from eosframework.config import RegistrySettings, SubjectNames
from eosframework.errors import ConfigurationError, SchemaRegistryUnavailable, SchemasRefused
from eosframework.kafka.schema_registry.schema_codecs import SchemaRegistry, open_schemas
from eosframework.serialization.schemas import (
    Codec,
    Registered,
    avro,
    codec_of,
    json_schema,
    protobuf,
)
from eosframework.serialization.serdes import codec_serde
from eosframework.testing import TopologyTestDriver
from eosframework.topology.dsl.builder import Topology
from tests.support.applications.schema_functions import Flight, carrier, is_late, message_class

AIR = "tests.support.applications.schema_functions"
MODELS = avro(f"{AIR}:FLIGHT", model=Flight)
NOBODY = RegistrySettings(url="http://127.0.0.1:9", request_timeout_seconds=0.1)


def codec(declared: Registered, *, is_key: bool = False) -> Codec:
    return codec_of(declared).at("flights", is_key=is_key, written=True)


def bound(declared: Registered) -> Codec:
    made = codec(declared)
    SchemaRegistry(RegistrySettings(), local=True).bind([made])
    return made


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (avro(f"{AIR}:FLIGHT"), {"carrier": "UA", "minutes": 20}),
        (MODELS, Flight(carrier="UA", minutes=20)),
        (json_schema(model=Flight), Flight(carrier="UA", minutes=20, gate="B7")),
    ],
)
def test_values_round_trip(declared: Registered, value: Any) -> None:
    made = bound(declared)
    data = made.encode(value)
    assert data[0] == 0
    assert made.decode(data) == value


def test_messages_round_trip() -> None:
    made = bound(protobuf(f"{AIR}:FlightMessage"))
    value = message_class()(carrier="UA", minutes=20)
    assert made.decode(made.encode(value)) == value


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (avro(f"{AIR}:FLIGHT"), {"carrier": "UA"}),
        (MODELS, {"carrier": "UA", "minutes": 20}),
        (json_schema(model=Flight), 5),
        (protobuf(f"{AIR}:FlightMessage"), {"carrier": "UA"}),
    ],
)
def test_a_value_that_does_not_fit_is_the_records_fault(declared: Registered, value: Any) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of whichever library writes it
        bound(declared).encode(value)
    assert not isinstance(caught.value, SchemaRegistryUnavailable)


@pytest.mark.parametrize("data", [b"", b"{}", b'{"carrier":"UA"}', b"\0\0\0\0\7xxxx"])
def test_bytes_that_name_no_schema_are_the_records_fault(data: bytes) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of whichever library reads it
        bound(MODELS).decode(data)
    assert not isinstance(caught.value, SchemaRegistryUnavailable)


def test_a_registry_that_does_not_answer_is_no_records_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise httpx.ConnectError("nobody is there")

    made = codec(MODELS)
    SchemaRegistry(NOBODY).bind([made])
    written = bound(MODELS).encode(Flight(carrier="UA", minutes=20))
    monkeypatch.setattr(httpx.Client, "request", refuse)
    for work in (lambda: made.decode(written), lambda: made.encode(Flight(carrier="", minutes=1))):
        with pytest.raises(
            SchemaRegistryUnavailable, match=r"http://127\.0\.0\.1:9 .*the record waits"
        ):
            work()


@pytest.mark.parametrize(
    ("status", "code", "read", "write"),
    [
        (404, 40403, SchemaRegistryError, SchemasRefused),
        (404, 40401, SchemaRegistryError, SchemasRefused),
        (404, -1, SchemaRegistryUnavailable, SchemaRegistryUnavailable),
        (422, 42201, SchemaRegistryError, SchemasRefused),
        (400, 400, SchemaRegistryError, SchemasRefused),
        (409, 409, SchemaRegistryUnavailable, SchemasRefused),
        (401, 401, SchemasRefused, SchemasRefused),
        (403, 40301, SchemasRefused, SchemasRefused),
        (429, 42901, SchemaRegistryUnavailable, SchemaRegistryUnavailable),
        (500, 50001, SchemaRegistryUnavailable, SchemaRegistryUnavailable),
        (503, None, SchemaRegistryUnavailable, SchemaRegistryUnavailable),
        (418, None, SchemaRegistryUnavailable, SchemaRegistryUnavailable),
    ],
)
def test_each_answer_of_a_registry_is_somebodys(
    status: int, code: int | None, read: type, write: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(*_: Any, **__: Any) -> Any:
        return httpx.Response(status, json={"error_code": code, "message": "no"})

    made = codec(MODELS)
    SchemaRegistry(NOBODY).bind([made])
    written = bound(MODELS).encode(Flight(carrier="UA", minutes=20))
    monkeypatch.setattr(httpx.Client, "request", answer)
    for work, expected in (
        (lambda: made.decode(written), read),
        (lambda: made.encode(Flight(carrier="", minutes=1)), write),
    ):
        with pytest.raises(expected, match=f"HTTP status code {status}"):
            work()


def test_a_codec_is_bound_again_where_it_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refuse(_: Any, __: str, url: str, **___: Any) -> None:
        asked.append(url)
        raise httpx.ConnectError("nobody is there")

    made = codec(MODELS)
    open_schemas([made], NOBODY, checked=False)
    arrived = pickle.loads(pickle.dumps(codec_serde(made)))
    monkeypatch.setattr(httpx.Client, "request", refuse)
    with pytest.raises(SchemaRegistryUnavailable):
        arrived.encode(Flight(carrier="UA", minutes=20))
    assert asked[0].startswith("http://127.0.0.1:9/subjects/flights-value")


@pytest.mark.parametrize(
    ("names", "declared", "subject"),
    [
        (SubjectNames.TOPIC, MODELS, "flights-value"),
        (SubjectNames.RECORD, MODELS, "air.Flight"),
        (SubjectNames.TOPIC_RECORD, json_schema(model=Flight), "flights-Flight"),
        (SubjectNames.RECORD, protobuf(f"{AIR}:FlightMessage"), "air.Flight"),
        (SubjectNames.RECORD, avro(f"{AIR}:FLIGHT", subject="mine"), "mine"),
    ],
)
def test_subjects_follow_the_setting(
    names: SubjectNames, declared: Registered, subject: str
) -> None:
    registry = SchemaRegistry(RegistrySettings(subject_names=names), local=True)
    assert registry.subject_of(codec(declared)) == subject


def test_a_schema_without_a_name_has_no_subject_by_records() -> None:
    registry = SchemaRegistry(RegistrySettings(subject_names=SubjectNames.RECORD), local=True)
    with pytest.raises(ConfigurationError, match="goes by names of records"):
        registry.subject_of(codec(json_schema(f"{AIR}:FIELDS")))


def test_a_topology_with_schemas_needs_a_registry() -> None:
    with pytest.raises(ConfigurationError, match=r"set schema_registry\.url"):
        open_schemas([codec(MODELS)], RegistrySettings())
    open_schemas([], RegistrySettings())


def test_passwords_do_not_show() -> None:
    settings = RegistrySettings(url="http://r", user="me", password="s3cret")  # pyright: ignore[reportArgumentType]
    assert "s3cret" not in f"{settings!r}{settings.model_dump_json()}"


@pytest.fixture
def driver() -> Callable[[Topology], TopologyTestDriver]:
    return lambda app: TopologyTestDriver(app, partitions=2)


def test_the_test_driver_keeps_schemas_itself(
    driver: Callable[[Topology], TopologyTestDriver],
) -> None:
    app = Topology("air")
    flights = app.stream("flights", key=str, value=MODELS)
    flights.filter(is_late).to("late", value=json_schema(model=Flight))
    flights.group_by(carrier, key=str).count().to("counts", value=int)
    run = driver(app)
    for minutes in (5, 20, 30):
        run.send("flights", Flight(carrier="UA", minutes=minutes), key="x")
    run.run()
    assert [record.value.minutes for record in run.read("late")] == [20, 30]
    assert [record.value for record in run.read("counts")][-1] == 3


def test_a_table_keeps_its_rows_without_a_registry(
    driver: Callable[[Topology], TopologyTestDriver],
) -> None:
    app = Topology("air")
    table = app.table("flights", key=str, value=MODELS)
    orders = app.stream("orders", key=str, value=dict)
    orders.join(table, lambda order, flight: {**order, "to": flight.carrier}).to("joined")
    run = driver(app)
    run.send("flights", Flight(carrier="UA", minutes=5), key="k")
    run.send("orders", {"n": 1}, key="k", timestamp=1)
    run.run()
    assert [record.value for record in run.read("joined")] == [{"n": 1, "to": "UA"}]
    changelog = run.kafka.partitions_of("air-flights-changelog")
    values = [m.value() for p in changelog for m in run.kafka.logs[p].read(0, 9)]
    assert any(b'"carrier":"UA"' in (value or b"") for value in values)
