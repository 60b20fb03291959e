"""`eosframework explain`: the documentation, which needs no topology and no server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from eosframework.cli import group
from eosframework.cli.options import JsonOption, MarkdownOption
from eosframework.cli.pages import page
from eosframework.cli.stdout import print_json

if TYPE_CHECKING:
    from eosframework.application.monitoring.metrics.catalogue import Metric

commands = group(
    "explain", "Print pages of the documentation, and tables of errors, metrics and settings."
)

_PROCESSES = {"transforms": "T", "tables": "P", "relay": "R"}


@commands.command(
    epilog="Examples: `eosframework explain errors _FENCED`, `… InvalidPidMapping`, `… 40P01`."
)
def errors(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE",
            help="One error only: its name, its number, or a SQLSTATE of PostgreSQL.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
    as_markdown: MarkdownOption = False,
) -> None:
    """Print the meaning of errors and the worker's reaction.

    These are errors of Kafka, of PostgreSQL and of schema registries.
    """
    from eosframework.cli.explain_errors import explain

    explain(code, as_json=as_json, as_markdown=as_markdown)


@commands.command("page", epilog="Example: eosframework explain page dead-letters")
def page_(
    name: Annotated[
        str | None,
        typer.Argument(metavar="PAGE", help="One page. Default: list all.", show_default=False),
    ] = None,
) -> None:
    """Print a page of the documentation of this version."""
    from eosframework.cli.explain_pages import print_list, print_page

    if name is None:
        print_list()
    else:
        print_page(name)


@commands.command(epilog="`eosframework plan APP` lists the changes of one application.")
def changes(as_json: JsonOption = False) -> None:
    """Print the steps that each change of a live topology needs."""
    from dataclasses import asdict

    from eosframework.topology.evolution import rules

    if as_json:
        print_json({"changes": [asdict(rule) for rule in rules().values()]})
        return
    for rule in rules().values():
        typer.echo(f"{rule.verdict}: {rule.change}")
        typer.echo(f"  {rule.why}: {rule.next}")
        if rule.seen is not None:
            typer.echo(f"  {rule.seen}")


@commands.command()
def metrics(as_json: JsonOption = False, as_markdown: MarkdownOption = False) -> None:
    """Print the meaning and normal values of each metric."""
    from eosframework.application.monitoring.metrics.catalogue import METRICS

    if as_json:
        print_json({"metrics": [_metric_data(metric) for metric in METRICS]})
    elif as_markdown:
        typer.echo(metrics_page(METRICS), nl=False)
    else:
        typer.echo("\n\n".join(map(_metric_text, METRICS)))


@commands.command()
def alerts(as_json: JsonOption = False) -> None:
    """Print the alerts as a file of rules for Prometheus."""
    from eosframework.application.monitoring.metrics.alerts import ALERTS, rules_file

    if as_json:
        rows = [{"name": a.name, "summary": a.summary, "action": a.action} for a in ALERTS]
        print_json({"alerts": rows})
        return
    typer.echo(rules_file(), nl=False)


@commands.command()
def settings(as_json: JsonOption = False) -> None:
    """Print every setting with its default and purpose."""
    rows = list_settings()
    if as_json:
        print_json({"settings": rows})
        return
    import shutil

    from rich import box
    from rich.table import Table

    from eosframework.process.progress import TerminalConsole

    table = Table("setting", "default", "purpose", box=box.SIMPLE, show_lines=True)
    for row in rows:
        default = "" if row["default"] is None else str(row["default"])
        table.add_row(f"{row['name']}\n{row['variable']}", default, row["purpose"])
    width = max(shutil.get_terminal_size().columns, 120)
    TerminalConsole(width=width, highlight=False, markup=False).print(table)


@commands.command()
def schema(
    settings: Annotated[
        bool, typer.Option("--settings", help="Print the schema of the settings file instead.")
    ] = False,
) -> None:
    """Print the JSON Schema of topology files, for editors."""
    from eosframework.topology.loader import settings_schema, topology_schema

    print_json(settings_schema() if settings else topology_schema())


def metrics_page(chosen: tuple[Metric, ...]) -> str:
    """Return docs/metrics.md."""
    return page("metrics", metrics=map(_metric_row, chosen))


def _metric_row(metric: Metric) -> tuple[str, ...]:
    processes = " ".join(_PROCESSES[process.value] for process in metric.exposed_by)
    name = f"`{metric.full_name}`<br>{metric.kind}, {processes}"
    return name, ", ".join(metric.labels), metric.what, metric.normal, metric.otherwise


def _metric_data(metric: Metric) -> dict[str, object]:
    return {
        "name": metric.full_name,
        "kind": metric.kind.value,
        "labels": ["application", *metric.labels],
        "exposed_by": [process.value for process in metric.exposed_by],
        "what": metric.what,
        "normal": metric.normal,
        "otherwise": metric.otherwise,
    }


def _metric_text(metric: Metric) -> str:
    labels = f" by {', '.join(metric.labels)}" if metric.labels else ""
    return (
        f"{metric.full_name} ({metric.kind}{labels})\n"
        f"  {metric.what}\n"
        f"  normal: {metric.normal}\n"
        f"  otherwise: {metric.otherwise}"
    )


def list_settings() -> list[dict[str, Any]]:
    """Return name, default, environment variable and purpose of every setting."""
    from pydantic import BaseModel
    from pydantic_core import to_jsonable_python

    from eosframework.config import Settings

    rows: list[dict[str, Any]] = []
    for section, declared in Settings.model_fields.items():
        model = declared.annotation
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            continue
        for name, field in model.model_fields.items():
            rows.append(
                {
                    "name": f"{section}.{name}",
                    "default": to_jsonable_python(field.get_default(call_default_factory=True)),
                    "variable": f"EOS_{section}__{name}".upper(),
                    "purpose": " ".join((field.description or "").split()),
                }
            )
    return rows
