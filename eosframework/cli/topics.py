"""`eosframework topics`: create topics, write lines to them and read them, for first trials."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eosframework.cli import group
from eosframework.cli.options import JsonOption, SettingsOptions, parse_assignments, with_settings
from eosframework.cli.stdout import print_json

if TYPE_CHECKING:
    from eosframework.config import KafkaSettings
    from eosframework.kafka.client.plain_writes import FedRecord
    from eosframework.transactions.ports import Message

commands = group(
    "topics",
    "Create topics, write lines to them and read them, for trying things out.",
    epilog="Example: echo 'to be or not to be' | eosframework topics produce lines",
)

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]


@commands.command()
@with_settings
def create(
    options: SettingsOptions,
    names: Annotated[list[str], typer.Argument(metavar="TOPIC…", show_default=False)],
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of each topic.")] = 1,
    topic_settings: Annotated[
        list[str] | None,
        typer.Option(
            "--setting",
            metavar="KEY=VALUE",
            help="A setting of each topic, for example cleanup.policy=compact. Repeatable.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create topics that do not exist yet."""
    from eosframework.kafka.admin.cluster_admin import ClusterAdmin, TopicToCreate

    settings = options.load()
    replicas = settings.topics.replication_factor
    config = parse_assignments(
        topic_settings or [], example="cleanup.policy=compact", option="--setting"
    )
    wanted = [TopicToCreate(name, partitions, replicas, config) for name in dict.fromkeys(names)]
    created = ClusterAdmin(settings.kafka).create_topics(wanted)
    existed = [topic.name for topic in wanted if topic.name not in created]
    if as_json:
        print_json({"created": created, "existed": existed})
        return
    for name in created:
        typer.echo(f"created {name}, partitions {partitions}")
    for name in existed:
        typer.echo(f"{name} exists already")


@commands.command()
@with_settings
def produce(
    options: SettingsOptions,
    topic: TopicArgument,
    key_separator: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Text between the key and the value of a line."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write each line of stdin to a topic, as a record.

    Without --key-separator a line is a value, and the record has no key.
    """
    from eosframework.errors import ConfigurationError
    from eosframework.kafka.client.plain_writes import feed
    from eosframework.txnid import reserved_topic

    settings = options.load().kafka
    if reason := reserved_topic(topic):
        raise ConfigurationError(f"{reason}, whose state a foreign record would damage")
    _partitions_of(settings, topic)
    written = feed(settings, topic, _records(topic, key_separator))
    if as_json:
        print_json({"topic": topic, "records": written})
    else:
        typer.echo(f"wrote {written} records to {topic}")


@commands.command()
@with_settings
def read(
    options: SettingsOptions,
    topic: TopicArgument,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="NUMBER", help="Most records to print.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the committed records of a topic, partition by partition, as KEY, a tab and VALUE.

    Bytes that are not UTF-8 text are printed as escapes. Watermarks of repartition topics are left
    out.
    """
    from itertools import islice

    settings = options.load().kafka
    messages = islice(_committed(settings, topic), limit)
    if as_json:
        print_json({"topic": topic, "records": [_as_data(message) for message in messages]})
        return
    for message in messages:
        key, value = _text(message.key()), _text(message.value())
        typer.echo(f"{'' if key is None else key}\t{'null' if value is None else value}")


def _records(topic: str, separator: str | None) -> Iterator[FedRecord]:
    """Yield the lines of stdin as records.

    Raises:
        ConfigurationError: stdin is closed, or a line has no separator.
    """
    from eosframework.errors import ConfigurationError

    if sys.stdin is None:
        raise ConfigurationError(f"stdin is closed; expected lines for topic {topic!r}")
    for number, line in enumerate(sys.stdin.buffer, 1):
        key: bytes | None = None
        value = line.rstrip(b"\r\n")
        if separator is not None:
            key, found, value = value.partition(separator.encode())
            if not found:
                raise ConfigurationError(
                    f"line {number} of stdin has no {separator!r}; expected KEY{separator}VALUE"
                )
        yield key, value, round(time.time() * 1000)


def _partitions_of(settings: KafkaSettings, topic: str) -> int:
    from eosframework.errors import ConfigurationError
    from eosframework.kafka.admin.cluster_admin import ClusterAdmin

    found = ClusterAdmin(settings).describe_topics([topic])[topic]
    if not found.exists:
        raise ConfigurationError(
            f"topic {topic!r} does not exist; correct its name, or run "
            f"`eosframework topics create {topic}`"
        )
    return found.partitions


def _committed(settings: KafkaSettings, topic: str) -> Iterator[Message]:
    from eosframework.engine.operators.watermarks import WATERMARK_KEY
    from eosframework.kafka.admin.cluster_admin import ClusterAdmin
    from eosframework.kafka.consumer.range_reader import read_ranges
    from eosframework.records import TopicPartition

    bounds = ClusterAdmin(settings).log_bounds(
        [TopicPartition(topic, number) for number in range(_partitions_of(settings, topic))]
    )
    for partition, bound in sorted(bounds.items()):
        for _, messages in read_ranges(settings, {partition: bound}):
            yield from (message for message in messages if message.key() != WATERMARK_KEY)


def _as_data(message: Message) -> dict[str, Any]:
    return {
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": message.timestamp()[1],
        "key": _text(message.key()),
        "value": _text(message.value()),
    }


def _text(content: Any) -> str | None:
    return None if content is None else bytes(content).decode("utf-8", "backslashreplace")
