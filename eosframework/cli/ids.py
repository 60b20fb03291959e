"""`eosframework ids`: the pool of leased transactional ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from eosframework.cli import group
from eosframework.cli.cluster import open_application
from eosframework.cli.options import AppArgument, JsonOption, SettingsOptions, with_settings
from eosframework.cli.stdout import print_json
from eosframework.process.interrupts import note_remains

if TYPE_CHECKING:
    from eosframework.txnid import TransactionalId

commands = group("ids", "Manage the pool of leased transactional ids.")

IdsArgument = Annotated[
    list[str],
    typer.Argument(metavar="ID...", help="Transactional ids.", show_default=False),
]


@commands.command("list")
@with_settings
def list_(
    options: SettingsOptions,
    app_name: AppArgument,
    as_json: JsonOption = False,
) -> None:
    """Print the ids of a pool and the tasks that lease them."""
    from eosframework.application.composition.ids import leased_ids
    from eosframework.application.composition.worker import load

    application = load(app_name).application
    pool = leased_ids(options.load()).pool(application)
    if as_json:
        rows = [{"id": entry.id, "task": entry.task and _task(entry.task)} for entry in pool]
        print_json({"application": application, "ids": rows})
        return
    for entry in pool:
        task = entry.task
        typer.echo(f"{entry.id}: {f'{task.sub_topology}[{task.partition}]' if task else 'free'}")
    if not pool:
        typer.echo(f"no ids; add some: eosframework ids add {app_name} ID...")


@commands.command(epilog="Example: eosframework ids add topology.yaml orders-1 orders-2")
@with_settings
def add(
    options: SettingsOptions,
    app_name: AppArgument,
    ids: IdsArgument,
    as_json: JsonOption = False,
) -> None:
    """Add ids to an application's pool.

    Workers lease them when they start. Creates the table in the database if it is missing.
    """
    from eosframework.application.composition.ids import leased_ids
    from eosframework.application.composition.worker import load

    application = load(app_name).application
    note_remains("all ids were added or none; run the same command again, or see `ids list`")
    added = leased_ids(options.load()).add(application, ids)
    if as_json:
        print_json({"application": application, "added": added})
    else:
        typer.echo(
            "\n".join(f"added {id_}" for id_ in added) or "all of them were in the pool already"
        )


@commands.command()
@with_settings
def release(
    options: SettingsOptions,
    app_name: AppArgument,
    ids: IdsArgument,
    as_json: JsonOption = False,
) -> None:
    """Release leased ids of a stopped application.

    Other tasks can lease them then. Fences any producer that still uses one of the ids and aborts
    its open transaction.
    """
    from eosframework.application.composition.ids import release_ids

    opened = open_application(app_name, options)
    application = opened.graph.application
    note_remains("the ids may be released already; run the same command again, or see `ids list`")
    released = release_ids(opened, ids)
    if as_json:
        rows = [{"id": str(task), "task": _task(task)} for task in released]
        print_json({"application": application, "released": rows})
    else:
        for task in released:
            typer.echo(f"released {task}: {task.sub_topology}[{task.partition}] had it")


def _task(task: TransactionalId) -> dict[str, Any]:
    return {"sub_topology": task.sub_topology, "partition": task.partition}
