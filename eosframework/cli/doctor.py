"""`eosframework doctor`: check an application's settings and cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eosframework.cli import app
from eosframework.cli.options import JsonOption, SettingsOptions, with_settings
from eosframework.cli.pages import page
from eosframework.cli.stdout import print_json
from eosframework.errors import ConfigurationError

if TYPE_CHECKING:
    from eosframework.operations.doctor import Report


@app.command()
@with_settings
def doctor(
    options: SettingsOptions,
    application: Annotated[
        str | None,
        typer.Argument(
            metavar="APP",
            help="The topology: a .yaml file, a .py file or package.module:attribute.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", hidden=True)] = False,
) -> int:
    """Check an application's settings and cluster.

    Lists what to fix and changes nothing. Exits with 1 if a finding is an error: the guarantee does
    not hold, or a worker cannot start.
    """
    if as_markdown:
        typer.echo(markdown(), nl=False)
        return 0
    if application is None:
        raise ConfigurationError("Missing argument 'APP'; see `eosframework doctor --help`")
    from eosframework.operations.doctor import examine, take_snapshot
    from eosframework.topology.loader import load_app
    from eosframework.topology.resolve.resolve import resolve

    settings = options.load()
    graph = resolve(load_app(application))
    report = examine(take_snapshot(graph, settings))
    if as_json:
        print_json(report.as_data())
    else:
        _print(report, application)
    return 0 if report.healthy else 1


def _print(report: Report, application: str) -> None:
    import shutil

    from rich import box
    from rich.table import Table

    from eosframework.operations.doctor import CHECKS, Severity
    from eosframework.process.progress import TerminalConsole

    table = Table(box=box.SIMPLE, show_lines=True)
    table.add_column("")
    table.add_column("found", ratio=2)
    table.add_column("expected, and how to fix it", ratio=3)
    for finding in report.findings:
        fix = finding.fix.replace(" APP", f" {application}")
        table.add_row(
            f"{finding.severity}\n{finding.check}",
            f"{finding.about}: {finding.found}",
            f"{finding.expected}\n{finding.why}\n-> {fix}",
        )
    width = max(shutil.get_terminal_size().columns, 120)
    TerminalConsole(width=width, highlight=False, markup=False).print(table)
    counts = ", ".join(f"{report.count(severity)} {severity}s" for severity in Severity)
    typer.echo(f"{report.application}: {len(CHECKS)} checks, {counts}")


def markdown() -> str:
    """Return docs/reference/doctor.md."""
    from eosframework.application.topic_settings import REQUIREMENTS
    from eosframework.operations.doctor import CHECKS, Severity

    return page(
        "doctor",
        severities=((severity, severity.meaning) for severity in Severity),
        checks=((f"`{c.id}`", c.severity, c.expected, c.why, c.fix) for c in CHECKS),
        settings=(
            (
                ", ".join(row.roles) + (f" with {row.replicas} replicas" * (row.replicas > 1)),
                f"`{row.setting}`",
                row.value,
                row.expected,
                row.why,
                "refused" if row.refuses else "warning",
            )
            for row in REQUIREMENTS
        ),
    )
