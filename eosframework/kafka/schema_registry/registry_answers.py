"""Table of a schema registry's answers, with the reaction to each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from eosframework.serialization.yaml_text import read_table

OTHER = "none"
"""The code of all answers without a row of their own."""


class Use(StrEnum):
    """The use of a schema: reading or writing."""

    READ = "read"
    WRITE = "write"


class Action(StrEnum):
    """The reaction of a running process to an answer."""

    WAIT = "wait"
    RECORD = "record"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Answer:
    """A row of the table.

    Args:
        codes: of the registry, HTTP statuses, or classes of these such as `5xx`.
        fix: the fix that is needed where the process ends; None: it never does.
    """

    codes: tuple[str, ...]
    meaning: str
    actions: Mapping[Use, Action]
    fix: str | None


@dataclass(frozen=True, slots=True)
class Table:
    """All rows, and the description of each action."""

    answers: tuple[Answer, ...]
    processes: Mapping[Action, str]
    raised: Mapping[Action, str | None]


@cache
def table() -> Table:
    """Return the table as it is shipped."""
    package = "eosframework.kafka.schema_registry"
    content = read_table(package, "registry_answers.yaml", dict[str, Any])
    answers = [
        Answer(
            codes=tuple(str(code) for code in row["codes"]),
            meaning=row["meaning"],
            actions={use: Action(row[use]) for use in Use},
            fix=row.get("fix"),
        )
        for row in content["answers"]
    ]
    actions = content["actions"]
    return Table(
        answers=tuple(answers),
        processes={action: actions[action]["process"] for action in Action},
        raised={action: actions[action]["raises"] for action in Action},
    )


def answer_of(code: object, status: object) -> Answer:
    """Return the row of an answer.

    Args:
        code: the registry's own; if it is not a number, it gave none.
        status: of HTTP; likewise.
    """
    by_code = {name: answer for answer in table().answers for name in answer.codes}
    status_class = f"{status // 100}xx" if isinstance(status, int) else OTHER
    for name in (str(code), str(status), status_class):
        if name in by_code:
            return by_code[name]
    return by_code[OTHER]
