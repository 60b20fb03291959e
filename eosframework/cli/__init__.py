"""The command line: one module per command, nothing decided here but exit codes.

Results go to stdout, logs and errors to stderr. Exit codes: 0 done or asked to stop;
1 the user's input or configuration is wrong; 2 failed while running; 3 fenced.
"""

from __future__ import annotations

import sys
from importlib import import_module

import typer

from eosframework.errors import EosError

app = typer.Typer(
    name="eosframework",
    help="Exactly-once stream processing over real Apache Kafka.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

COMMANDS = (
    "run_worker",
    "lint",
    "describe",
    "plan",
    "apply",
    "positions",
    "audit",
    "demo",
    "broker",
    "errors",
    "schema",
    "settings",
    "version",
)
"""Modules of this package that add a command, in the order of the help page."""

_UsageError: type[Exception] = typer.BadParameter.__bases__[0]
"""Typer carries its own click and exports only this subclass of what parsing raises."""


@app.callback()
def _commands() -> None:  # pyright: ignore[reportUnusedFunction]
    """Exactly-once stream processing over real Apache Kafka."""


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit with its code; a user's mistake never prints a traceback."""
    _register()
    try:
        code = app(args=arguments, standalone_mode=False)
    except _UsageError as error:
        error.show()  # pyright: ignore[reportAttributeAccessIssue,reportUnknownMemberType]
        sys.exit(1)
    except EosError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(0)
    sys.exit(code if isinstance(code, int) else 0)


def _register() -> None:
    """Attach the commands: importing a module adds its command to `app`."""
    for command in COMMANDS:
        import_module(f"eosframework.cli.{command}")
