"""`eosframework errors`: the failure taxonomy, for people, programs and the documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from eosframework.cli import app
from eosframework.cli.options import JsonOption
from eosframework.errors import ConfigurationError

if TYPE_CHECKING:
    from eosframework.kafka.taxonomy import Failure, Table

_HEAD = """\
# Errors of the transactional calls

Generated from `eosframework/kafka/failures.yaml` by `eosframework errors --markdown`.
Look a code up by librdkafka's name or by the one that Java or older documents use, and one of
PostgreSQL's ([below](#errors-of-the-database)) by its SQLSTATE.

"""

_NOTES = """
## How an error is classified

The code's row decides, not librdkafka's flags: `_FENCED` is flagged fatal, `_FATAL` is not, and a
commit that timed out is flagged retriable although it may have been done. Flags decide only for a
code without a row, and they overrule `retriable` where librdkafka has given up (requires_abort,
fatal). At `commit` nothing is merely retriable: the broker may have done it.

*Raised* marks the calls out of which a test makes a real broker raise the error. The others follow
from the sources named.

## Whose error it is

What a record, a result or the framework is to blame for goes different ways; nothing else decides
over `on_error`.

"""

_WHOSE = (
    (
        "a user's function raises or chooses a topic that does not exist, or a value does not "
        "decode or encode, while a record is run",
        "the record",
        "its outputs and state changes are taken back; the record goes the way of the "
        "step's `on_error`",
    ),
    (
        "the event time that a function gives lies more than `worker.max_event_time_ahead` after "
        "the record's own timestamp",
        "the record",
        "the same, before stream time moves; `on_error: fail` ends the worker",
    ),
    (
        "a function or a value fails so in what follows a window that closes, a timer, a join "
        "without a partner, or a node that gives its records at the commit",
        "the node's result",
        "the same, of the result: with `skip` or `dead_letter` its window is closed and "
        "the record behind which it went out is run; the dead letter names the store's "
        "changelog as where it comes from",
    ),
    (
        "a record would meet more others in a join of streams, or give its key more sliding or "
        "session windows, than `worker.hot_key_limit` (KeyTooHot)",
        "the record",
        "as if a function had raised; the others of its key are not affected",
    ),
    (
        "a topic is known to refuse an output: its value is larger than max.message.bytes "
        "(without compression), or its timestamp is outside message.timestamp.before.max.ms or "
        "message.timestamp.after.max.ms by five minutes",
        "the record that gave it, or the node's result",
        "nothing is produced of it; as above, with the `on_error` of the record's source",
    ),
    (
        "the brokers refuse an output (*narrow*)",
        "the record that gave it, or the node's result",
        "the transaction is tried again in halves and then in parts until it is known "
        "which; then as above",
    ),
    (
        "a record, or what follows at a commit, outlasts its transaction behind others",
        "nobody",
        "the transaction is dropped; the same goes on with fewer records to a transaction",
    ),
    (
        "a record, or what follows at a commit of a single record, outlasts a "
        "transaction of its own",
        "the function",
        "the worker ends, names it, and commits nothing of it, whatever `on_error` says",
    ),
    (
        "a store, the registry or a broker fails while a record is run; or the schema registry, "
        "by the table of its answers below",
        "the framework",
        "the transaction is dropped with everything in it, whatever `on_error` says; it "
        "is tried again, or the worker ends, by the tables above",
    ),
    (
        "any other exception leaves a run",
        "the framework",
        "the transaction is dropped with everything in it; the worker ends",
    ),
)
"""What an error is of, and what follows: rows of a table."""


@app.command()
def errors(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE",
            help="Only this one: a name (_FENCED, InvalidPidMapping), a number, or a SQLSTATE of "
            "PostgreSQL's (40P01).",
        ),
    ] = None,
    as_json: JsonOption = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", hidden=True)] = False,
) -> None:
    """Print what each error of Kafka or PostgreSQL means and what a worker does."""
    from eosframework.cli import errors_database as database
    from eosframework.cli import errors_schemas as schemas
    from eosframework.kafka.taxonomy import table

    content = table()
    states = database.find(code)
    chosen = list(content.failures.values()) if code is None else _named(content, code)
    if not (chosen or states):
        raise ConfigurationError(_unknown(content, code or ""))
    if as_json:
        import orjson

        report = as_data(content, chosen) | database.as_data(states)
        report |= schemas.as_data() if code is None else {}
        typer.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())
    elif as_markdown:
        typer.echo(markdown(content), nl=False)
    else:
        texts = [_text(failure) for failure in chosen]
        typer.echo("\n\n".join([*texts, *database.texts(states)]))


def _named(content: Table, code: str) -> list[Failure]:
    """Return what goes by this name or number, old names included."""
    wanted = code.casefold().lstrip("_")
    return [
        failure
        for number, failure in content.failures.items()
        if code == str(number)
        or wanted in {name.casefold().lstrip("_") for name in (failure.name, *failure.aliases)}
    ]


def _unknown(content: Table, code: str) -> str:
    from difflib import get_close_matches

    names = [name for row in content.failures.values() for name in (row.name, *row.aliases)]
    close = get_close_matches(code, names, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(close)}?" if close else "see `eosframework errors`"
    return f"there is no error {code!r} in the table; {hint}"


def as_data(content: Table, chosen: list[Failure]) -> dict[str, Any]:
    """Return the chosen rows, one for each call, with what the actions mean."""
    return {
        "actions": {
            action.name: {
                "category": action.category,
                "data": action.data,
                "raises": action.raises,
                "worker": action.worker,
            }
            for action in content.actions.values()
        },
        "errors": [
            {
                "name": failure.name,
                "code": failure.number,
                "aliases": list(failure.aliases),
                "meaning": failure.meaning,
                "mend": failure.mend,
                "source": failure.source,
                "calls": {
                    str(call): {
                        "category": action.category,
                        "action": action.name,
                        "data": action.data,
                        "raised_in_test": call in failure.raised,
                    }
                    for call, action in failure.actions.items()
                },
            }
            for failure in chosen
        ],
        "others": {
            flag: {str(call): action.name for call, action in by_call.items()}
            for flag, by_call in content.others.items()
        },
    }


def _grouped(failure: Failure) -> list[tuple[str, str]]:
    """Return (calls, action) pairs, the action of most calls last, as `other calls`."""
    calls_of: dict[str, list[str]] = {}
    for call, action in failure.actions.items():
        calls_of.setdefault(action.name, []).append(str(call))
    ordered = sorted(calls_of.items(), key=lambda item: len(item[1]))
    if len(ordered) == 1:
        return [("every call", ordered[0][0])]
    rows = [(", ".join(calls), action) for action, calls in ordered[:-1]]
    return [*rows, ("other calls", ordered[-1][0])]


def _text(failure: Failure) -> str:
    names = f" ({', '.join(failure.aliases)})" if failure.aliases else ""
    lines = [f"{failure.name} {failure.number}{names}", f"  {failure.meaning}"]
    actions = {action.name: action for action in failure.actions.values()}
    for calls, name in _grouped(failure):
        lines.append(f"  {calls}: {actions[name].category}: the worker {actions[name].worker}")
    if failure.mend:
        lines.append(f"  to mend it: {failure.mend}")
    lines.append(f"  source: {failure.source}")
    return "\n".join(lines)


def markdown(content: Table) -> str:
    """Return docs/errors.md."""
    lines = ["| code | also known as | call: action | raised | meaning | source |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for failure in content.failures.values():
        calls = "<br>".join(f"{calls}: **{action}**" for calls, action in _grouped(failure))
        raised = ", ".join(str(call) for call in failure.actions if call in failure.raised)
        meaning = failure.meaning + (f". To mend it: {failure.mend}" if failure.mend else "")
        lines.append(
            f"| `{failure.name}` {failure.number} | {', '.join(failure.aliases)} | {calls} "
            f"| {raised or 'no'} | {_escaped(meaning)} | {_escaped(failure.source)} |"
        )
    for flag, by_call in content.others.items():
        calls = ", ".join(f"{call}: **{action.name}**" for call, action in by_call.items())
        lines.append(f"| any other, flagged {flag} | | {calls} | no | | |")
    from eosframework.cli import errors_database as database
    from eosframework.cli import errors_schemas as schemas

    errors = "\n## Errors\n\n" + "\n".join(lines) + "\n"
    return (
        _HEAD
        + _actions_table(content)
        + errors
        + _NOTES
        + _whose()
        + schemas.markdown()
        + database.markdown()
    )


def _whose() -> str:
    rows = [("the error", "is of", "what follows"), ("---", "---", "---"), *_WHOSE]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _actions_table(content: Table) -> str:
    lines = ["## Actions", "", "| action | category | raised as | the worker |"]
    lines.append("| --- | --- | --- | --- |")
    for action in content.actions.values():
        category = f"{action.category} (data)" if action.data else str(action.category)
        lines.append(
            f"| **{action.name}** | {category} | {action.raises or 'nothing'} | {action.worker} |"
        )
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("{transactional_id}", "*id*")
