"""`eosframework lint` and `eosframework describe`: check and show a topology without a broker."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from eosframework.cli import app
from eosframework.cli.options import AppArgument, JsonOption, SettingsOptions, with_settings
from eosframework.cli.stdout import print_json

if TYPE_CHECKING:
    from eosframework.topology.spec.loaded import Finding


class Format(StrEnum):
    """Formats of a description."""

    TEXT = "text"
    MERMAID = "mermaid"


@app.command()
def lint(
    app_name: AppArgument,
    as_json: JsonOption = False,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Also name the steps whose results depend on the arrival of records, and the "
            "names of stores and topics that are not stated. Exit with 1 for any finding.",
        ),
    ] = False,
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="Write the names that findings propose into the Python or YAML file.",
        ),
    ] = False,
) -> int:
    """Print all errors and warnings of a topology.

    Each finding is file:line:column: rule: message. Exits with 1 if there is an error; warnings
    alone exit with 0.
    """
    from eosframework.topology.lint.lint_pass import lint as find
    from eosframework.topology.lint.lint_pass import lint_strictly, strict_findings
    from eosframework.topology.loader import read_app
    from eosframework.topology.spec.loaded import Severity

    read = read_app(app_name)
    findings = (lint_strictly if strict else find)(read)
    unnamed = [] if strict else strict_findings(read, findings)
    if fix:
        findings = _fix(findings)
    errors = sum(finding.severity is Severity.ERROR for finding in findings)
    warnings = len(findings) - errors
    if as_json:
        print_json(
            {
                "app": app_name,
                "errors": errors,
                "warnings": warnings,
                "findings": [finding.as_dict() for finding in findings],
            }
        )
    else:
        for finding in findings:
            note = "" if finding.severity is Severity.ERROR else " (warning)"
            typer.echo(f"{finding}{note}")
        typer.echo(f"{app_name}: {errors} errors, {warnings} warnings", err=True)
        if arrival := sum(finding.rule == "arrival" for finding in unnamed):
            typer.echo(
                f"steps whose results depend on the arrival of records: {arrival}; "
                f"eosframework lint --strict names them",
                err=True,
            )
    return 1 if errors or (strict and findings) else 0


def _fix(findings: Sequence[Finding]) -> list[Finding]:
    """Write the proposed names into the file, and return the findings that remain."""
    from eosframework.topology.lint.lint_pass import write_fixes

    fixed = write_fixes(findings)
    for finding in fixed.written:
        typer.echo(f"{finding.place}: fixed: {finding.rule}", err=True)
    for finding, reason in fixed.left:
        typer.echo(f"{finding.place}: not fixed: {finding.rule}: {reason}", err=True)
    return [finding for finding in findings if finding not in fixed.written]


@app.command(
    epilog="No broker is asked. The database is asked only if transactional ids are leased "
    "(worker.ids=leased)."
)
@with_settings
def describe(
    options: SettingsOptions,
    app_name: AppArgument,
    as_json: JsonOption = False,
    format: Annotated[Format, typer.Option(help="text, or a mermaid flowchart.")] = Format.TEXT,
) -> None:
    """Print a topology's sub-topologies, topics and ids."""
    from eosframework.application.composition.ids import leases_of
    from eosframework.topology.graph.description import as_mermaid, as_text
    from eosframework.topology.graph.description import describe as as_data
    from eosframework.topology.loader import load_app
    from eosframework.topology.resolve.resolve import resolve
    from eosframework.txnid import worker_pattern

    graph = resolve(load_app(app_name))
    settings = options.load()
    leases = leases_of(graph.application, settings)
    own = settings.worker.has_own_id and graph.sub_topologies
    writer = worker_pattern(graph.application) if own else None
    if as_json:
        print_json(as_data(graph, leases=leases, writer=writer))
    elif format is Format.MERMAID:
        typer.echo(as_mermaid(graph))
    else:
        typer.echo(as_text(graph, leases=leases, writer=writer))
