"""The part of `eosframework errors` that is about a schema registry."""

from __future__ import annotations

from typing import Any

_HEAD = """
## Answers of a schema registry

Generated from `eosframework/kafka/schema_registry/registry_answers.yaml`. An answer goes by the
registry's own code, else by its HTTP status. *Read*: a value names the schema that it was
written with. *Write*: the application writes with a schema of its own.

| action | raised as | the process |
| --- | --- | --- |
"""


def as_data() -> dict[str, Any]:
    """Return the table for programs."""
    from eosframework.kafka.schema_registry.registry_answers import table

    rows = [
        {
            "codes": list(answer.codes),
            "meaning": answer.meaning,
            "mend": answer.mend,
            **{str(use): action for use, action in answer.actions.items()},
        }
        for answer in table().answers
    ]
    actions = {str(action): process for action, process in table().processes.items()}
    return {"schema_registry": {"actions": actions, "answers": rows}}


def markdown() -> str:
    """Return the part of docs/errors.md."""
    from eosframework.kafka.schema_registry.registry_answers import OTHER, Use, table

    lines = [
        f"| **{action}** | {table().raised[action] or 'what the client raises'} | {process} |"
        for action, process in table().processes.items()
    ]
    lines += ["", "| answer | read | write | meaning |", "| --- | --- | --- | --- |"]
    for answer in table().answers:
        codes = "any other, or none" if OTHER in answer.codes else ", ".join(answer.codes)
        read, write = answer.actions[Use.READ], answer.actions[Use.WRITE]
        mend = f". To mend it: {answer.mend}" if answer.mend else ""
        lines.append(f"| {codes} | **{read}** | **{write}** | {answer.meaning}{mend} |")
    return _HEAD + "\n".join(lines) + "\n"
