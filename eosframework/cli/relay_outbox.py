"""`eosframework relay-outbox`, and `relay-outbox reconcile`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from eosframework.cli import app
from eosframework.cli.options import ConfigOption, JsonOption, PrincipalOption, SetOption
from eosframework.process.interrupts import leaves
from eosframework.process.signals import exit_on_signals

if TYPE_CHECKING:
    from eosframework.outbox.reconciliation import Comparison

commands = typer.Typer(help="Carry published messages from the database to Kafka, each once.")
app.add_typer(commands, name="relay-outbox")


@commands.callback(invoke_without_command=True)
def relay_outbox(
    context: typer.Context,
    config: ConfigOption = None,
    assignments: SetOption = None,
    until_caught_up: Annotated[
        bool,
        typer.Option("--until-caught-up", help="Stop once everything published is sent."),
    ] = False,
) -> None:
    """Carry published messages from the database to Kafka, each once.

    Several relays of one name share the shards of the outbox; one more than there are shards
    stands by. SIGTERM and Ctrl-C commit what is complete and exit with 0.
    """
    if context.invoked_subcommand is not None:
        return
    exit_on_signals()
    from eosframework.config import load_settings
    from eosframework.process.logs import configure_logs
    from eosframework.runtime.outbox_relay import run_relay

    settings = load_settings(config, assignments)
    configure_logs(settings.log)
    run_relay(settings, until_caught_up=until_caught_up)


@commands.command()
def plan(
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="A topic that is published to; repeat it."),
    ] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    principal: PrincipalOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print what a relay has to be allowed, and asks nobody."""
    from eosframework.application.needed_access import registry_access, relay_access
    from eosframework.cli.acls import commands as commands_of
    from eosframework.cli.acls import print_access
    from eosframework.config import load_settings

    settings = load_settings(config, assignments)
    access = relay_access(settings, topics or ())
    registry = registry_access(settings.outbox.name).name
    if as_json:
        import orjson

        report: dict[str, Any] = {"relay": settings.outbox.name, "acls": list(map(str, access))}
        report["access"] = [one.as_data() for one in access]
        report["acls_to_start_first"] = [f"Topic {registry}: Create"]
        if principal is not None:
            report["acl_commands"] = commands_of(access, settings, principal)
        typer.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())
        return
    typer.echo(f"relay {settings.outbox.name}")
    print_access(access, settings, principal)
    if not topics:
        typer.echo("    and Write on each topic that is published to; name them with --topic")
    typer.echo(f"  the first start needs Create on Topic {registry} besides, unless it is there")


@commands.command()
def reconcile(
    config: ConfigOption = None,
    assignments: SetOption = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Send what was not sent, and set the position.")
    ] = False,
    uncertain: Annotated[
        str | None,
        typer.Option(
            "--uncertain",
            metavar="send|skip",
            help="What to do with messages that a topic may have removed since they were sent.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the outbox with what Kafka holds, after the database came into another history.

    Without --yes nothing is changed.
    """
    from eosframework.config import load_settings
    from eosframework.errors import ConfigurationError
    from eosframework.process.logs import configure_logs
    from eosframework.runtime.outbox_relay import reconciler

    if uncertain not in (None, "send", "skip"):
        raise ConfigurationError(f"--uncertain {uncertain!r}: expected send or skip")
    settings = load_settings(config, assignments)
    configure_logs(settings.log)
    with reconciler(settings) as opened:
        comparison = opened.compare()
        notes = opened.notes()
        if yes:
            leaves("a part may be sent; run the same command again, which finds in Kafka what was")
        settled = yes and (not comparison.uncertain or uncertain is not None)
        if settled:
            comparison = opened.settle(uncertain=uncertain == "send")
    if yes and not settled:
        raise ConfigurationError(
            f"{sum(comparison.uncertain.values())} messages may have been sent and removed from "
            f"their topic since, so nothing was changed; decide with --uncertain send or "
            f"--uncertain skip"
        )
    if as_json:
        import orjson

        typer.echo(orjson.dumps(_report(comparison, notes, settled)).decode())
    else:
        typer.echo(_text(settings.outbox.name, comparison, notes, settled))


def _report(comparison: Comparison, notes: list[str], settled: bool) -> dict[str, Any]:
    from eosframework.outbox.reconciliation import described

    return {
        "by": comparison.by,
        "sent": comparison.sent,
        "missing": comparison.missing,
        "uncertain": comparison.uncertain,
        "first": list(described(comparison.first)),
        "notes": notes,
        "settled": settled,
    }


def _text(name: str, comparison: Comparison, notes: list[str], settled: bool) -> str:
    from eosframework.outbox.reconciliation import described

    told_by = {
        "position": "by the relay's position",
        "kafka": "by the ids of the messages in Kafka",
    }[comparison.by]
    lines = [
        f"outbox of relay {name!r}: {comparison.sent} messages were sent, {comparison.total} were "
        f"not ({told_by})"
    ]
    for topic, count in sorted(comparison.missing.items()):
        doubt = comparison.uncertain.get(topic, 0)
        hint = f", {doubt} of them may have been, and removed since" if doubt else ""
        lines.append(f"  {topic}: {count} not sent{hint}")
    for message in described(comparison.first):
        key = "without key" if message["key"] is None else f"key {message['key']!r}"
        lines.append(f"    {message['number']}: {message['topic']}, {key}, id {message['id']}")
    lines += [f"note: {note}" for note in notes]
    if settled:
        lines.append("they were sent and the position is set; relay-outbox goes on behind it")
    else:
        lines.append("nothing was changed; with --yes they are sent and the position is set")
    return "\n".join(lines)
