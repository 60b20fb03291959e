"""`eosframework metrics`: every metric, for people, programs and the documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eosframework.cli import app
from eosframework.cli.options import JsonOption

if TYPE_CHECKING:
    from eosframework.monitoring.metrics.catalogue import Metric

_HEAD = """\
# Metrics

Generated from `eosframework/monitoring/metrics/catalogue.py` by
`eosframework metrics --markdown`. How to have them
scraped is in [howto/observe.md](howto/observe.md).

Every metric has the label `application`, which of a relay is its name. No label grows with the
number of partitions, tasks or keys: per task there is `/status`, and `eosframework status`.
Counters begin at 0 when a process starts, as `rate` and `increase` expect. Records count when their
transaction is committed, so aborted and repeated ones do not. Besides, each process tells what all
Prometheus clients tell: `process_cpu_seconds_total`, `process_resident_memory_bytes` and others.

*T* are workers that transform, *P* those that fill tables, *R* relays.

| metric | labels | what it says | normal | otherwise |
| --- | --- | --- | --- | --- |
"""

_LETTERS = {"transforms": "T", "tables": "P", "relay": "R"}


@app.command()
def metrics(
    as_json: JsonOption = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", hidden=True)] = False,
) -> None:
    """Print what each metric says, what is normal, and what to do when it is not."""
    from eosframework.monitoring.metrics.catalogue import METRICS

    if as_json:
        import orjson

        report = {"metrics": [_as_data(metric) for metric in METRICS]}
        typer.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())
    elif as_markdown:
        typer.echo(markdown(METRICS), nl=False)
    else:
        typer.echo("\n\n".join(map(_text, METRICS)))


def markdown(chosen: tuple[Metric, ...]) -> str:
    """Return docs/metrics.md."""
    return _HEAD + "".join(
        f"| `{metric.full_name}`<br>{metric.kind}, {_who(metric)} "
        f"| {', '.join(metric.labels)} | {metric.what} | {metric.normal} | {metric.otherwise} |\n"
        for metric in chosen
    )


def _as_data(metric: Metric) -> dict[str, object]:
    return {
        "name": metric.full_name,
        "kind": metric.kind.value,
        "labels": ["application", *metric.labels],
        "exposed_by": [process.value for process in metric.exposed_by],
        "what": metric.what,
        "normal": metric.normal,
        "otherwise": metric.otherwise,
    }


def _text(metric: Metric) -> str:
    labels = f" by {', '.join(metric.labels)}" if metric.labels else ""
    return (
        f"{metric.full_name} ({metric.kind}{labels})\n"
        f"  {metric.what}\n"
        f"  normal: {metric.normal}\n"
        f"  otherwise: {metric.otherwise}"
    )


def _who(metric: Metric) -> str:
    return " ".join(_LETTERS[process.value] for process in metric.exposed_by)
