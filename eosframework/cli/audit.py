"""`eosframework audit`: check that each input record took effect exactly once."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from eosframework.cli import app
from eosframework.cli.options import JsonOption, SettingsOptions, SuffixOption, with_settings
from eosframework.cli.stdout import print_report
from eosframework.errors import ConfigurationError
from eosframework.process.steps import step_line

if TYPE_CHECKING:
    from eosframework.operations.audit import Detail, Verdict

DETAILS_SHOWN = 5
"""Findings of each kind in the text output; `--json` has more."""


class By(StrEnum):
    """Sources of the expected outputs; see `eosframework.operations.audit.Proof`."""

    AUTO = "auto"
    RECEIPTS = "receipts"
    FUNCTIONS = "functions"


FromOption = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="BOUND",
        help="First input record to check: beginning; a time in ISO 8601 (UTC unless it has a "
        "zone), compared with record timestamps; an offset, for every input partition; or "
        "TOPIC[PARTITION]@OFFSET, several separated by commas.",
    ),
]
ToOption = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="BOUND",
        help="Input record to stop before, in the same form; end: the committed offsets.",
    ),
]
SinksOption = Annotated[
    str | None,
    typer.Option(
        "--sinks",
        metavar="APPLICATION",
        help="In place of APP: judge the rows of the Spark sinks of this application, by the "
        "receipts that they write with worker.receipts=true.",
    ),
]
OptionalAppArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="APP",
        help="The topology: a .yaml file, a .py file, file.py:attribute or "
        "package.module:attribute.",
        show_default=False,
    ),
]
ByOption = Annotated[
    By,
    typer.Option(
        "--by",
        help="Source of the expected outputs. receipts: headers that workers write with "
        "worker.receipts=true. functions: the topology's functions, which run again. auto: "
        "receipts if the outputs have them, else functions.",
    ),
]


@app.command(
    epilog="Example: eosframework audit topology.yaml --from 2026-01-31T06:00 --by receipts"
)
@with_settings
def audit(
    options: SettingsOptions,
    application: OptionalAppArgument = None,
    start: FromOption = "beginning",
    end: ToOption = "end",
    by: ByOption = By.AUTO,
    sinks: SinksOption = None,
    suffix: SuffixOption = None,
    as_json: JsonOption = False,
) -> int:
    """Check that each input record took effect exactly once.

    What backfill jobs processed is included. Workers and jobs may run meanwhile. If outputs have no
    receipts, the topology's functions run again over the input up to the committed offsets; side
    effects of functions are repeated. Exits with 1 if a record is lost, duplicated, reordered or
    torn.
    """
    if (application is None) == (sinks is None):
        raise ConfigurationError(
            f"audit got APP={application!r} and --sinks={sinks!r}; expected one of them: the "
            f"topology of an application, or the name of an application with Spark sinks"
        )
    if sinks is None:
        assert application is not None
        scope = start, end
        name, verdict = _of_topology(options, application, scope, by, suffix)
        text = as_text(name, verdict)
    else:
        _refuse_parts(start, end, by, suffix)
        verdict = _of_sinks(options, sinks)
        text = as_text(sinks, verdict, "row")
    print_report(verdict.as_data(), text, as_json=as_json)
    return 0 if verdict.clean else 1


def _of_topology(
    options: SettingsOptions, application: str, bounds: tuple[str, str], by: By, suffix: str | None
) -> tuple[str, Verdict]:
    """Return the name of the application, and the verdict."""
    from eosframework.application.context import connect_to
    from eosframework.operations.audit import Bound, Proof, Scope, audit_topology

    scope = Scope(*map(Bound.parse, bounds))
    settings = options.load()
    graph = connect_to(application, settings, suffix).graph
    with step_line() as show:
        verdict = audit_topology(graph, settings, show, scope=scope, proof=Proof(by))
    return graph.application, verdict


def _of_sinks(options: SettingsOptions, application: str) -> Verdict:
    from eosframework.operations.audit.sink_audit import audit_sinks

    settings = options.load()
    with step_line() as show:
        return audit_sinks(application, settings.kafka, show)


def _refuse_parts(start: str, end: str, by: By, suffix: str | None) -> None:
    """Refuse the options that do not apply to sinks.

    Raises:
        ConfigurationError: names the option.
    """
    given = {
        "--from": start != "beginning",
        "--to": end != "end",
        "--by": by is By.FUNCTIONS,
        "--suffix": suffix is not None,
    }
    if unsuitable := [option for option, is_given in given.items() if is_given]:
        raise ConfigurationError(
            f"--sinks judges all rows of complete batches, by receipts; leave "
            f"{' and '.join(unsuitable)} out"
        )


def as_text(application: str, verdict: Verdict, subject: str = "input record") -> str:
    """Return the text output.

    Args:
        application: its name.
        verdict: the result.
        subject: the unit that is judged.
    """
    counts = verdict.counts()
    lines = [
        f"{application}: {counts.pop('input'):,} {subject}s processed, "
        f"{counts.pop('output'):,} output records visible"
    ]
    for name, count in counts.items():
        of_them = verdict.unexpected if name == "duplicated" else 0
        lines.append(
            f"  {name:<11} {count:>9,}"
            + (f"  ({of_them:,} of them without an input record)" if of_them else "")
        )
    if verdict.untraced:
        lines.append(f"  {'untraced':<11} {verdict.untraced:>9,}  (their input was removed)")
    if verdict.not_judged:
        lines.append(f"  {'not judged':<11} {verdict.not_judged:>9,}  (outputs of many inputs)")
    if verdict.share < 1:
        lines.append(f"  judged: {_percent(verdict.share)} of the requested input")
    lines += [f"  {detail.kind}: {detail.text}" for detail in _first_of_each_kind(verdict.details)]
    lines += [f"  note: {note}" for note in verdict.notes]
    if verdict.clean:
        is_all = verdict.share == 1 and not verdict.not_judged
        judged = "" if is_all else " that was judged"
        lines.append(f"each {subject}{judged} took effect exactly once")
    else:
        lines.append("NOT exactly once: see the details above; --json has more of them")
    return "\n".join(lines)


def _percent(share: float) -> str:
    # A share below 1 must not be rounded to 100%.
    return f"{min(round(100 * share, 1), 99.9):g}%"


def _first_of_each_kind(details: tuple[Detail, ...]) -> list[Detail]:
    shown: dict[str, list[Detail]] = {}
    for detail in details:
        of_kind = shown.setdefault(detail.kind, [])
        if len(of_kind) < DETAILS_SHOWN:
            of_kind.append(detail)
    return [detail for of_kind in shown.values() for detail in of_kind]
