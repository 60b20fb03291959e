"""Arguments of sinks that are refused before Spark starts."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from eosframework import dead_letter
from eosframework.config import DatabaseSettings, Settings
from eosframework.errors import ConfigurationError, TopologyError
from eosframework.spark import both, kafka_sink, table_sink

SETTINGS = Settings(database=DatabaseSettings(dsn=SecretStr("postgresql://u:secret@db/x")))


def kafka(topic: str | None = "delays", **options: Any) -> Any:
    return kafka_sink(topic, **{"application": "report", "settings": SETTINGS, **options})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"topic": None}, "expected one of them"),
        ({"topic_column": "t"}, "expected one of them"),
        ({"shards": 0}, "expected a number from 1 to 1000"),
        ({"name": "Delays-2"}, "lower-case letters a-z, digits and '_'"),
        ({"on_error": "ignore"}, "expected 'fail', 'skip' or dead_letter"),
        ({"on_error": dead_letter("dead", retry="1s")}, "without retry= and replay="),
        ({"on_error": "skip", "stage": False}, "expected stage=True"),
        ({"on_error": dead_letter("delays")}, "choose another topic for dead letters"),
    ],
)
def test_a_topic_a_name_and_shards_are_checked(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        kafka(**options)


def test_an_application_name_is_checked() -> None:
    with pytest.raises(TopologyError, match="application name 'Report'"):
        kafka(application="Report")


@pytest.mark.parametrize(
    "options", [{"mode": "upsert"}, {"keys": ["n"]}, {"mode": "replace", "keys": ["n"]}]
)
def test_a_mode_and_its_keys_belong_together(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="expected mode='upsert' with the columns"):
        table_sink("delays", settings=SETTINGS, **options)


def test_a_table_needs_a_database() -> None:
    with pytest.raises(ConfigurationError, match="table_sink has no database"):
        table_sink("delays", settings=Settings())


def test_names_come_from_topics_and_tables() -> None:
    sink = both(kafka("Delays.By-Hour"), table_sink("app.delays", settings=SETTINGS))
    assert [part.label for part in sink.parts] == ["kafka_delays_by_hour", "table_app_delays"]


def test_dead_letters_of_a_table_are_a_sink_of_its_own() -> None:
    sink = table_sink("app.delays", settings=SETTINGS, on_error=dead_letter("dead"))
    labels = [part.label for part in sink.parts]
    assert labels == ["table_app_delays", "kafka_app_delays_dead_letters"]


def test_two_sinks_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="two sinks called 'kafka_delays'"):
        both(kafka(), kafka())
    with pytest.raises(ConfigurationError, match="expected two or more"):
        both(kafka())
    assert len(both(kafka(), kafka(name="again")).parts) == 2
