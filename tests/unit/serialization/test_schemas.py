from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eosframework
from eosframework.engine.conversions import event_time
from eosframework.engine.failures.failure_handler import FailureHandler, Site
from eosframework.errors import ConfigurationError, SchemaRegistryUnavailable, TopologyError
from eosframework.postgres.tables.table_ports import Claim, RowMaker
from eosframework.records import TopicPartition
from eosframework.serialization.schemas import (
    OPTIONS,
    Format,
    Registered,
    avro,
    codec_of,
    json_schema,
    protobuf,
)
from eosframework.serialization.serdes import Serde, internal_serde_name, serde_of
from eosframework.testing import Sent
from eosframework.topology.graph.graph import (
    Function,
    OnError,
    Policy,
    SinkTable,
    Source,
    TableMode,
    TableSink,
)
from tests.support.applications.schema_functions import FLIGHT, Flight

AIR = "tests.support.applications.schema_functions"

words = st.from_regex(r"[^\s,()=]+", fullmatch=True)


@settings(max_examples=50)
@given(st.sampled_from(Format), st.data())
def test_what_was_declared_round_trips_through_its_text(format_: Format, data: Any) -> None:
    names = OPTIONS[format_]
    options = data.draw(st.dictionaries(st.sampled_from(names), words))
    if format_ is Format.PROTOBUF:
        options["message"] = "m:C"
    if format_ is Format.JSON_SCHEMA:
        options.setdefault("model", "m:C")
    declared = Registered.make(format_, options)
    assert Registered.parse(str(declared)) == declared


def test_json_schema_needs_a_schema_of_its_own() -> None:
    with pytest.raises(TopologyError, match="json_schema lacks schema or model"):
        json_schema()


@pytest.mark.parametrize("text", ["json", "bytes", "flights:Flight", "avr(x=y)", "avro"])
def test_other_serdes_are_no_declaration(text: str) -> None:
    assert Registered.parse(text) is None


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("avr", {}, "there is no format 'avr'.*did you mean 'avro'"),
        ("avro", 5, "avro takes a map with schema, model, subject; found 5"),
        ("avro", {"shema": "x"}, "avro has no option 'shema'.*did you mean 'schema'"),
        ("avro", {"schema": "a b"}, "schema of avro is 'a b'"),
        ("avro", {"schema": {"type": "int"}}, "schema of avro is"),
        ("protobuf", {}, "protobuf lacks message"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(name: str, options: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        Registered.make(name, options)


def test_a_schema_is_a_file_or_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "flight.avsc").write_bytes(orjson.dumps(FLIGHT))
    by_file, by_name = codec_of(avro("flight.avsc")), codec_of(avro(f"{AIR}:FLIGHT"))
    assert by_file.schema == by_name.schema
    assert by_file.record == "air.Flight"


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (avro("no.avsc"), "there is no schema file 'no.avsc'"),
        (avro(f"{AIR}:NONE"), "no attribute 'NONE'"),
        (avro(f"{AIR}:is_late"), "is not JSON"),
        (avro(f"{AIR}:FLIGHT", model=f"{AIR}:FLIGHT"), "is no pydantic model"),
        (protobuf(f"{AIR}:Flight"), "is no class that protoc made"),
    ],
)
def test_what_is_missing_is_named(declared: Registered, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        codec_of(declared)


def test_a_model_gives_json_its_schema() -> None:
    codec = codec_of(json_schema(model=Flight))
    assert codec.record == "Flight"
    assert orjson.loads(codec.schema or "")["required"] == ["carrier", "minutes"]


def test_a_class_without_a_name_is_refused() -> None:
    class Local(Flight):
        pass

    with pytest.raises(TopologyError, match="cannot be imported by a name"):
        avro(f"{AIR}:FLIGHT", model=Local)


def test_a_codec_without_a_registry_says_so_and_travels() -> None:
    codec = codec_of(avro(f"{AIR}:FLIGHT")).at("flights", is_key=False, written=True)
    copied = pickle.loads(pickle.dumps(codec))
    assert (copied.topic, copied.written, copied.schema) == ("flights", True, codec.schema)
    with pytest.raises(ConfigurationError, match=r"set schema_registry\.url"):
        copied.encode({})


@pytest.mark.parametrize(
    ("declared", "kept"),
    [
        (avro(f"{AIR}:FLIGHT", model=Flight), f"{AIR}:Flight"),
        (avro(f"{AIR}:FLIGHT"), f"avro(schema={AIR}:FLIGHT)"),
        (json_schema("x.json"), "json"),
        (json_schema(model=Flight), f"{AIR}:Flight"),
        (protobuf("air_pb2:Flight"), "air_pb2:Flight"),
    ],
)
def test_what_stays_inside_needs_no_registry(declared: Registered, kept: str) -> None:
    assert internal_serde_name(str(declared)) == kept


def test_plain_serdes_are_kept_as_they_are() -> None:
    assert internal_serde_name("json") == "json"


def test_a_declaration_and_its_text_are_the_same_serde() -> None:
    declared = eosframework.avro(f"{AIR}:FLIGHT")
    assert serde_of(declared).name == serde_of(str(declared)).name == str(declared)


AWAY = SchemaRegistryUnavailable("the registry is away")
FLIGHTS = Sent("flights", b"\0", None, 7, 0, None)


def never(_: bytes) -> Any:
    raise AWAY


def test_no_policy_takes_a_record_whose_schema_cannot_be_had() -> None:
    handler = FailureHandler()
    with pytest.raises(SchemaRegistryUnavailable):
        handler(Site("decode", OnError(Policy.SKIP)), FLIGHTS, AWAY, [])
    assert handler.skipped == 0


def test_no_time_is_guessed_for_a_record_whose_schema_cannot_be_had() -> None:
    serde, time = Serde("avro()", None, never), Function("time", lambda value: value)
    source = Source("flights", "flights", serde, serde, time, OnError(Policy.SKIP))
    with pytest.raises(SchemaRegistryUnavailable):
        event_time(source, FLIGHTS)


def test_no_row_is_left_out_because_its_schema_cannot_be_had() -> None:
    serde = Serde("avro()", None, never)
    table = SinkTable("t", "t", TableMode.APPEND, (), None, None, Policy.SKIP)
    maker = RowMaker(TableSink("flights", "flights", serde, serde, (table,), Policy.SKIP))
    with pytest.raises(SchemaRegistryUnavailable):
        maker.add([FLIGHTS], maker.empty(Claim(TopicPartition("flights", 0), 1, 0), 0))
    assert maker.skipped == 0
