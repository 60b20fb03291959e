"""`eosframework backfill diff`: compare a job's suffixed output with the live output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from eosframework.cli.options import (
    AppArgument,
    JobOption,
    JsonOption,
    MasterOption,
    SettingsOptions,
    SparkOption,
    suffix_option,
    with_settings,
)
from eosframework.cli.stdout import print_report
from eosframework.process.interrupts import cleaning_up
from eosframework.serialization.moments import moment_ms, moment_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eosframework.spark.backfill.job_diff import Diff
    from eosframework.spark.backfill.topic_diff import CompareBy, Place, TimeRange, TopicDifference

VALUE_CHARACTERS = 200
"""Characters of a key or value in the text output."""


WhereOption = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="SQL",
        help="Compare only the rows of tables that match this condition. Default: all rows.",
    ),
]


CompareOption = Annotated[
    list[str] | None,
    typer.Option(
        "--compare",
        metavar="TOPIC=HOW",
        help="Compare a topic by records (every record) or last (the last value of each key and "
        "window). Default: by the operators that write the topic. Repeatable.",
    ),
]


FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="TIME",
        help="Compare records from this event time on. Default: the first of the job.",
    ),
]


ToOption = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="TIME",
        help="Compare records before this event time. Default: including the last of the job.",
    ),
]


PartitionOption = Annotated[
    list[int] | None,
    typer.Option(
        "--partition",
        metavar="N",
        min=0,
        help="Compare only this partition of each topic. Default: all. Repeatable.",
    ),
]


@with_settings
def diff(
    options: SettingsOptions,
    app_name: AppArgument,
    job: JobOption,
    suffix: Annotated[str, suffix_option("The suffix of the job.")],
    limit: Annotated[
        int, typer.Option("--limit", min=0, help="Differences to list of each topic.")
    ] = 20,
    last: Annotated[
        bool,
        typer.Option("--last", help="Compare all topics by the last value of each key and window."),
    ] = False,
    compare_by: CompareOption = None,
    headers: Annotated[
        bool, typer.Option("--headers", help="Compare headers too, except eosframework's.")
    ] = False,
    start: FromOption = None,
    end: ToOption = None,
    partition: PartitionOption = None,
    where: WhereOption = None,
    master: MasterOption = None,
    spark: SparkOption = None,
    as_json: JsonOption = False,
) -> int:
    """Compare a job's suffixed output with the live output.

    Both are compared in the range of event times that the job processed. Records are equal if their
    key, value and timestamp are. Topics that tables and windows update are compared by the last
    value of each key and window. Exits with 1 if there is a difference.
    """
    from eosframework.process.logs import configure_logs
    from eosframework.spark.backfill.api import spark_options
    from eosframework.spark.backfill.job_diff import compare, lazy_session
    from eosframework.spark.backfill.topic_diff import CompareBy, DiffOptions
    from eosframework.spark.session.spark_session import check_packages
    from eosframework.topology.loader import load_app

    settings = options.load()
    configure_logs(settings.log)
    app = load_app(app_name)
    properties = spark_options(spark or ())
    check_packages()
    by = CompareBy.LAST if last else None
    how = DiffOptions(
        by=by,
        headers=headers,
        limit=limit,
        topics=_topics_by(compare_by or ()),
        within=_within(start, end),
        partitions=frozenset(partition or ()),
    )
    cleaning_up()
    with lazy_session(master, properties) as session:
        found = compare(session, app, settings, job, suffix, how, where=where, options=properties)
    print_report(_report(found), "\n".join(_lines(found)), as_json=as_json)
    return 0 if found.is_equal else 1


def _topics_by(given: Sequence[str]) -> dict[str, CompareBy]:
    from eosframework.errors import ConfigurationError
    from eosframework.spark.backfill.topic_diff import CompareBy

    chosen: dict[str, CompareBy] = {}
    for text in given:
        topic, _, how = text.rpartition("=")
        if not topic or how not in tuple(CompareBy):
            raise ConfigurationError(
                f"--compare {text!r} is not TOPIC=HOW with {' or '.join(CompareBy)}, for example "
                f"--compare orders.totals=last"
            )
        chosen[topic] = CompareBy(how)
    return chosen


def _within(start: str | None, end: str | None) -> TimeRange:
    from eosframework.spark.backfill.topic_diff import TimeRange

    first = None if start is None else _time("--from", start)
    last = None if end is None else _time("--to", end) - 1
    return TimeRange(first, last, is_cut=first is not None)


def _time(option: str, text: str) -> int:
    from eosframework.errors import ConfigurationError

    try:
        return moment_ms(text)
    except ValueError:
        raise ConfigurationError(
            f"{option} {text!r} is not a time; expected one such as 2024-01-31 or "
            f"2024-01-31T06:00:00Z, in UTC unless it has a zone"
        ) from None


def _report(found: Diff) -> dict[str, Any]:
    return {
        "job": found.job.name,
        "suffix": found.job.suffix,
        "equal": found.is_equal,
        "first_time": found.times.first,
        "last_time": found.times.last,
        "topics": {
            name: {
                "live": one.records[0],
                "backfilled": one.records[1],
                "only_live": one.only[0],
                "only_backfilled": one.only[1],
                "compared": one.how.label,
                "cut": one.cut,
                "differences": [
                    {
                        "key": _text(difference.key),
                        "count_live": difference.counts[0],
                        "count_backfilled": difference.counts[1],
                        "live": _place(difference.live),
                        "backfilled": _place(difference.suffixed),
                    }
                    for difference in one.differences
                ],
            }
            for name, one in found.topics.items()
        },
        "tables": {
            name: {
                "live": one.rows[0],
                "backfilled": one.rows[1],
                "only_live": one.only[0],
                "only_backfilled": one.only[1],
                "columns": list(one.columns),
                "rows_only_live": list(one.examples[0]),
                "rows_only_backfilled": list(one.examples[1]),
            }
            for name, one in found.tables.items()
        },
        "notes": list(found.notes),
    }


def _place(place: Place | None) -> dict[str, Any] | None:
    if place is None:
        return None
    return {
        "partition": place.partition,
        "offset": place.offset,
        "timestamp": place.timestamp,
        "value": _text(place.value),
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")


def _lines(found: Diff) -> Iterator[str]:
    yield (
        f"job {found.job.name} with suffix {found.job.suffix}, records with event times from "
        f"{moment_text(found.times.first)} to {moment_text(found.times.last)}"
    )
    for name, one in found.topics.items():
        cut = f"; {one.cut:,} windows are cut by the range and not compared" if one.cut else ""
        yield f"topic {name}, {one.how.label}: {_counted(one.records, one.only)}{cut}"
        for difference in one.differences:
            yield from _difference(difference)
    for name, table in found.tables.items():
        yield f"table {name}, {', '.join(table.columns)}: {_counted(table.rows, table.only)}"
        for side, rows in zip(("live", "backfilled"), table.examples, strict=True):
            yield from (f"  only {side}: {_row(row)}" for row in rows)
        if table.left_out:
            yield f"  not compared: {', '.join(table.left_out)}"
    yield from (f"note: {note}" for note in found.notes)
    if found.is_empty:
        yield "note: there was nothing to compare"
    yield "equal" if found.is_equal else "DIFFERENT"


def _counted(counts: tuple[int, int], only: tuple[int, int]) -> str:
    compared = f"{counts[0]:,} live, {counts[1]:,} backfilled"
    if not sum(only):
        return f"{compared}, equal"
    return f"{compared}; {only[0]:,} only live, {only[1]:,} only backfilled"


def _difference(difference: TopicDifference) -> Iterator[str]:
    key = "without key" if difference.key is None else f"key {_short(difference.key)}"
    counts = difference.counts
    yield f"  {key}: {counts[0]} live, {counts[1]} backfilled"
    for side, place in (("live", difference.live), ("backfilled", difference.suffixed)):
        if place is not None:
            yield (
                f"    {side} [{place.partition}]@{place.offset} at {moment_text(place.timestamp)}: "
                f"{_short(place.value)}"
            )


def _row(row: Mapping[str, Any]) -> str:
    import orjson

    return orjson.dumps(row).decode()[:VALUE_CHARACTERS]


def _short(data: bytes | None) -> str:
    text = _text(data)
    if text is None:
        return "null"
    return text if len(text) <= VALUE_CHARACTERS else f"{text[:VALUE_CHARACTERS]}…"
