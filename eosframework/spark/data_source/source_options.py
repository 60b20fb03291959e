"""The options of the source, and the sink that they describe.

They are the arguments of `kafka_sink`, as texts. A DataFrame that is made for Spark's own Kafka
sink is written as that sink writes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from eosframework.config import load_settings
from eosframework.errors import ConfigurationError
from eosframework.spark.data_source.kafka_options import PREFIX, SERVERS, kafka_settings
from eosframework.spark.sinks.kafka.columns import HEADERS
from eosframework.spark.sinks.sink_api import Sink, kafka_sink
from eosframework.topology.dsl.declarations import dead_letter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

APPLICATION = "spark"
"""Owner of the sinks, unless an option names another one; as for `table_sink`."""

_COLUMNS = ("key", "value", "headers", "timestamp", "partition", "topic_column")
_ARGUMENTS = ("topic", "application", "name", *_COLUMNS, "shards", "on_error", "follows")
_OWN = ("job", "directory")
_OF_SPARK = ("checkpointlocation", "queryname", "path")

_ONLY_IN_PYTHON = {
    "serde": "encodes values in Python",
    "key_serde": "encodes keys in Python",
    "settings": "is an object of Python",
    "stage": "concerns the plan of the query",
}
"""Arguments of `kafka_sink` that no text can give."""

_SPARK_SINK = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (HEADERS,),
    "topic": ("string",),
    "partition": ("int",),
}
"""The columns that Spark's own Kafka sink reads."""

_DEAD_LETTER = re.compile(r"dead_letter\(\s*['\"]?([^'\"()\s]+)['\"]?\s*\)")


def check_names(options: Mapping[str, str]) -> None:
    """Refuse unknown options.

    Args:
        options: of the source, with lower-case names.

    Raises:
        ConfigurationError: names the option, and the nearest one.
    """
    known = (*_ARGUMENTS, *_OWN, *_OF_SPARK, SERVERS)
    for name in options:
        if reason := _ONLY_IN_PYTHON.get(name):
            raise ConfigurationError(
                f"format('eos_kafka') has no option {name!r}, which {reason}; pass it to "
                f"kafka_sink, with foreachBatch"
            )
        if name in known or name.startswith(PREFIX):
            continue
        close = get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"expected one of {', '.join(known)}"
        raise ConfigurationError(f"format('eos_kafka') has no option {name!r}; {hint}")
    if "path" in options:
        raise ConfigurationError(
            "format('eos_kafka') takes no path; name the topic with option('topic', …), and call "
            "save() or start() without an argument"
        )


def job_of(options: Mapping[str, str], *, streaming: bool, overwrite: bool) -> str | None:
    """Return the job of a batch write; None: a streaming query writes.

    Raises:
        ConfigurationError: the option `job` is missing or superfluous, or the mode overwrites.
    """
    job = options.get("job")
    if streaming:
        if job is not None:
            raise ConfigurationError(
                f"format('eos_kafka') got job={job!r} for a streaming query, which is known by its "
                f"checkpoint; remove the option"
            )
        return None
    if overwrite:
        raise ConfigurationError("format('eos_kafka') cannot overwrite a topic; use mode('append')")
    if job is None:
        raise ConfigurationError(
            "format('eos_kafka') needs option('job', NAME) for a batch write; a second write of "
            "the same name is skipped, however often the program runs"
        )
    return job


def sink_of(options: Mapping[str, str], schema: StructType) -> Sink:
    """Return the sink of the options.

    Args:
        options: of the source, with lower-case names.
        schema: of the rows.

    Raises:
        ConfigurationError: names the unsuitable option.
        TopologyError: the application's name is invalid.
    """
    check_names(options)
    arguments: dict[str, Any] = {name: options[name] for name in _ARGUMENTS if name in options}
    arguments = _with_columns(arguments, schema)
    if "topic" not in arguments and "topic_column" not in arguments:
        raise ConfigurationError(
            "format('eos_kafka') has neither option('topic', …) nor option('topic_column', …); "
            "name the topic of all records, or the column that has each record's topic"
        )
    arguments["shards"] = _number(options.get("shards", "8"))
    if found := _DEAD_LETTER.fullmatch(options.get("on_error", "")):
        arguments["on_error"] = dead_letter(found[1])
    settings = load_settings()
    kafka = kafka_settings(settings.kafka, options)
    arguments["settings"] = settings.model_copy(update={"kafka": kafka})
    arguments.setdefault("application", APPLICATION)
    return kafka_sink(**arguments)


def _with_columns(arguments: dict[str, Any], schema: StructType) -> dict[str, Any]:
    """Return the arguments with the columns of Spark's own Kafka sink, if none is named.

    Raises:
        ConfigurationError: the rows have its column `value` and others that it does not read.
    """
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in kinds or any(name in arguments for name in _COLUMNS):
        return arguments
    if others := [name for name, kind in kinds.items() if kind not in _SPARK_SINK.get(name, ())]:
        raise ConfigurationError(
            f"the rows have a column 'value', as for Spark's own Kafka sink, and columns that this "
            f"sink does not read: {', '.join(others)}. Choose with option('value', 'value'), which "
            f"writes this column, or option('value', 'struct'), which writes all columns as JSON"
        )
    columns = {name: name for name in ("key", "value", "headers", "partition") if name in kinds}
    if "topic" in kinds and "topic" not in arguments:
        columns["topic_column"] = "topic"
    return {**arguments, **columns}


def _number(text: str) -> int:
    if not text.strip().isdecimal():
        raise ConfigurationError(
            f"format('eos_kafka') got shards={text!r}; expected a whole number, for example the "
            f"number of the cluster's cores"
        )
    return int(text)
