"""`eosframework state`: read the committed content of an application's stores."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eosframework.cli import group
from eosframework.cli.options import AppArgument, JsonOption, SettingsOptions, with_settings
from eosframework.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eosframework.runtime.stored_state import Content, Source
    from eosframework.state.query.layouts import QueriedStore, Row

commands = group("state", "Read the committed content of stores.")

StoreArgument = Annotated[
    str,
    typer.Argument(metavar="STORE", help="A store, as `describe` prints it.", show_default=False),
]

KeyArgument = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        help="The key: text, a number, JSON, or 0x and hexadecimal digits for exact bytes.",
        show_default=False,
    ),
]

ChangelogOption = Annotated[
    bool,
    typer.Option(
        "--from-changelog", help="Read the changelog topic instead of files on this machine."
    ),
]


@commands.command(epilog="Example: eosframework state get topology.yaml totals customer-7")
@with_settings
def get(
    options: SettingsOptions,
    app_name: AppArgument,
    store_name: StoreArgument,
    key: KeyArgument,
    from_changelog: ChangelogOption = False,
    as_json: JsonOption = False,
) -> None:
    """Print the value of a key, or one value for each window."""
    from eosframework.runtime.stored_state import find
    from eosframework.state.query.text_forms import key_of

    store, source = _opened(options, app_name, store_name, from_changelog)
    encoded = key_of(store.store, key)
    found = find(source, store, encoded)
    if found is None:
        raise ConfigurationError(_absent(source, store, key, encoded))
    content, rows = found
    _report_copies(source, store, [content.partition])
    if as_json:
        place = {"partition": content.partition, "position": content.position}
        values = [{"value": row.value, "timestamp": row.timestamp} for row in rows]
        _print_json({"store": store.name, "key": rows[0].key, **place, "found": values})
    else:
        for row in rows:
            typer.echo(_line(store, row, content.partition))


@commands.command()
@with_settings
def scan(
    options: SettingsOptions,
    app_name: AppArgument,
    store_name: StoreArgument,
    first: Annotated[str | None, typer.Option("--from", metavar="KEY", help="First key.")] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="KEY", help="Key to stop before.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of entries.")] = 100,
    from_changelog: ChangelogOption = False,
    as_json: JsonOption = False,
) -> None:
    """Print the entries of a range of keys, partition by partition.

    Keys are ordered by their bytes, windows by their starts.
    """
    from itertools import islice

    from eosframework.state.query.text_forms import key_of

    store, source = _opened(options, app_name, store_name, from_changelog)
    bounds = (
        b"" if first is None else key_of(store.store, first),
        None if last is None else key_of(store.store, last),
    )
    partitions = source.partitions(store)
    with closing(source.contents(store, partitions)) as contents:
        rows = list(islice(_rows(store, contents, *bounds), limit + 1))
    shown, more = rows[:limit], len(rows) > limit
    _report_copies(source, store, partitions)
    if as_json:
        found = [
            {"key": r.key, "value": r.value, "timestamp": r.timestamp, "partition": partition}
            for partition, r in shown
        ]
        report = {"store": store.name, "partitions": partitions, "found": found, "more": more}
        _print_json(report)
        return
    for partition, row in shown:
        typer.echo(_line(store, row, partition))
    count = source.count(store)
    missing = f"; {count - len(partitions)} partitions are not on this machine" * (
        len(partitions) < count
    )
    if more or missing:
        typer.echo(f"{len(shown)} shown{', there are more' * more}{missing}", err=True)


@commands.command()
@with_settings
def stats(
    options: SettingsOptions,
    app_name: AppArgument,
    store_name: Annotated[
        str | None,
        typer.Argument(metavar="STORE", help="One store. Default: all.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the size and position of the stores on this machine."""
    from dataclasses import asdict

    from eosframework.runtime.stored_state import StoreFiles
    from eosframework.runtime.worker import load
    from eosframework.state.query.layouts import queried_store, queried_stores

    graph = load(app_name)
    named = None if store_name is None else queried_store(graph, store_name)
    stores = list(queried_stores(graph).values()) if named is None else [named]
    source = StoreFiles(graph.application, options.load())
    rows = list(source.stats(stores))
    if stores and not rows:
        # Raises, and names the directories that were searched.
        source.partitions(stores[0])
    if as_json:
        _print_json({"application": graph.application, "stores": [asdict(row) for row in rows]})
        return
    for row in rows:
        written = "never written" if row.written_at is None else _moment(row.written_at)
        typer.echo(
            f"{row.store}[{row.partition}]: about {row.keys:,} keys, {row.disk_bytes:,} bytes in "
            f"files, position {row.position}, {written}{', held by a process' * row.held}"
            f"{', a standby copy of a task that runs elsewhere' * row.is_copy}, "
            f"in {row.directory}"
        )
    if not stores:
        typer.echo(f"application {graph.application} has no stores")


def _opened(
    options: SettingsOptions, app_name: str, store_name: str, from_changelog: bool
) -> tuple[QueriedStore, Source]:
    from eosframework.runtime.stored_state import ChangelogStores, StoreFiles
    from eosframework.runtime.worker import load
    from eosframework.state.query.layouts import queried_store

    settings = options.load()
    graph = load(app_name)
    store = queried_store(graph, store_name)
    return store, ChangelogStores(settings) if from_changelog else StoreFiles(
        graph.application, settings
    )


def _rows(
    store: QueriedStore, contents: Iterator[Content], first: bytes, last: bytes | None
) -> Iterator[tuple[int, Row]]:
    for content in contents:
        for row in store.layout.scan(content.store, first, last):
            yield content.partition, row


def _absent(source: Source, store: QueriedStore, key: str, encoded: bytes) -> str:
    from eosframework.kafka.client.partitioner import partition_of

    here, count = source.partitions(store), source.count(store)
    listed = ", ".join(map(str, here))
    message = f"store {store.name!r} has no key {key!r} in partitions {listed} of {count}"
    likely = partition_of(encoded, count)
    if likely in here:
        return message
    return (
        f"{message}, which this machine has; Kafka's default partitioner places it in partition "
        f"{likely}: run this on that partition's machine, or give --from-changelog"
    )


def _report_copies(source: Source, store: QueriedStore, read: Sequence[int]) -> None:
    copies = sorted(set(read).intersection(source.copies(store)))
    if copies:
        listed = ", ".join(map(str, copies))
        typer.echo(
            f"partition {listed} is a standby copy on this machine and may lack the last changes: "
            f"its task runs elsewhere",
            err=True,
        )


def _line(store: QueriedStore, row: Row, partition: int) -> str:
    from eosframework.state.query.text_forms import as_json, key_text

    moment = _moment(row.timestamp / 1000)
    key, value = key_text(store.store, row.key), as_json(row.value).decode()
    return f"{key}  {value}  {moment}  partition {partition}"


def _moment(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError):
        return f"{seconds * 1000:.0f} ms"


def _print_json(report: dict[str, Any]) -> None:
    from eosframework.state.query.text_forms import as_json

    typer.echo(as_json(report).decode())
