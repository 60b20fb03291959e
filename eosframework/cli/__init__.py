"""The command line: one module per command, nothing decided here but exit codes.

Results go to stdout, logs and errors to stderr. With `--json` stdout holds exactly one JSON
object, and that is `{"error": …}` where the command failed. Exit codes: 0 done or asked to stop;
1 failed while running, or found what it looks for; 2 the command line, the user's input or the
configuration is wrong, and nothing was started; 3 fenced; 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

import typer
import typer.core

from eosframework.cli.stdout import guarded_stdout
from eosframework.errors import EosError, OutputLost, UserError
from eosframework.process import interrupts as interrupted


class _InOrder(typer.core.TyperGroup):
    """Lists commands as `COMMANDS` does; typer would put groups last."""

    def list_commands(self, ctx: Any) -> list[str]:
        order = [name.replace("_", "-") for name in COMMANDS]
        return sorted(self.commands, key=order.index)


app = typer.Typer(
    name="eosframework",
    help="Exactly-once stream processing over real Apache Kafka.",
    no_args_is_help=True,
    add_completion=False,
    cls=_InOrder,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

COMMANDS = (
    "run_worker",
    "lint",
    "describe",
    "plan",
    "apply",
    "status",
    "positions",
    "reset",
    "state",
    "dead_letters",
    "ids",
    "txn",
    "doctor",
    "audit",
    "demo",
    "demo_transfer",
    "demo_backfill",
    "backfill",
    "relay_outbox",
    "broker",
    "database",
    "errors",
    "changes",
    "metrics",
    "schema",
    "settings",
    "version",
)
"""Modules of this package that add a command, in the order of the help page."""

USAGE = UserError.exit_code

_UsageError: type[Exception] = typer.BadParameter.__bases__[0]
"""Typer carries its own click and exports only this subclass of what parsing raises."""


@app.callback()
def _commands() -> None:  # pyright: ignore[reportUnusedFunction]
    """Exactly-once stream processing over real Apache Kafka."""


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit with its code; a user's mistake never prints a traceback."""
    given = sys.argv[1:] if arguments is None else arguments
    interrupted.leaves(interrupted.NOTHING)
    try:
        _register(given)
        with guarded_stdout():
            code = app(args=given, standalone_mode=False)
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            _tell(str(error))
            sys.exit(USAGE)
        _fail(_usage(error), USAGE, given)
    except EosError as error:
        _fail(str(error), error.exit_code, given)
    except (KeyboardInterrupt, typer.Abort):
        code = interrupted.EXIT_CODE  # what typer makes of Ctrl-C, where it gets to it
    # `python -m` ends by SIGINT once a KeyboardInterrupt has passed an `exec`, until another one is
    # through (CPython, `run_eval_code_obj` in Python/pythonrun.c).
    exec("")
    if code == interrupted.EXIT_CODE:
        if interrupted.lasts(given):
            sys.exit(0)  # to stop on request is no failure
        _fail(interrupted.line(), interrupted.EXIT_CODE, given)
    sys.exit(code if isinstance(code, int) else 0)


def exit_code_of(work: Callable[[], object]) -> int:
    """Run `work` in a child process; report its error as `main` does and return its exit code.

    No signal is a KeyboardInterrupt in a child, so one would be an error of its own.
    """
    try:
        work()
    except EosError as error:
        _tell(f"error: {error}")
        return error.exit_code
    return 0


def _fail(message: str, exit_code: int, arguments: list[str]) -> NoReturn:
    _tell(f"error: {message}")
    if "--json" in arguments:
        import orjson

        try:
            with guarded_stdout():
                print(orjson.dumps({"error": message}).decode())
        except OutputLost as error:
            _tell(f"error: {error}")
    sys.exit(exit_code)


def _tell(line: str) -> None:
    # Where stderr fails as well, the exit code is all that is left.
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def _usage(error: Any) -> str:
    """Return what is wrong with a command line, and where it says what was expected."""
    command = error.ctx.command_path if error.ctx else app.info.name
    return f"{error.format_message().rstrip('.')}; see `{command} --help`"


def _register(arguments: list[str]) -> None:
    """Attach the command that is asked for, else all: importing a module adds its command."""
    wanted = arguments[0].replace("-", "_") if arguments else ""
    for command in [wanted] if wanted in COMMANDS else COMMANDS:
        import_module(f"eosframework.cli.{command}")
