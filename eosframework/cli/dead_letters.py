"""`eosframework dead-letters`: list, show and replay records that could not be processed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from eosframework.cli import group
from eosframework.cli.cluster import open_application
from eosframework.cli.options import (
    AppArgument,
    DryRunOption,
    JsonOption,
    SettingsOptions,
    YesOption,
    confirmed,
    with_settings,
)
from eosframework.cli.stdout import print_json, print_report
from eosframework.process.interrupts import note_remains
from eosframework.process.steps import step_line

if TYPE_CHECKING:
    from eosframework.application.context import ApplicationContext
    from eosframework.operations.dead_letters import Choice, DeadLetters, Group, ReplayPlan

commands = group("dead-letters", "List, show and replay records that could not be processed.")

TopicOption = Annotated[
    str | None,
    typer.Option("--topic", metavar="TOPIC", help="Dead letters of this dead-letter topic."),
]
ErrorOption = Annotated[
    str | None,
    typer.Option("--error", metavar="TEXT", help="Dead letters whose error contains this text."),
]
OffsetsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--offsets",
        metavar="PLACE",
        help="Dead letters at TOPIC[PARTITION]@OFFSET or TOPIC[PARTITION]@FIRST-LAST. Repeatable.",
    ),
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help="Dead letters that failed since this time (ISO 8601, UTC)."
    ),
]


@commands.command("list")
@with_settings
def list_(
    options: SettingsOptions,
    app_name: AppArgument,
    as_json: JsonOption = False,
) -> None:
    """Count dead letters by topic, input, step and error."""
    from eosframework.operations.dead_letters import marked_of

    opened, letters = _opened(app_name, options)
    groups = letters.groups(marked_of(opened, letters))
    if as_json:
        print_json(
            {
                "application": opened.graph.application,
                "topics": letters.topics,
                "groups": [group.as_data() for group in groups],
                "foreign": dict(letters.foreign),
            }
        )
        return
    if not groups:
        named = ", ".join(letters.topics) or "no stream has on_error: {dead_letter: TOPIC}"
        typer.echo(f"no dead letters ({named})")
    for entry in groups:
        typer.echo("\n".join(_group_lines(entry)))
    if letters.foreign:
        from eosframework.operations.dead_letters.dead_letter import foreign_text

        typer.echo(foreign_text(letters.foreign))


@commands.command()
@with_settings
def show(
    options: SettingsOptions,
    app_name: AppArgument,
    place: Annotated[
        str,
        typer.Argument(
            metavar="PLACE",
            help="The dead letter: TOPIC[PARTITION]@OFFSET, as `list` prints it.",
            show_default=False,
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Print one dead letter: the record, its source, and its error."""
    from eosframework.operations.dead_letters import DeadLetterPlace, marked_of
    from eosframework.operations.dead_letters.dead_letter import shown

    wanted = DeadLetterPlace.parse(place)
    opened, letters = _opened(app_name, options)
    letter = letters.find(wanted)
    marks = marked_of(opened, letters).get(letter.partition)
    was_replayed = marks is not None and letter.offset in marks
    report = shown(opened.graph, letter, was_replayed=was_replayed)
    if as_json:
        print_json(report)
        return
    for name, value in report.items():
        if name == "headers":
            for header in value:
                typer.echo(f"{'header':<14} {header['name']}: {header['value']}")
        elif value is not None:
            typer.echo(f"{name:<14} {_text(value)}")


@commands.command(
    epilog="Example: eosframework dead-letters replay topology.yaml --error ValueError --dry-run"
)
@with_settings
def replay(
    options: SettingsOptions,
    app_name: AppArgument,
    topic: TopicOption = None,
    error: ErrorOption = None,
    offsets: OffsetsOption = None,
    since: SinceOption = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All dead letters that were not replayed yet.")
    ] = False,
    into_source: Annotated[
        bool,
        typer.Option(
            "--into-source",
            help="Write to source topics, which other applications may read, if the application "
            "has no internal topic for replays.",
        ),
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run dead letters through the topology once more.

    Shows the dead letters and asks. Each is replayed exactly once: a record and its mark as
    replayed are written in one transaction, so a replay that was killed can be run again. Workers
    process the records; they may run meanwhile or start later.
    """
    from eosframework.operations.dead_letters import marked_of, plan_replay, targets
    from eosframework.operations.dead_letters import replay as send
    from eosframework.process.logs import configure_logs

    choice = _choice(topic, error, offsets, since, everything=everything)
    opened, letters = _opened(app_name, options)
    choice.refuse_unknown_topics(letters.topics)
    routes = targets(opened.graph)
    found = plan_replay(letters, choice, routes, marked_of(opened, letters))
    if not into_source:
        found.refuse_shared()
    done = 0
    if found.total and not dry_run and (yes or _agreed(found)):
        configure_logs(opened.settings.log)
        opened.control_topic.ensure()
        application = opened.graph.application
        note_remains("replayed records are marked; run the same command again to replay the rest")
        with step_line() as show:
            done = send(
                application,
                opened.settings,
                opened.admin,
                letters,
                choice,
                routes,
                lambda sent: show("replay", sent, found.total),
            ).total
    print_report(
        found.as_data(opened.graph.application, done, dry_run=dry_run),
        "\n".join(found.lines(done, dry_run=dry_run)),
        as_json=as_json,
    )


def _opened(app_name: str, options: SettingsOptions) -> tuple[ApplicationContext, DeadLetters]:
    from eosframework.operations.dead_letters import dead_letters_of

    opened = open_application(app_name, options)
    return opened, dead_letters_of(opened)


def _choice(
    topic: str | None,
    error: str | None,
    offsets: list[str] | None,
    since: str | None,
    *,
    everything: bool,
) -> Choice:
    from eosframework.errors import ConfigurationError
    from eosframework.operations.dead_letters import Choice, DeadLetterPlace, moment_of

    places = tuple(DeadLetterPlace.parse(text) for text in offsets or ())
    since_ms = None if since is None else moment_of(since)
    choice = Choice(topic=topic, error=error, places=places, since_ms=since_ms)
    if choice.is_all != everything:
        raise ConfigurationError(
            "choose the dead letters to replay: --all, or one or more of --topic, --error, "
            "--offsets and --since, which are combined with AND"
        )
    return choice


def _agreed(found: ReplayPlan) -> bool:
    """Show the records to replay, and ask.

    Raises:
        ConfigurationError: stdin is closed or at its end.
    """
    typer.echo("\n".join(found.lines(0, dry_run=True)), err=True)
    return confirmed()


def _group_lines(group: Group) -> list[str]:
    replayed = f", {group.replayed:,} of them replayed" if group.replayed else ""
    lines = [
        f"{group.topic}: {group.count:,} from {group.input} failed in {group.step}{replayed}",
        f"  {group.example.error}",
    ]
    when = ""
    if group.first_at is not None and group.last_at is not None:
        when = f"{_time(group.first_at)} to {_time(group.last_at)}, "
    return [*lines, f"  {when}for example {group.example.place}"]


def _text(value: Any) -> str:
    import orjson

    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _time(milliseconds: int) -> str:
    from datetime import UTC, datetime

    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
