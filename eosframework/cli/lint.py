"""`eosframework lint`: everything that is wrong with a topology."""

from __future__ import annotations

import typer

from eosframework.cli import app
from eosframework.cli.options import AppArgument, JsonOption


@app.command()
def lint(app_name: AppArgument, as_json: JsonOption = False) -> int:
    """Print everything that is wrong with a topology.

    Each finding is file:line:column: rule: message. Exits with 1 when there is an error; warnings
    alone exit with 0.
    """
    from eosframework.topology.lint.lint_pass import lint as find
    from eosframework.topology.loader import read_app
    from eosframework.topology.spec.loaded import Severity

    findings = find(read_app(app_name))
    errors = sum(finding.severity is Severity.ERROR for finding in findings)
    warnings = len(findings) - errors
    if as_json:
        import orjson

        report = {
            "app": app_name,
            "errors": errors,
            "warnings": warnings,
            "findings": [finding.as_dict() for finding in findings],
        }
        typer.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())
    else:
        for finding in findings:
            note = "" if finding.severity is Severity.ERROR else " (warning)"
            typer.echo(f"{finding}{note}")
        typer.echo(f"{app_name}: {errors} errors, {warnings} warnings", err=True)
    return 1 if errors else 0
