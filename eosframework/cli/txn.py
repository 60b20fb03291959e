"""`eosframework txn`: show the transactions of a cluster, and end hanging ones."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from eosframework.cli import group
from eosframework.cli.cluster import application_named
from eosframework.cli.options import (
    JsonOption,
    SettingsOptions,
    YesOption,
    confirmed,
    with_settings,
)
from eosframework.cli.stdout import print_report
from eosframework.errors import ConfigurationError
from eosframework.process.interrupts import note_remains

if TYPE_CHECKING:
    from eosframework.config import KafkaSettings
    from eosframework.kafka.inspect.ending import Plan
    from eosframework.kafka.inspect.formats import TxnState
    from eosframework.kafka.inspect.wire import Wire

commands = group("txn", "Show, trace and end transactions.")

IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="A transactional id.", show_default=False)
]


@commands.command("list")
@with_settings
def list_(
    options: SettingsOptions,
    app_name: Annotated[
        str | None,
        typer.Argument(
            metavar="APP",
            help="Only the ids of this application: its topology, as in other commands, or its "
            "name. Default: all.",
            show_default=False,
        ),
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATE", help="Only ids in this state, for example Ongoing. Repeatable."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print transactional ids: state, producer, coordinator, owner."""
    from eosframework.cli import txn_text
    from eosframework.kafka.inspect import transaction_data
    from eosframework.kafka.inspect.coordinators import list_transactions, require_authority
    from eosframework.txnid import prefix

    states = _states(state or [])
    application = app_name and application_named(app_name)
    derived = prefix(application) if application else ""
    with _connected(options) as (wire, _):
        listed = [
            entry
            for entry in list_transactions(wire, states=states)
            if entry.transactional_id.startswith(derived)
            or (entry.lease is not None and entry.lease.application == application)
        ]
        if not listed:
            require_authority(wire, application)
    print_report(
        {"transactions": [transaction_data.listed_data(entry) for entry in listed]},
        txn_text.listed(listed),
        as_json=as_json,
    )


@commands.command()
@with_settings
def describe(
    options: SettingsOptions,
    transactional_id: IdArgument,
    as_json: JsonOption = False,
) -> None:
    """Print an id's state and the partitions of its transaction."""
    from eosframework.cli import txn_text
    from eosframework.kafka.inspect import transaction_data
    from eosframework.kafka.inspect.coordinators import describe_transaction
    from eosframework.kafka.inspect.hanging import lags

    with _connected(options) as (wire, _):
        described = describe_transaction(wire, transactional_id)
        held_back = lags(wire, described.partitions)
    now = datetime.now(UTC)
    print_report(
        transaction_data.described_data(described, held_back, now),
        txn_text.described(described, held_back, now),
        as_json=as_json,
    )


@commands.command()
@with_settings
def trace(
    options: SettingsOptions,
    transactional_id: IdArgument,
    last: Annotated[int, typer.Option(min=1, help="Number of transactions.")] = 5,
    as_json: JsonOption = False,
) -> None:
    """Print the history of an id's last transactions.

    It is read from the brokers' internal topics.
    """
    from eosframework.cli import txn_text
    from eosframework.kafka.inspect import transaction_data
    from eosframework.kafka.inspect.transaction_trace import trace as trace_

    with _connected(options) as (wire, _):
        traced = trace_(wire, transactional_id, last)
    print_report(transaction_data.traced_data(traced), txn_text.traced(traced), as_json=as_json)


@commands.command()
@with_settings
def hanging(
    options: SettingsOptions,
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC", help="Only this topic. Repeatable. Default: all."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print hanging transactions, and how many records they block.

    A transaction hangs if no coordinator and no client will end it. The printed command gives it
    the outcome in the coordinators' log.
    """
    from eosframework.cli import txn_text
    from eosframework.kafka.inspect import transaction_data
    from eosframework.kafka.inspect.hanging import find_open

    with _connected(options) as (wire, _):
        findings = find_open(wire, topic or ())
    now = datetime.now(UTC)
    print_report(
        transaction_data.findings_data(findings, now),
        txn_text.findings(findings, now),
        as_json=as_json,
    )


TopicOption = Annotated[str | None, typer.Option(metavar="TOPIC", help="The topic,")]
PartitionOption = Annotated[int | None, typer.Option(help="its partition,")]
ProducerOption = Annotated[
    int | None, typer.Option(help="and the producer with an open transaction in it.")
]


@commands.command(
    epilog="Example: eosframework txn abort --topic orders --partition 0 --producer-id 4711"
)
@with_settings
def abort(
    options: SettingsOptions,
    transactional_id: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="A transactional id.", show_default=False),
    ] = None,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    producer_id: ProducerOption = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Abort even a healthy transaction, or one of unknown outcome."
        ),
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Abort an open transaction: shows the steps and asks.

    Name it by an ID, or by --topic, --partition and --producer-id as `txn hanging` prints them.
    """
    from eosframework.kafka.inspect.ending import plan_by_id

    by_producer = (topic, partition, producer_id)
    if (transactional_id is None) == (by_producer == (None, None, None)):
        raise _unnamed("give an ID, or --topic, --partition and --producer-id")

    def plan(wire: Wire) -> Plan:
        if transactional_id is not None:
            return plan_by_id(wire, transactional_id, force=force)
        return _marker_plan(wire, by_producer, commit=False, force=force)

    _end(options, plan, yes=yes, as_json=as_json)


@commands.command(
    epilog="Example: eosframework txn commit --topic orders --partition 0 --producer-id 4711"
)
@with_settings
def commit(
    options: SettingsOptions,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    producer_id: ProducerOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Commit even a transaction of unknown outcome.")
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write the missing marker of a committed transaction: shows the steps and asks.

    Refused unless its coordinator committed the transaction.
    """
    place = (topic, partition, producer_id)
    _end(
        options,
        lambda wire: _marker_plan(wire, place, commit=True, force=force),
        yes=yes,
        as_json=as_json,
    )


def _marker_plan(
    wire: Wire, place: tuple[str | None, int | None, int | None], *, commit: bool, force: bool
) -> Plan:
    from eosframework.kafka.inspect.ending import plan_by_producer
    from eosframework.records import TopicPartition

    topic, partition, producer_id = place
    if topic is None or partition is None or producer_id is None:
        raise _unnamed("give --topic, --partition and --producer-id")
    return plan_by_producer(
        wire, TopicPartition(topic, partition), producer_id, commit=commit, force=force
    )


def _unnamed(what: str) -> ConfigurationError:
    return ConfigurationError(
        f"name one transaction: {what} as `eosframework txn hanging` prints them"
    )


def _end(
    options: SettingsOptions, planned: Callable[[Wire], Plan], *, yes: bool, as_json: bool
) -> None:
    """Show a plan, ask, and execute it."""
    from eosframework.kafka.inspect.ending import perform

    with _connected(options) as (wire, settings):
        plan = planned(wire)
        for step in plan.steps:
            typer.echo(step, err=as_json)
        if not yes and not confirmed():
            typer.echo("nothing was done", err=True)
            return
        note_remains("it may be ended already; `eosframework txn hanging` lists open transactions")
        outcome = perform(wire, settings, plan)
    print_report({"done": list(plan.steps), "outcome": outcome}, outcome, as_json=as_json)


def _states(names: list[str]) -> list[TxnState]:
    from eosframework.kafka.inspect.formats import TxnState

    by_name = {state.casefold(): state for state in TxnState}
    if wrong := [name for name in names if name.casefold() not in by_name]:
        raise ConfigurationError(
            f"--state {wrong[0]!r} is not a state of a transactional id; use one of "
            f"{', '.join(TxnState)}"
        )
    return [by_name[name.casefold()] for name in names]


@contextmanager
def _connected(options: SettingsOptions) -> Generator[tuple[Wire, KafkaSettings], None, None]:
    """Connect to the cluster of the settings for the length of the block."""
    from eosframework.application.composition.ids import known_leases
    from eosframework.kafka.inspect.wire import Wire

    settings = options.load()
    with Wire(settings.kafka, known_leases(settings)) as wire:
        yield wire, settings.kafka
