"""The command line: one module per command, nothing decided here but exit codes.

Results go to stdout, logs and errors to stderr. Exit codes: 0 done or asked to stop;
1 the user's input or configuration is wrong; 2 failed while running; 3 fenced.
"""

from __future__ import annotations

import sys

import typer
from click.exceptions import ClickException

from eosframework.errors import EosError

app = typer.Typer(
    name="eosframework",
    help="Exactly-once stream processing over real Apache Kafka.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit with its code; a user's mistake never prints a traceback."""
    _register()
    try:
        code = app(args=arguments, standalone_mode=False)
    except ClickException as error:
        error.show()
        sys.exit(1)
    except EosError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(0)
    sys.exit(code if isinstance(code, int) else 0)


def _register() -> None:
    """Attach the commands; imported here so that `errors` and `config` load first."""
    from eosframework.cli import (  # noqa: F401  (each module registers its command)
        version,
    )
