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
    from collections.abc import Iterable, Sequence

    from eosframework.operations.doctor import Finding, Report


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
    from eosframework.application.context import connect_to
    from eosframework.operations.doctor import examine, take_snapshot

    settings = options.load()
    graph = connect_to(application, settings).graph
    report = examine(take_snapshot(graph, settings))
    if as_json:
        print_json(report.as_data())
    else:
        _print(report, application)
    return 0 if report.healthy else 1


SHOWN = 3
"""Most objects, and most fixes, that a block lists; `--json` has all."""

_STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold"}


def _print(report: Report, application: str) -> None:
    from eosframework.operations.doctor import CHECKS, Severity
    from eosframework.process.progress import TerminalConsole

    console = TerminalConsole(highlight=False, markup=False, soft_wrap=True)
    for block in blocks(report.findings):
        severity, check = block[0].severity, block[0].check
        console.print(f"{severity}: {check}", style=_STYLES[severity])
        for line in _lines(block):
            console.print(line.replace(" APP", f" {application}"))
        console.print()
    counts = ", ".join(f"{report.count(severity)} {severity}s" for severity in Severity)
    typer.echo(f"{report.application}: {len(CHECKS)} checks, {counts}")


def blocks(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Return findings of one check with the same consequence together, in their order."""
    together: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        alike = (finding.severity, finding.check, finding.expected, finding.why)
        together.setdefault(alike, []).append(finding)
    return list(together.values())


def _lines(block: Sequence[Finding]) -> list[str]:
    """Return the lines of findings that are printed together; only texts are broken."""
    import shutil
    import textwrap

    width = max(shutil.get_terminal_size().columns - 1, 80)
    objects = [f"{finding.about}: {finding.found}" for finding in block]
    texts = [*_first(objects, "object"), f"expected: {block[0].expected}", block[0].why]
    fixes = dict.fromkeys(finding.fix for finding in block)
    # Names have hyphens, and are copied.
    broken = textwrap.TextWrapper(
        width,
        initial_indent="  ",
        subsequent_indent="    ",
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [
        *map(broken.fill, texts),
        *(f"  -> {fix}" for fix in _first(list(fixes), "command")),
    ]


def _first(texts: list[str], kind: str) -> list[str]:
    if len(texts) <= SHOWN + 1:
        return texts
    rest = len(texts) - SHOWN
    return [*texts[:SHOWN], f"and {rest} {kind}s like these; --json prints them all"]


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
