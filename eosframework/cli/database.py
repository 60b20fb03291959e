"""`eosframework database up|down|status`: an embedded PostgreSQL that stays after the command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import platformdirs
import typer

from eosframework.cli import app
from eosframework.cli.options import JsonOption, parse_assignments
from eosframework.process.interrupts import cleaning_up

if TYPE_CHECKING:
    from eosframework.embedded import PostgresServer

FIRST_PORT = 5432
"""Where clients look for PostgreSQL when they are told nothing."""

commands = typer.Typer(
    help="Start, stop and show a real PostgreSQL on this machine.", no_args_is_help=True
)
app.add_typer(commands, name="database")

DataDir = Annotated[
    Path,
    typer.Option("--data-dir", help="Where the server keeps its data, port, password and log."),
]

_DEFAULT_DATA_DIR = Path(platformdirs.user_data_dir("eosframework")) / "postgres"


@commands.command()
def up(
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help="Port on 127.0.0.1; 0: a free one.",
            show_default=f"as before, {FIRST_PORT} for a new server",
        ),
    ] = None,
    data_dir: DataDir = _DEFAULT_DATA_DIR,
    set_property: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A PostgreSQL setting; repeatable. None given: as before.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Start PostgreSQL on the data of the last time, and leave it running."""
    cleaning_up()
    from eosframework.embedded import find_postgres, start_postgres

    settings = (
        parse_assignments(set_property, example="wal_level=logical") if set_property else None
    )
    known = find_postgres(data_dir)
    if known and known.running:
        _refuse_other_shape(known, port, settings)
        _print(known, json=json, headline="PostgreSQL was up already")
        return
    server = start_postgres(
        data_dir, port=_choose_port(known, port), settings=settings, detached=True
    )
    _print(server, json=json, headline="PostgreSQL is up")


@commands.command()
def down(data_dir: DataDir = _DEFAULT_DATA_DIR, json: JsonOption = False) -> None:
    """Stop PostgreSQL; its data stays for the next `up`."""
    from eosframework.embedded import find_postgres

    known = find_postgres(data_dir)
    was_up = known is not None and known.running
    if known:
        known.stop()
    headline = "PostgreSQL is down" if was_up else "PostgreSQL was not running"
    _print(known, json=json, headline=headline, data_dir=data_dir)


@commands.command()
def status(data_dir: DataDir = _DEFAULT_DATA_DIR, json: JsonOption = False) -> None:
    """Show whether the server runs, and where clients reach it."""
    from eosframework.embedded import find_postgres

    known = find_postgres(data_dir)
    if known is None:
        headline = "there is no server"
    else:
        headline = f"PostgreSQL {'runs' if known.running else 'does not run'}"
    _print(known, json=json, headline=headline, data_dir=data_dir)


def _choose_port(known: PostgresServer | None, port: int | None) -> int | None:
    """The port to ask for; None leaves the choice to the record, or to chance."""
    if port is None:
        return None if known else FIRST_PORT
    if port == 0:
        from eosframework.embedded.ports import free_ports

        return free_ports(1)[0]
    return port


def _refuse_other_shape(
    known: PostgresServer, port: int | None, settings: dict[str, str] | None
) -> None:
    """A server that runs keeps its port and settings; silence would suggest otherwise.

    Raises:
        ConfigurationError: another port or other settings were asked for.
    """
    from eosframework.errors import ConfigurationError

    if port not in (None, 0, known.port) or settings not in (None, known.settings):
        raise ConfigurationError(
            f"PostgreSQL is up already on port {known.port} with settings {known.settings}; "
            f"run `eosframework database down` first, or choose another --data-dir"
        )


def _print(
    server: PostgresServer | None, *, json: bool, headline: str, data_dir: Path | None = None
) -> None:
    pid = server.pid if server else None
    place = str(server.data_dir if server else data_dir)
    if json:
        answer = {
            "dsn": server.dsn if server else None,
            "port": server.port if server else None,
            "pid": pid,
            "running": pid is not None,
            "data_dir": place,
        }
        typer.echo(orjson.dumps(answer).decode())
        return
    typer.echo(f"{headline} (data in {place})")
    if server:
        state = f"runs as pid {pid}" if pid else "does not run"
        typer.echo(f"  on 127.0.0.1:{server.port}, {state}")
        typer.echo(f"  EOS_DATABASE__DSN={server.dsn}")
