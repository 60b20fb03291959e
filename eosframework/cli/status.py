"""`eosframework status`: the members, tasks and lag of an application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from eosframework.cli import app
from eosframework.cli.cluster import open_application
from eosframework.cli.options import AppArgument, JsonOption, SettingsOptions, with_settings
from eosframework.cli.stdout import print_report

if TYPE_CHECKING:
    from eosframework.application.composition.application_status import (
        ApplicationStatus,
        TaskStatus,
    )


@app.command(epilog="Example: eosframework status topology.yaml --ask 127.0.0.1:9400")
@with_settings
def status(
    options: SettingsOptions,
    app_name: AppArgument,
    addresses: Annotated[
        list[str] | None,
        typer.Option(
            "--ask",
            metavar="HOST:PORT",
            help="Also ask a process at its HTTP address. Repeatable.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the members, tasks and lag of an application.

    Kafka reports members, committed offsets and open transactions. A process that is asked with
    --ask reports the states of its tasks, and the reasons if it is not ready.
    """
    from eosframework.application.composition.application_status import asked, overview

    opened = open_application(app_name, options)
    found = overview(opened)
    answers = {address: asked(address) for address in addresses or ()}
    print_report(_report(found, answers), "\n".join(_lines(found, answers)), as_json=as_json)


def _report(found: ApplicationStatus, answers: dict[str, Any]) -> dict[str, Any]:
    return {**found.as_data(), "asked": answers}


def _lines(found: ApplicationStatus, answers: dict[str, Any]) -> list[str]:
    lag = sum(task.lag for task in found.tasks)
    count = sum(len(members) for members in found.members.values())
    lines = [
        f"{found.application}: {_counted(count, 'member')}, {_counted(len(found.tasks), 'task')}, "
        f"lag {lag:,}"
    ]
    for process, members in found.members.items():
        for member in members:
            given = _counted(len(member.partitions), "partition")
            address = found.addresses.get(member.name)
            http = "" if address is None else f", http {address}"
            lines.append(f"  {member.name} on {member.host}: {process}, {given}{http}")
    states = {
        (answer["process"], task["task"]): task["state"]
        for answer in answers.values()
        for task in answer.get("tasks", ())
    }
    width = max((len(task.task) for task in found.tasks), default=0)
    lines += [_line(task, width, states.get((task.process, task.task))) for task in found.tasks]
    lines += [f"{failure.task} is stopped: {failure.error}" for failure in found.failures]
    lines += [f"backfill job {job.name}: {job}" for job in found.jobs]
    for address, answer in answers.items():
        reasons = "; ".join(answer["reasons"])
        lines.append(f"{address}: {'ready' if answer['ready'] else f'not ready: {reasons}'}")
    return lines


def _line(task: TaskStatus, width: int, state: str | None) -> str:
    owner = "no owner" if task.owner is None else f"{task.owner}"
    held = f", {task.held_back:,} held back by an open transaction" if task.held_back else ""
    never = all(partition.committed is None for partition in task.partitions)
    return (
        f"{task.task:<{width}}  {owner}{f', {state}' if state else ''}, lag {task.lag:,}{held}"
        f"{', never committed' if never else ''}"
    )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
