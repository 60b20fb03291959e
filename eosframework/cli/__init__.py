"""The command line: one module per command; only exit codes are decided here.

Results go to stdout, logs and errors to stderr. With `--json` stdout holds exactly one JSON
object, which is `{"error": …}` if the command failed.

Exit codes:
    0: done; also a worker or relay that was asked to stop.
    1: failed while running, or a check found what it looks for.
    2: the command line, the user's input or the configuration is wrong; nothing was started.
    3: fenced by another instance.
    130: interrupted by Ctrl-C.

Internal: no module here is public.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
import typer.core

from eosframework.cli.stdout import guarded_stdout
from eosframework.errors import EosError, OutputLost, UserError
from eosframework.process import interrupts as interrupted
from eosframework.process.terminal import escape_output

COMMANDS = {
    "run-worker": "run_worker",
    "lint": "topology",
    "describe": "topology",
    "plan": "plan",
    "apply": "plan",
    "status": "status",
    "console": "console",
    "positions": "positions",
    "reset": "reset",
    "state": "state",
    "dead-letters": "dead_letters",
    "ids": "ids",
    "txn": "txn",
    "doctor": "doctor",
    "audit": "audit",
    "why": "why",
    "backfill": "backfill",
    "relay-outbox": "relay_outbox",
    "topics": "topics",
    "broker": "embedded_servers",
    "database": "embedded_servers",
    "explain": "explain",
    "demo": "demo",
}
"""The module of this package that declares each command, in the order of the help page."""

USAGE = UserError.exit_code

# The base class of all errors of parsing, which typer does not export.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


class _InOrder(typer.core.TyperGroup):
    """Lists commands in the order of `COMMANDS`; typer would put groups last."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(self.commands, key=list(COMMANDS).index)


app = typer.Typer(
    name="eosframework",
    no_args_is_help=True,
    cls=_InOrder,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("eosframework"))
        raise typer.Exit


@app.callback(epilog="`eosframework COMMAND --help` describes the options of a command.")
def _commands(  # pyright: ignore[reportUnusedFunction]
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Exactly-once stream processing over real Apache Kafka."""


def group(name: str, help: str, *, epilog: str | None = None) -> typer.Typer:
    """Declare a command that consists of commands; alone it prints its help."""
    commands = typer.Typer(help=help, epilog=epilog, no_args_is_help=True)
    app.add_typer(commands, name=name)
    return commands


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit with its code; a user's mistake never prints a traceback."""
    given = sys.argv[1:] if arguments is None else arguments
    escape_output()
    interrupted.note_remains(interrupted.NOTHING)
    try:
        _register(given)
        with guarded_stdout():
            # color: typer would leave out escape sequences of a text instead of showing them.
            code = app(args=given, prog_name=app.info.name, standalone_mode=False, color=True)
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            _report(str(error))
            sys.exit(USAGE)
        _fail(_usage(error), USAGE, given)
    except EosError as error:
        _fail(str(error), error.exit_code, given)
    except (KeyboardInterrupt, typer.Abort):
        code = interrupted.EXIT_CODE  # typer.Abort: typer caught the KeyboardInterrupt
    if code == interrupted.EXIT_CODE:
        if interrupted.is_long_running(given):
            sys.exit(0)  # it was asked to stop, which is not a failure
        _fail(interrupted.line(), interrupted.EXIT_CODE, given)
    sys.exit(code if isinstance(code, int) else 0)


def exit_code_of(work: Callable[[], object]) -> int:
    """Run `work` in a child process; report its error as `main` does and return its exit code.

    A supervisor gets the error, too: other children write to the same stderr after this one.
    """
    try:
        work()
    except EosError as error:
        from eosframework.process.progress import report_error

        _report(f"error: {error}")
        report_error(str(error))
        return error.exit_code
    return 0


def _fail(message: str, exit_code: int, arguments: list[str]) -> NoReturn:
    _report(f"error: {message}")
    if "--json" in arguments:
        import orjson

        try:
            with guarded_stdout():
                print(orjson.dumps({"error": message}).decode())
        except OutputLost as error:
            _report(f"error: {error}")
    sys.exit(exit_code)


def _report(line: str) -> None:
    # If stderr fails as well, the exit code must do.
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def _usage(error: Any) -> str:
    """Return the message of a usage error, and the command that prints the expected options."""
    command = error.ctx.command_path if error.ctx else app.info.name
    return f"{error.format_message().rstrip('.')}; see `{command} --help`"


def _register(arguments: list[str]) -> None:
    """Attach the command that the command line names, or else all: importing a module does it."""
    named = COMMANDS.get(arguments[0]) if arguments else None
    for module in {named} if named else dict.fromkeys(COMMANDS.values()):
        import_module(f"eosframework.cli.{module}")
