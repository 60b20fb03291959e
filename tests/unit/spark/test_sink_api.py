"""Arguments of sinks that are refused before Spark starts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr
from pyspark import cloudpickle
from structlog.testing import capture_logs

from eosframework import dead_letter
from eosframework.config import DatabaseSettings, Settings
from eosframework.errors import ConfigurationError, TopologyError
from eosframework.spark import SinkProgress, both, kafka_sink, table_sink
from eosframework.spark.sinks import sink_api

SETTINGS = Settings(database=DatabaseSettings(dsn=SecretStr("postgresql://u:secret@db/x")))


def kafka(topic: str | None = "delays", **options: Any) -> Any:
    return kafka_sink(topic, **{"application": "report", "settings": SETTINGS, **options})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"topic": None}, "expected one of them"),
        ({"topic_column": "t"}, "expected one of them"),
        ({"shards": 0}, "expected a number from 1 to 1000"),
        ({"name": "Delays-2"}, "lower-case letters a-z, digits, '_' and '-'"),
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


def test_a_session_of_spark_connect_is_refused_where_its_function_runs() -> None:
    """Spark Connect pickles the function of a query, and calls it on its server."""
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    frame: Any = SimpleNamespace(sparkSession=session)
    sink = cloudpickle.loads(cloudpickle.dumps(both(kafka(), kafka(name="other"))))
    with pytest.raises(ConfigurationError, match="Spark Connect, which does not let a sink reach"):
        sink(frame, 0)
    with pytest.raises(ConfigurationError, match="use a classic SparkSession"):
        sink.write(frame, job="january")


def test_a_gauge_that_fails_is_logged_and_the_batch_stays_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(*_: object) -> Any:
        raise RuntimeError("a listener of another name is registered")

    made = SinkProgress("kafka_delays", "q", 0, 3, 0.0, 0.1, 1.0)
    spark: Any = SimpleNamespace()
    monkeypatch.setattr(sink_api, "streaming_batch", lambda *_: (None, "root"))
    monkeypatch.setattr(sink_api, "gauges_of", failing)
    sink = kafka()
    monkeypatch.setattr(sink, "_run", lambda *_: [made])
    with capture_logs() as logs:
        sink(SimpleNamespace(sparkSession=spark), 0)
    assert [(log["event"], log["error"]) for log in logs] == [
        ("gauges_failed", "a listener of another name is registered")
    ]
    assert sink.progress == (made,)
