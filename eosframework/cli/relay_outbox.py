"""`eosframework relay-outbox`: the outbox relay, its ACLs, and its reconciliation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from eosframework.cli import app
from eosframework.cli.options import (
    DryRunOption,
    JsonOption,
    PrincipalOption,
    SettingsOptions,
    YesOption,
    confirmed,
    with_settings,
)
from eosframework.cli.stdout import print_json
from eosframework.process.interrupts import note_remains
from eosframework.process.signals import exit_on_signals

if TYPE_CHECKING:
    from eosframework.postgres.outbox.reconciliation import Comparison

commands = typer.Typer()
app.add_typer(commands, name="relay-outbox")


@commands.callback(invoke_without_command=True)
@with_settings
def relay_outbox(
    options: SettingsOptions,
    context: typer.Context,
    until_caught_up: Annotated[
        bool,
        typer.Option("--until-caught-up", help="Stop once every published message is sent."),
    ] = False,
) -> None:
    """Send the messages of an outbox to Kafka, each exactly once.

    Relays of one name share the shards of the outbox; a relay without a shard stands by. On SIGTERM
    or Ctrl-C the relay commits what is complete and exits with 0.
    """
    if context.invoked_subcommand is not None:
        return
    exit_on_signals()
    from eosframework.application.composition.outbox_relay import run_relay
    from eosframework.process.logs import configure_logs

    settings = options.load()
    configure_logs(settings.log)
    run_relay(settings, until_caught_up=until_caught_up)


@commands.command()
@with_settings
def plan(
    options: SettingsOptions,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", metavar="TOPIC", help="A topic that messages are published to. Repeatable."
        ),
    ] = None,
    principal: PrincipalOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the ACLs that a relay needs; asks no server."""
    from eosframework.application.needed_access import control_topic_access, relay_access
    from eosframework.cli.cluster import acl_commands, print_access

    settings = options.load()
    access = relay_access(settings, topics or ())
    registry = control_topic_access(settings.outbox.name).name
    if as_json:
        report: dict[str, Any] = {"relay": settings.outbox.name, "acls": list(map(str, access))}
        report["access"] = [one.as_data() for one in access]
        report["acls_to_start_first"] = [f"Topic {registry}: Create"]
        if principal is not None:
            report["acl_commands"] = acl_commands(access, settings, principal)
        print_json(report)
        return
    typer.echo(f"relay {settings.outbox.name}")
    print_access(access, settings, principal)
    if not topics:
        typer.echo("    and Write on each topic that is published to; name the topics with --topic")
    typer.echo(f"  the first start also needs Create on Topic {registry}, unless the topic exists")


@commands.command()
@with_settings
def reconcile(
    options: SettingsOptions,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    uncertain: Annotated[
        str | None,
        typer.Option(
            "--uncertain",
            metavar="send|skip",
            help="Handling of messages that may have been sent and removed by retention since.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Send what the outbox has and Kafka lacks, after a restore.

    Run it after the database was restored to an earlier state. Shows the messages and asks, then
    sends them and sets the relay's position.
    """
    from eosframework.application.composition.outbox_relay import reconciler
    from eosframework.errors import ConfigurationError
    from eosframework.process.logs import configure_logs

    if uncertain not in (None, "send", "skip"):
        raise ConfigurationError(f"--uncertain {uncertain!r}: expected send or skip")
    settings = options.load()
    configure_logs(settings.log)
    with reconciler(settings) as opened:
        comparison = opened.compare()
        notes = opened.notes()
        typer.echo(_text(settings.outbox.name, comparison, notes), err=as_json)
        settled = not dry_run and (yes or confirmed())
        if settled and comparison.uncertain and uncertain is None:
            raise ConfigurationError(
                f"{sum(comparison.uncertain.values())} messages may have been sent and removed "
                f"from their topic since, so nothing was changed; decide with --uncertain send or "
                f"--uncertain skip"
            )
        if settled:
            note_remains(
                "some messages may be sent; run the same command again, it finds them in Kafka"
            )
            comparison = opened.settle(uncertain=uncertain == "send")
    if as_json:
        print_json(_report(comparison, notes, settled))
    elif settled:
        typer.echo("they were sent and the position is set; relay-outbox resumes after it")
    else:
        typer.echo("nothing was changed", err=True)


def _report(comparison: Comparison, notes: list[str], settled: bool) -> dict[str, Any]:
    from eosframework.postgres.outbox.reconciliation import described

    return {
        "by": comparison.by,
        "sent": comparison.sent,
        "missing": comparison.missing,
        "uncertain": comparison.uncertain,
        "first": list(described(comparison.first)),
        "notes": notes,
        "settled": settled,
    }


def _text(name: str, comparison: Comparison, notes: list[str]) -> str:
    from eosframework.postgres.outbox.reconciliation import described

    source = {
        "position": "by the relay's position",
        "kafka": "by the ids of the messages in Kafka",
    }[comparison.by]
    lines = [
        f"outbox of relay {name!r}: {comparison.sent} messages were sent, {comparison.total} were "
        f"not ({source})"
    ]
    for topic, count in sorted(comparison.missing.items()):
        doubt = comparison.uncertain.get(topic, 0)
        hint = f", {doubt} of them may have been sent and removed since" if doubt else ""
        lines.append(f"  {topic}: {count} not sent{hint}")
    for message in described(comparison.first):
        key = "without key" if message["key"] is None else f"key {message['key']!r}"
        lines.append(f"    {message['number']}: {message['topic']}, {key}, id {message['id']}")
    lines += [f"note: {note}" for note in notes]
    return "\n".join(lines)
