"""`eosframework ids`: the pool out of which an application leases its transactional ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from eosframework.cli import app
from eosframework.cli.options import AppArgument, ConfigOption, JsonOption, SetOption
from eosframework.process.interrupts import leaves

if TYPE_CHECKING:
    from eosframework.txnid import TransactionalId

commands = typer.Typer(
    help="Show and fill the pool of transactional ids of worker.ids=leased.", no_args_is_help=True
)
app.add_typer(commands, name="ids")

IdsArgument = Annotated[
    list[str],
    typer.Argument(metavar="ID...", help="Transactional ids.", show_default=False),
]


@commands.command("list")
def list_(
    app_name: AppArgument,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the ids of an application's pool, and which task has which."""
    from eosframework.config import load_settings
    from eosframework.runtime.ids import leased_ids
    from eosframework.runtime.worker import load

    application = load(app_name).application
    pool = leased_ids(load_settings(config, assignments)).pool(application)
    if as_json:
        rows = [{"id": entry.id, "task": entry.task and _task(entry.task)} for entry in pool]
        _print_json({"application": application, "ids": rows})
        return
    for entry in pool:
        task = entry.task
        typer.echo(f"{entry.id}: {f'{task.sub_topology}[{task.partition}]' if task else 'free'}")
    if not pool:
        typer.echo(f"no ids; put some in: eosframework ids add {app_name} ID...")


@commands.command()
def add(
    app_name: AppArgument,
    ids: IdsArgument,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put ids into an application's pool; they are leased when a worker starts.

    Makes the table in the database if it is missing.
    """
    from eosframework.config import load_settings
    from eosframework.runtime.ids import leased_ids
    from eosframework.runtime.worker import load

    application = load(app_name).application
    leaves("all of the ids were added or none; run the same command again, or see `ids list`")
    added = leased_ids(load_settings(config, assignments)).add(application, ids)
    if as_json:
        _print_json({"application": application, "added": added})
    else:
        typer.echo("\n".join(f"added {id_}" for id_ in added) or "all of them were there already")


@commands.command()
def release(
    app_name: AppArgument,
    ids: IdsArgument,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take ids back from the tasks of a stopped application, for other tasks to lease.

    Whoever still writes under one of them is fenced, and what it left open is aborted.
    """
    from eosframework.cli.cluster import open_application
    from eosframework.runtime.ids import release_ids

    opened = open_application(app_name, config, assignments)
    application = opened.graph.application
    leaves("the ids may be released already; run the same command again, or see `ids list`")
    released = release_ids(application, ids, opened.settings, opened.admin, opened.registry)
    if as_json:
        rows = [{"id": str(task), "task": _task(task)} for task in released]
        _print_json({"application": application, "released": rows})
    else:
        for task in released:
            typer.echo(f"released {task}: {task.sub_topology}[{task.partition}] had it")


def _task(task: TransactionalId) -> dict[str, Any]:
    return {"sub_topology": task.sub_topology, "partition": task.partition}


def _print_json(report: dict[str, Any]) -> None:
    import orjson

    typer.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())
