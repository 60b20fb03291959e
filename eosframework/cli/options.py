"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AppArgument = Annotated[
    str,
    typer.Argument(
        metavar="APP",
        help="The topology: a .yaml file, a .py file or package.module:attribute.",
        show_default=False,
    ),
]

ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="A YAML file with settings.")
]

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="One setting, for example worker.commit_interval_seconds=0.2. Repeatable.",
    ),
]

JobOption = Annotated[
    str, typer.Option("--job", metavar="NAME", help="Name of the backfill job.", show_default=False)
]

SuffixOption = Annotated[
    str | None,
    typer.Option(
        "--suffix",
        metavar="NAME",
        help="Of the same topology beside it, which `backfill run --suffix` fills.",
    ),
]

MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master", metavar="URL", help="Spark's. Default: this machine, or spark-submit's."
    ),
]

SparkOption = Annotated[
    list[str] | None,
    typer.Option(
        "--spark",
        metavar="KEY=VALUE",
        help="One setting of Spark, spark.…, or of its Kafka client, kafka.… Repeatable.",
    ),
]

PrincipalOption = Annotated[
    str | None,
    typer.Option(
        "--principal",
        metavar="User:NAME",
        help="Print the commands of Kafka's tools that grant this one the ACLs.",
    ),
]

YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")
]

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


def parse_assignments(assignments: list[str], *, example: str) -> dict[str, str]:
    """Read the KEY=VALUE of a server's own settings.

    Raises:
        ConfigurationError: one of them is not KEY=VALUE.
    """
    from eosframework.errors import ConfigurationError

    properties: dict[str, str] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise ConfigurationError(
                f"--set {assignment!r} is not KEY=VALUE, for example {example}"
            )
        properties[name.strip()] = value
    return properties
