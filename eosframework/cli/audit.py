"""`eosframework audit`: the proof that each input record took effect exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from eosframework.cli import app
from eosframework.cli.options import AppArgument, ConfigOption, JsonOption, SetOption

if TYPE_CHECKING:
    from eosframework.audit import Verdict


@app.command()
def audit(
    application: AppArgument,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> int:
    """Compare the outputs with what the input must have given.

    Runs the topology's functions again over the input up to the committed positions; those with
    side effects repeat them. Exits with 2 if anything is lost, duplicated, reordered or torn.
    """
    from eosframework.audit import audit_application
    from eosframework.config import load_settings
    from eosframework.topology.loader import load_app
    from eosframework.topology.resolve import resolve

    settings = load_settings(config, assignments)
    graph = resolve(load_app(application))
    progress = _Progress()
    verdict = audit_application(graph, settings.kafka, progress.show)
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
        "untraced": verdict.untraced,
        "examples": [{"kind": e.kind, "text": e.text} for e in verdict.examples],
        "notes": list(verdict.notes),
    }


def as_text(application: str, verdict: Verdict) -> str:
    """Return a verdict for people."""
    counts = verdict.counts()
    lines = [
        f"{application}: {counts.pop('input'):,} input records processed, "
        f"{counts.pop('output'):,} output records visible"
    ]
    lines += [f"  {name:<11} {count:>9,}" for name, count in counts.items()]
    if verdict.untraced:
        lines.append(f"  {'untraced':<11} {verdict.untraced:>9,}  (their input is gone)")
    lines += [f"  {example.kind}: {example.text}" for example in verdict.examples]
    lines += [f"  note: {note}" for note in verdict.notes]
    if verdict.clean:
        lines.append("each input record took effect exactly once")
    else:
        lines.append("NOT exactly once: see the examples above")
    return "\n".join(lines)


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
