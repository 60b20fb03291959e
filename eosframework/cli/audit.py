"""`eosframework audit`: the proof that each input record took effect exactly once."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from eosframework.cli import app
from eosframework.cli.options import AppArgument, ConfigOption, JsonOption, SetOption

if TYPE_CHECKING:
    from eosframework.operations.audit import Detail, Verdict

DETAILS_SHOWN = 5
"""Of each kind, to people; `--json` has more."""


class By(StrEnum):
    """What tells which outputs must be there; see `eosframework.operations.audit.Proof`."""

    AUTO = "auto"
    RECEIPTS = "receipts"
    FUNCTIONS = "functions"


FromOption = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="BOUND",
        help="First input record to judge: beginning; a time in ISO 8601 (UTC without a zone; the "
        "records' own timestamps count); an offset, taken in every input partition; or "
        "TOPIC[PARTITION]@OFFSET, as findings name records, several separated by commas.",
    ),
]
ToOption = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="BOUND",
        help="Input record to stop before, likewise; end: the positions committed right now.",
    ),
]
ByOption = Annotated[
    By,
    typer.Option(
        "--by",
        help="What judges. receipts: the headers that workers write with worker.receipts=true; no "
        "function runs. functions: the topology's own, run again. auto: receipts where there are.",
    ),
]


@app.command()
def audit(
    application: AppArgument,
    start: FromOption = "beginning",
    end: ToOption = "end",
    by: ByOption = By.AUTO,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> int:
    """Prove that each input record took effect exactly once, while workers run or not.

    Where outputs have no receipts, the topology's functions run again over the input up to the
    committed positions; those with side effects repeat them. Exits with 2 if anything is lost,
    duplicated, reordered or torn.
    """
    from eosframework.config import load_settings
    from eosframework.operations.audit import Bound, Proof, Scope, audit_application
    from eosframework.topology.loader import load_app
    from eosframework.topology.resolve.resolve import resolve

    scope = Scope(Bound.parse(start), Bound.parse(end))
    settings = load_settings(config, assignments)
    graph = resolve(load_app(application)).with_times_within(settings.worker.max_event_time_ahead)
    if graph.codecs:
        from eosframework.kafka.schema_registry.schema_codecs import open_schemas

        open_schemas(graph.codecs, settings.schema_registry)
    progress = _Progress()
    try:
        verdict = audit_application(
            graph, settings.kafka, progress.show, scope=scope, proof=Proof(by)
        )
    finally:
        progress.clear()
    if as_json:
        import orjson

        typer.echo(orjson.dumps(as_data(verdict)).decode())
    else:
        typer.echo(as_text(graph.application, verdict))
    return 0 if verdict.clean else 2


def as_data(verdict: Verdict) -> dict[str, object]:
    """Return a verdict as the object that `--json` prints."""
    return {
        **verdict.counts(),
        "unexpected": verdict.unexpected,
        "untraced": verdict.untraced,
        "share": verdict.share,
        "not_judged": verdict.not_judged,
        "details": [detail.as_data() for detail in verdict.details],
        "notes": list(verdict.notes),
    }


def as_text(application: str, verdict: Verdict) -> str:
    """Return a verdict for people."""
    counts = verdict.counts()
    lines = [
        f"{application}: {counts.pop('input'):,} input records processed, "
        f"{counts.pop('output'):,} output records visible"
    ]
    for name, count in counts.items():
        of_them = verdict.unexpected if name == "duplicated" else 0
        lines.append(
            f"  {name:<11} {count:>9,}"
            + (f"  ({of_them:,} of them come from no input record)" if of_them else "")
        )
    if verdict.untraced:
        lines.append(f"  {'untraced':<11} {verdict.untraced:>9,}  (their input is gone)")
    if verdict.not_judged:
        lines.append(f"  {'not judged':<11} {verdict.not_judged:>9,}  (outputs of many inputs)")
    if verdict.share < 1:
        lines.append(f"  judged: {_percent(verdict.share)} of the input that was asked for")
    lines += [f"  {detail.kind}: {detail.text}" for detail in _first_of_each_kind(verdict.details)]
    lines += [f"  note: {note}" for note in verdict.notes]
    if verdict.clean:
        is_all = verdict.share == 1 and not verdict.not_judged
        judged = "" if is_all else " that was judged"
        lines.append(f"each input record{judged} took effect exactly once")
    else:
        lines.append("NOT exactly once: see the details above; --json has more of them")
    return "\n".join(lines)


def _percent(share: float) -> str:
    """Return a share that is not all of it; rounding must not make it so."""
    return f"{min(round(100 * share, 1), 99.9):g}%"


def _first_of_each_kind(details: tuple[Detail, ...]) -> list[Detail]:
    shown: dict[str, list[Detail]] = {}
    for detail in details:
        of_kind = shown.setdefault(detail.kind, [])
        if len(of_kind) < DETAILS_SHOWN:
            of_kind.append(detail)
    return [detail for of_kind in shown.values() for detail in of_kind]


class _Progress:
    """One line on a terminal that says what is being read."""

    def __init__(self) -> None:
        import sys

        self._stream = sys.stderr if sys.stderr.isatty() else None

    def show(self, what: str, done: int) -> None:
        if self._stream is not None:
            count = f"{done:,} records" if done else ""
            self._stream.write(f"\r\x1b[K{what} {count}")
            self._stream.flush()

    def clear(self) -> None:
        if self._stream is not None:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
