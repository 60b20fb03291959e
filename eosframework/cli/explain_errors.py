"""`eosframework explain errors`: the errors of Kafka, PostgreSQL and schema registries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import typer

from eosframework.cli.stdout import print_json
from eosframework.errors import ConfigurationError

if TYPE_CHECKING:
    from eosframework.kafka.taxonomy import Failure, Table

States = Mapping[str, Mapping[str, str]]
"""Rows of PostgreSQL's table by SQLSTATE, or by its first two characters for a whole class."""

_HEAD = """\
# Errors of the transactional calls

Generated from `eosframework/kafka/failures.yaml` by `eosframework explain errors --markdown`.
Look up a code by librdkafka's name or by the name in Java and in older documents, and an error of
PostgreSQL ([below](#errors-of-the-database)) by its SQLSTATE.

"""

_CLASSIFICATION = """
## How an error is classified

The code's row decides, not librdkafka's flags: `_FENCED` is flagged fatal, `_FATAL` is not, and a
commit that timed out is flagged retriable although the broker may have completed it. Flags decide
only for a code without a row, and they override `retriable` if librdkafka has given up
(requires_abort, fatal). At `commit` no error is merely retriable: the broker may have completed it.

*Raised* lists the calls in which a test makes a real broker raise the error. The others follow from
the sources named.

## Causes of an error

The cause of an error decides how it is handled: the record, a node's result, or the framework.
`on_error` applies to the first two only.

| the error | its cause | handling |
| --- | --- | --- |
"""

_CAUSES = (
    (
        "a user's function raises or chooses a topic that does not exist, or a value cannot be "
        "decoded or encoded, while a record is processed",
        "the record",
        "its outputs and state changes are rolled back; the record is handled by the step's "
        "`on_error`",
    ),
    (
        "the event time that a function returns is more than `worker.max_event_time_ahead` after "
        "the record's own timestamp",
        "the record",
        "the same, before stream time advances; `on_error: fail` ends the worker",
    ),
    (
        "a function or a value fails in the steps after a window that closes, a timer, a join "
        "without a partner, or a node that emits its records at the commit",
        "the node's result",
        "the same, for the result: with `skip` or `dead_letter` its window is closed, and the "
        "record that triggered it is processed; the dead letter names the store's changelog as "
        "its source",
    ),
    (
        "a record would be joined with more records of another stream, or give its key more "
        "sliding or session windows, than `worker.hot_key_limit` (KeyTooHot)",
        "the record",
        "as if a function had raised; other records of its key are not affected",
    ),
    (
        "a topic is known to reject an output: its value is larger than max.message.bytes "
        "(without compression), or its timestamp is outside message.timestamp.before.max.ms or "
        "message.timestamp.after.max.ms by five minutes",
        "the record that produced it, or the node's result",
        "the output is not produced; then as above, with the `on_error` of the record's source",
    ),
    (
        "the brokers reject an output (*narrow*)",
        "the record that produced it, or the node's result",
        "the transaction is retried in halves (bisected) until the record is found; then as above",
    ),
    (
        "a record, or the work at a commit, outlasts a transaction that other records share",
        "none of them",
        "the transaction is aborted and retried with fewer records to a transaction",
    ),
    (
        "a record, or the work at the commit of a single record, outlasts a transaction of its own",
        "the function",
        "the worker ends, names the function, and commits nothing of it, regardless of `on_error`",
    ),
    (
        "a store, the control topic or a broker fails while a record is processed; or the schema "
        "registry, by the table of its answers below",
        "the framework",
        "the transaction is aborted with all of its records, regardless of `on_error`; it is "
        "retried, or the worker ends, by the tables above",
    ),
    (
        "any other exception",
        "the framework",
        "the transaction is aborted with all of its records; the worker ends",
    ),
)

_SCHEMAS_HEAD = """
## Answers of a schema registry

Generated from `eosframework/kafka/schema_registry/registry_answers.yaml`. An answer is classified
by the registry's own code, else by its HTTP status. *Read*: a value names the schema that it was
written with. *Write*: the application writes with a schema of its own.

"""

_DATABASE_HEAD = """
## Errors of the database

Generated from `eosframework/postgres/failures.yaml`. Two characters stand for all codes that begin
with them and have no row of their own (PostgreSQL 18, appendix A).

"""

_DATABASE_NOTES = """
A COMMIT that the server answers with an error is rolled back. A COMMIT without an answer, or with
one that ends the connection (FATAL), may be done: the database is *unavailable*, and only a new
claim shows the outcome.
"""


def explain(code: str | None, *, as_json: bool, as_markdown: bool) -> None:
    """Print the meaning of one error or of all, and the worker's reaction.

    Raises:
        ConfigurationError: no table has this code.
    """
    from eosframework.kafka.taxonomy import table

    content = table()
    states = _states(code)
    chosen = list(content.failures.values()) if code is None else _named(content, code)
    if not (chosen or states):
        raise ConfigurationError(_unknown(content, code or ""))
    if as_json:
        report = _kafka_data(content, chosen) | _database_data(states)
        print_json(report | (_schemas_data() if code is None else {}))
    elif as_markdown:
        typer.echo(errors_page(content), nl=False)
    else:
        typer.echo("\n\n".join([*map(_text, chosen), *_database_texts(states)]))


def _named(content: Table, code: str) -> list[Failure]:
    """Return the errors with this name, older name or number."""
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
    hint = f"did you mean {', '.join(close)}?" if close else "see `eosframework explain errors`"
    return f"there is no error {code!r} in the table; {hint}"


def _kafka_data(content: Table, chosen: list[Failure]) -> dict[str, Any]:
    """Return the chosen errors with an action for each call, and the meaning of each action."""
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
                "fix": failure.fix,
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
    """Return (calls, action) pairs; the action of most calls comes last, as `other calls`."""
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
    if failure.fix:
        lines.append(f"  to fix it: {failure.fix}")
    lines.append(f"  source: {failure.source}")
    return "\n".join(lines)


def errors_page(content: Table) -> str:
    """Return docs/errors.md."""
    return "".join(
        [
            _HEAD,
            "## Actions\n\n",
            *_table(
                ("action", "category", "raised as", "the worker"),
                (
                    (
                        f"**{action.name}**",
                        f"{action.category} (data)" if action.data else action.category,
                        action.raises or "nothing",
                        action.worker,
                    )
                    for action in content.actions.values()
                ),
            ),
            "\n## Errors\n\n",
            *_table(
                ("code", "also known as", "call: action", "raised", "meaning", "source"),
                _error_rows(content),
            ),
            _CLASSIFICATION,
            *(f"| {' | '.join(row)} |\n" for row in _CAUSES),
            _SCHEMAS_HEAD,
            *_schema_tables(),
            _DATABASE_HEAD,
            *_database_tables(),
            _DATABASE_NOTES,
        ]
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterable[str]:
    yield f"| {' | '.join(head)} |\n"
    yield f"|{' --- |' * len(head)}\n"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |\n"


def _error_rows(content: Table) -> Iterable[Sequence[str]]:
    for failure in content.failures.values():
        calls = "<br>".join(f"{calls}: **{action}**" for calls, action in _grouped(failure))
        raised = ", ".join(str(call) for call in failure.actions if call in failure.raised)
        yield (
            f"`{failure.name}` {failure.number}",
            ", ".join(failure.aliases),
            calls,
            raised or "no",
            _escaped(f"{failure.meaning}{_fix(failure.fix)}"),
            _escaped(failure.source),
        )
    for flag, by_call in content.others.items():
        calls = ", ".join(f"{call}: **{action.name}**" for call, action in by_call.items())
        yield f"any other, flagged {flag}", "", calls, "no", "", ""


def _fix(hint: str | None) -> str:
    return f". To fix it: {hint}" if hint else ""


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("{transactional_id}", "*id*")


def _schemas_data() -> dict[str, Any]:
    from eosframework.kafka.schema_registry.registry_answers import table

    rows = [
        {
            "codes": list(answer.codes),
            "meaning": answer.meaning,
            "fix": answer.fix,
            **{str(use): action for use, action in answer.actions.items()},
        }
        for answer in table().answers
    ]
    actions = {str(action): process for action, process in table().processes.items()}
    return {"schema_registry": {"actions": actions, "answers": rows}}


def _schema_tables() -> Iterable[str]:
    from eosframework.kafka.schema_registry.registry_answers import OTHER, Use, table

    yield from _table(
        ("action", "raised as", "the process"),
        (
            (f"**{action}**", table().raised[action] or "the client's own exception", process)
            for action, process in table().processes.items()
        ),
    )
    yield "\n"
    yield from _table(
        ("answer", "read", "write", "meaning"),
        (
            (
                "any other, or none" if OTHER in answer.codes else ", ".join(answer.codes),
                f"**{answer.actions[Use.READ]}**",
                f"**{answer.actions[Use.WRITE]}**",
                f"{answer.meaning}{_fix(answer.fix)}",
            )
            for answer in table().answers
        ),
    )


def _states(code: str | None) -> States:
    """Return the row of a SQLSTATE, or of its class if it has no row; None: all rows."""
    states: States = _database()["states"]
    if code is None:
        return states
    wanted = code.upper()
    if len(wanted) not in (2, 5):
        return {}
    known = [state for state in (wanted, wanted[:2]) if state in states]
    return {state: states[state] for state in known[:1]}


def _database_texts(states: States) -> list[str]:
    categories = _database()["categories"]
    found: list[str] = []
    for state, row in states.items():
        category = row["category"]
        lines = [f"SQLSTATE {_shown(state)}", f"  {row['meaning']}"]
        lines.append(f"  {category}: the table writer or relay {categories[category]['task']}")
        if fix := row.get("fix"):
            lines.append(f"  to fix it: {fix}")
        found.append("\n".join(lines))
    return found


def _database_data(states: States) -> dict[str, Any]:
    rows = [
        {
            "state": state,
            "category": row["category"],
            "meaning": row["meaning"],
            "fix": row.get("fix"),
        }
        for state, row in states.items()
    ]
    return {"database": {"categories": _database()["categories"], "states": rows}}


def _database_tables() -> Iterable[str]:
    table = _database()
    yield from _table(
        ("category", "raised as", "the table writer or relay"),
        ((f"**{name}**", row["raises"], row["task"]) for name, row in table["categories"].items()),
    )
    yield "\n"
    states = [
        (f"`{_shown(state)}`", f"**{row['category']}**", f"{row['meaning']}{_fix(row.get('fix'))}")
        for state, row in table["states"].items()
    ]
    others = [
        (f"any other, {name}", f"**{row['category']}**", row["meaning"])
        for name, row in table["others"].items()
    ]
    yield from _table(("SQLSTATE", "category", "meaning"), [*states, *others])


@cache
def _database() -> dict[str, Any]:
    from importlib.resources import files

    import yaml

    file = files("eosframework").joinpath("postgres", "failures.yaml")
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def _shown(state: str) -> str:
    return f"{state}xxx" if len(state) == 2 else state
