"""`eosframework explain errors`: the errors of Kafka, PostgreSQL and schema registries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import typer

from eosframework.cli.pages import page
from eosframework.cli.stdout import print_json
from eosframework.errors import ConfigurationError
from eosframework.serialization.yaml_text import read_table

if TYPE_CHECKING:
    from eosframework.kafka.schema_registry.registry_answers import Answer
    from eosframework.kafka.taxonomy import Action, Failure, Table

States = Mapping[str, Mapping[str, str]]
"""Rows of PostgreSQL's table by SQLSTATE, or by its first two characters for a whole class."""


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
    from eosframework.kafka.schema_registry import registry_answers

    schemas, database = registry_answers.table(), _database()
    return page(
        "errors",
        actions=map(_action_row, content.actions.values()),
        errors=_error_rows(content),
        schema_actions=(
            (f"**{action}**", schemas.raised[action] or "the client's own exception", process)
            for action, process in schemas.processes.items()
        ),
        schema_answers=map(_answer_row, schemas.answers),
        categories=(
            (f"**{name}**", row["raises"], row["task"])
            for name, row in database["categories"].items()
        ),
        states=_state_rows(database),
    )


def _action_row(action: Action) -> Sequence[str]:
    category = f"{action.category} (data)" if action.data else action.category
    return f"**{action.name}**", category, action.raises or "nothing", action.worker


def _error_rows(content: Table) -> Iterable[Sequence[str]]:
    for failure in content.failures.values():
        calls = "<br>".join(f"{calls}: **{action}**" for calls, action in _grouped(failure))
        raised = ", ".join(str(call) for call in failure.actions if call in failure.raised)
        yield (
            f"`{failure.name}` {failure.number}",
            ", ".join(failure.aliases),
            calls,
            raised or "no",
            f"{failure.meaning}{_fix(failure.fix)}".replace("{transactional_id}", "*id*"),
            failure.source,
        )
    for flag, by_call in content.others.items():
        calls = ", ".join(f"{call}: **{action.name}**" for call, action in by_call.items())
        yield f"any other, flagged {flag}", "", calls, "no", "", ""


def _fix(hint: str | None) -> str:
    return f". To fix it: {hint}" if hint else ""


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


def _answer_row(answer: Answer) -> Sequence[str]:
    from eosframework.kafka.schema_registry.registry_answers import OTHER, Use

    return (
        "any other, or none" if OTHER in answer.codes else ", ".join(answer.codes),
        f"**{answer.actions[Use.READ]}**",
        f"**{answer.actions[Use.WRITE]}**",
        f"{answer.meaning}{_fix(answer.fix)}",
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


def _state_rows(database: Mapping[str, Any]) -> Iterable[Sequence[str]]:
    named = {f"`{_shown(state)}`": row for state, row in database["states"].items()}
    named |= {f"by `{name}`": row for name, row in database["functions"].items()}
    named |= {f"none, {name}": row for name, row in database["others"].items()}
    for name, row in named.items():
        yield name, f"**{row['category']}**", f"{row['meaning']}{_fix(row.get('fix'))}"


@cache
def _database() -> dict[str, Any]:
    return read_table("eosframework.postgres.database", "failures.yaml", dict[str, Any])


def _shown(state: str) -> str:
    if state == "*":
        return "any other"
    return f"{state}xxx" if len(state) == 2 else state
