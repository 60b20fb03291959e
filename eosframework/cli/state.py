"""`eosframework state`: read the committed content of an application's stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from eosframework.cli import group
from eosframework.cli.options import AppArgument, JsonOption, SettingsOptions, with_settings
from eosframework.process.steps import step_line
from eosframework.records import WindowResult, bounds_in_words, moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eosframework.application.composition.stored_state import Source
    from eosframework.process.steps import OnProgress
    from eosframework.state.layout import Row
    from eosframework.state.query import QueriedStore

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

AskOption = Annotated[
    str | None,
    typer.Option(
        "--ask",
        metavar="HOST:PORT",
        help="Ask any worker of the application at its HTTP address.",
        show_default=False,
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
    ask: AskOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the value of a key, or one value for each window."""
    from eosframework.application.composition.stored_state import look_up

    if ask is not None:
        _print_asked(options, app_name, store_name, key, ask, from_changelog, as_json)
        return
    with step_line() as show:
        store, source = _opened(options, app_name, store_name, from_changelog, show)
        found = look_up(source, store, key)
    _report_copies(source, store, [found.partition])
    if as_json:
        _print_json(found.as_data())
    else:
        for row in found.rows:
            typer.echo(_line(store, row, found.partition))


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
    from eosframework.application.composition.stored_state import scan as scan_

    with step_line() as show:
        store, source = _opened(options, app_name, store_name, from_changelog, show)
        found = scan_(source, store, first, last, limit)
    _report_copies(source, store, found.partitions)
    if as_json:
        _print_json(found.as_data())
        return
    for partition, row in found.rows:
        typer.echo(_line(store, row, partition))
    count, here = source.count(store), len(found.partitions)
    missing = f"; {count - here} partitions are not on this machine" * (here < count)
    if found.more or missing:
        typer.echo(f"{len(found.rows)} shown{', there are more' * found.more}{missing}", err=True)


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

    from eosframework.application.composition.stored_state import StoreFiles
    from eosframework.application.composition.worker import load
    from eosframework.state.query import queried_store, queried_stores

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
        written = "never written" if row.written_at is None else moment(row.written_at * 1000)
        typer.echo(
            f"{row.store}[{row.partition}]: about {row.keys:,} keys, {row.disk_bytes:,} bytes in "
            f"files, position {row.position}, {written}{', held by a process' * row.held}"
            f"{', a standby copy of a task that runs elsewhere' * row.is_copy}, "
            f"in {row.directory}"
        )
    if not stores:
        typer.echo(f"application {graph.application} has no stores")


def _print_asked(
    options: SettingsOptions,
    app_name: str,
    store_name: str,
    key: str,
    address: str,
    from_changelog: bool,
    as_json: bool,
) -> None:
    """Print the answer of a worker, or of the one that it asks."""
    from eosframework.application.composition.asked_state import asked_for_key, asked_lines
    from eosframework.application.composition.worker import load
    from eosframework.errors import ConfigurationError
    from eosframework.state.query import key_of, queried_store

    if from_changelog:
        raise ConfigurationError("--ask and --from-changelog exclude each other; give one of them")
    options.load()
    store = queried_store(load(app_name), store_name)
    key_of(store.store, key)
    answer = asked_for_key(address, store.name, key)
    if as_json:
        _print_json(answer)
    else:
        typer.echo("\n".join(asked_lines(answer)))


def _opened(
    options: SettingsOptions,
    app_name: str,
    store_name: str,
    from_changelog: bool,
    on_progress: OnProgress,
) -> tuple[QueriedStore, Source]:
    from eosframework.application.composition.stored_state import ChangelogStores, StoreFiles
    from eosframework.application.composition.worker import load
    from eosframework.state.query import queried_store

    settings = options.load()
    graph = load(app_name)
    store = queried_store(graph, store_name)
    if from_changelog:
        return store, ChangelogStores(settings, on_progress=on_progress)
    return store, StoreFiles(graph.application, settings)


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
    from eosframework.state.query import as_json, key_text

    window, value = "", row.value
    if isinstance(value, WindowResult):
        result = cast("WindowResult", value)
        declared = store.store.window
        is_timed = declared is None or declared.is_timed
        bounds = bounds_in_words(result.start, result.end, is_timed=is_timed)
        window, value = f"  {bounds}", result.value
    key = key_text(store.store, row.key)
    return (
        f"{key}{window}  {as_json(value).decode()}  {moment(row.timestamp)}  partition {partition}"
    )


def _print_json(report: dict[str, Any]) -> None:
    from eosframework.state.query import as_json

    typer.echo(as_json(report).decode())
