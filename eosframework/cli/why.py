"""`eosframework why`: the cause of one output record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eosframework.cli import app
from eosframework.cli.options import JsonOption, SettingsOptions, with_settings
from eosframework.cli.stdout import print_report
from eosframework.errors import ConfigurationError
from eosframework.process.steps import step_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eosframework.operations.why.scene import Scene

PlaceArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECORD",
        help="The output record: TOPIC[PARTITION]@OFFSET, in quotes.",
        show_default=False,
    ),
]
OptionalAppArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="APP",
        help="The topology, for steps, state and inputs: a .yaml file, a .py file, "
        "file.py:attribute or package.module:attribute.",
        show_default=False,
    ),
]
RunOption = Annotated[
    bool,
    typer.Option(
        "--run/--no-run",
        help="Run the functions again, with their side effects, to find the state and to compare "
        "the output.",
    ),
]
DebugOption = Annotated[
    bool,
    typer.Option("--debug", help="Stop in pdb at the first line of each function of the steps."),
]
AsTestOption = Annotated[
    bool,
    typer.Option("--as-test", help="Print a pytest with the record, its state and its output."),
]


@app.command(epilog="Example: eosframework why 'flights.late[0]@611' topology.yaml")
@with_settings
def why(
    options: SettingsOptions,
    record: PlaceArgument,
    application: OptionalAppArgument = None,
    run: RunOption = True,
    debug: DebugOption = False,
    as_test: AsTestOption = False,
    as_json: JsonOption = False,
) -> int:
    """Print the cause of an output: input, transaction, worker, steps, state and inputs.

    It reads topics and writes nothing. Outputs have the receipts that it needs with
    worker.receipts=true. Exits with 1 if the functions do not give the record in the log again.
    """
    from eosframework.application.context import connect_to
    from eosframework.kafka.inspect.written_record import RecordPlace
    from eosframework.operations.why import as_text, cause_of

    _refuse_parts(application, run=run, debug=debug, as_test=as_test, as_json=as_json)
    place = RecordPlace.parse(record)
    settings = options.load()
    graph = None if application is None else connect_to(application, settings).graph
    with step_line() as show:
        cause = cause_of(place, settings, graph, show, run=run)
    rerun = cause.found.rerun
    if debug or as_test:
        scene = _required(cause.scene, cause.found.missing)
        if debug:
            from eosframework.operations.why.debugging import debug as debug_

            debug_(scene, cause.found)
        else:
            from eosframework.operations.why.as_test import as_test as as_test_

            assert application is not None
            typer.echo(as_test_(cause.found, scene, application), nl=False)
    else:
        print_report(cause.found.as_data(), as_text(cause.found), as_json=as_json)
    return 1 if rerun is not None and rerun.is_same is False else 0


def _required(scene: Scene | None, missing: Sequence[str]) -> Scene:
    """Return the scene, or refuse with the reason why there is none."""
    if scene is None:
        raise ConfigurationError(f"the record cannot run again: {'; '.join(missing)}")
    return scene


def _refuse_parts(
    application: str | None, *, run: bool, debug: bool, as_test: bool, as_json: bool
) -> None:
    """Refuse options that exclude each other.

    Raises:
        ConfigurationError: names them.
    """
    if sum((debug, as_test, as_json)) > 1:
        raise ConfigurationError("give one of --debug, --as-test and --json")
    if (debug or as_test) and (application is None or not run):
        raise ConfigurationError(
            "--debug and --as-test run the functions of a topology: name it, without --no-run"
        )
