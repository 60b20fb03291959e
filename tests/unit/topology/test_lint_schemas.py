from __future__ import annotations

import re

import pytest

from eosframework.serialization.schemas import avro
from eosframework.topology.dsl.builder import Topology
from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.resolve.resolve import resolve
from tests.support.applications.schema_functions import Flight, is_late
from tests.unit.topology.apps import read

AIR = "tests.support.applications.schema_functions"
MAPS = f"{{avro: {{schema: '{AIR}:FLIGHT'}}}}"
MODELS = f"{{avro: {{schema: '{AIR}:FLIGHT', model: '{AIR}:Flight'}}}}"
UNKNOWN = "{avro: {}}"

COPIED = """\
application: air
sources:
  flights: {topic: flights, SOURCE}
streams:
  late:
    from: flights
    STEPS
    to: [{topic: late, SINK}]
"""


def messages(source: str, sink: str = "value: json", steps: str = "steps: []") -> str:
    text = COPIED.replace("SOURCE", source).replace("SINK", sink).replace("STEPS", steps)
    return "\n".join(str(finding) for finding in lint(read(text)))


def test_yaml_and_python_give_the_same_spec() -> None:
    text = COPIED.replace("SOURCE", f"value: {MODELS}").replace("SINK", f"value: {MAPS}")
    text = text.replace("STEPS", f"steps: [filter: '{AIR}:is_late']")
    app = Topology("air")
    flights = app.stream("flights", value=avro(f"{AIR}:FLIGHT", model=Flight))
    flights.filter(is_late).to("late", value=avro(f"{AIR}:FLIGHT"))
    written, declared = read(text).spec, app.loaded().spec
    read_by, declared_by = written.sources["flights"], declared.sources["flights"]
    assert (read_by.topic, read_by.value) == (declared_by.topic, declared_by.value)
    assert [s.to for s in written.streams.values()] == [s.to for s in declared.streams.values()]


def test_each_topic_has_a_codec_of_its_own() -> None:
    text = COPIED.replace("SOURCE", f"value: {MODELS}").replace("SINK", f"value: {MODELS}")
    codecs = resolve(read(text.replace("STEPS", "steps: []"))).codecs
    assert [(c.topic, c.written) for c in codecs] == [("flights", False), ("late", True)]


@pytest.mark.parametrize(
    ("source", "sink", "steps", "message"),
    [
        ("value: {avr: {}}", "value: json", "steps: []", "there is no format 'avr'"),
        ("value: {avro: {}, json: {}}", "value: json", "steps: []", "a serde has one format"),
        ("value: json", f"value: {UNKNOWN}", "steps: []", "has no schema to write with"),
        (f"value: {UNKNOWN}", "name: x", "steps: []", "has no schema to write with"),
        (
            f"value: {MODELS}",
            "value: json",
            f"steps: [aggregate: {{initial: 'builtins:dict', add: '{AIR}:latest', "
            f"value: 'avro(schema={AIR}:FLIGHT)'}}]",
            "stands where values stay inside the application",
        ),
        (
            f"key: {MAPS}",
            "value: json",
            "steps: [{count: {}}]",
            "goes by keys that are avro",
        ),
        (
            f"value: {MAPS}",
            "value: json",
            f"steps: [{{group_by: '{AIR}:carrier'}}, {{count: {{}}}}]",
            "are kept inside the application.*give avro a model",
        ),
        (
            f"table: true, value: {MAPS}",
            "value: json",
            "steps: []",
            "rows of source 'flights' are kept inside",
        ),
        (
            f"table: true, key: {MAPS}",
            "value: json",
            "steps: []",
            "table 'flights' goes by keys",
        ),
    ],
)
def test_what_a_registry_cannot_serve_is_refused_by_name(
    source: str, sink: str, steps: str, message: str
) -> None:

    assert re.search(message, messages(source, sink, steps)), messages(source, sink, steps)


def test_a_chosen_topic_needs_a_subject() -> None:
    text = COPIED.replace("SOURCE", "value: json").replace("STEPS", "steps: []")
    chosen = text.replace("{topic: late, SINK}", f"{{topic_from: '{AIR}:carrier', value: {MAPS}}}")
    assert "give avro a subject" in "\n".join(map(str, lint(read(chosen))))
    named = chosen.replace(f"{AIR}:FLIGHT'", f"{AIR}:FLIGHT', subject: late")
    assert not lint(read(named))


def test_models_pass_through_the_applications_own_topics() -> None:
    steps = f"steps: [{{group_by: {{by: '{AIR}:carrier', key: string}}}}, {{count: {{}}}}]"
    assert not messages(f"value: {MODELS}", "value: integer", steps)
