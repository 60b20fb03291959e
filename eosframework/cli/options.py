"""Arguments and options that several commands share."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from eosframework.errors import ConfigurationError

if TYPE_CHECKING:
    from eosframework.config import Settings

_R = TypeVar("_R")

AppArgument = Annotated[
    str,
    typer.Argument(
        metavar="APP",
        help="The topology: a .yaml file, a .py file, file.py:attribute or "
        "package.module:attribute.",
        show_default=False,
    ),
]

_SETTINGS_OPTIONS = {
    "config": Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Settings: a YAML file, or a .properties file of a Kafka client.",
        ),
    ],
    "assignments": Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="One setting, for example worker.commit_interval_seconds=0.2. Repeatable.",
        ),
    ],
    "bootstrap_server": Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            metavar="HOST:PORT",
            help="Brokers to connect to first, separated by commas. Overrides "
            "kafka.bootstrap_servers.",
        ),
    ],
    "log_format": Annotated[
        str | None,
        typer.Option(
            "--log-format",
            metavar="auto|console|json",
            help="Form of log events. Overrides log.format.",
        ),
    ],
}
"""The options of every command that reads settings, by the name of their parameter."""

JobOption = Annotated[
    str, typer.Option("--job", metavar="NAME", help="Name of the backfill job.", show_default=False)
]


def suffix_option(help: str) -> Any:
    """Return the option that names the suffix of a job's topics and tables."""
    return typer.Option("--suffix", metavar="NAME", help=help, show_default=False)


SuffixOption = Annotated[
    str | None,
    suffix_option("Use the topics and tables that `backfill run --suffix NAME` writes."),
]

MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Spark master. Default: this machine, or the one that spark-submit names.",
    ),
]

SparkOption = Annotated[
    list[str] | None,
    typer.Option(
        "--spark",
        metavar="KEY=VALUE",
        help="One property of Spark (spark.…) or of its Kafka client (kafka.…). Repeatable.",
    ),
]

AclsOption = Annotated[
    bool, typer.Option("--acls", help="Print the ACLs, which a cluster with an authorizer needs.")
]

PrincipalOption = Annotated[
    str | None,
    typer.Option(
        "--principal",
        metavar="User:NAME",
        help="Print the kafka-acls commands that grant the ACLs to this principal.",
    ),
]

YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Print the changes without making them.")
]

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]

MarkdownOption = Annotated[bool, typer.Option("--markdown", hidden=True)]


@dataclass(frozen=True, slots=True)
class SettingsOptions:
    """The values of the options that settings come from."""

    config: Path | None
    assignments: list[str] | None
    bootstrap_server: str | None
    log_format: str | None

    def load(self) -> Settings:
        """Return the settings; an option of its own overrides every other source.

        Raises:
            ConfigurationError: names the setting, its value and the values that are allowed.
        """
        from eosframework.config import load_settings

        assignments = list(self.assignments or ())
        if self.bootstrap_server is not None:
            if not self.bootstrap_server.strip():
                raise ConfigurationError("--bootstrap-server is empty; expected HOST:PORT")
            assignments.append(f"kafka.bootstrap_servers={self.bootstrap_server}")
        if self.log_format is not None:
            assignments.append(f"log.format={self.log_format}")
        return load_settings(self.config, assignments)


def with_settings(command: Callable[..., _R]) -> Callable[..., _R]:
    """Replace a command's parameter `options` by the settings options, which typer parses."""
    declared = inspect.signature(command, eval_str=True)
    own = [p for name, p in declared.parameters.items() if name not in ("options", "as_json")]
    last = [p for name, p in declared.parameters.items() if name == "as_json"]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    shared = [
        inspect.Parameter(name, kind, default=None, annotation=annotation)
        for name, annotation in _SETTINGS_OPTIONS.items()
    ]
    parameters = [*own, *shared, *last]

    @functools.wraps(command)
    def run(**values: Any) -> _R:
        options = SettingsOptions(**{name: values.pop(name) for name in _SETTINGS_OPTIONS})
        return command(options=options, **values)

    # typer reads both: the names and their order from the first, types from the second.
    run.__dict__["__signature__"] = declared.replace(parameters=parameters)
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def parse_assignments(
    assignments: list[str], *, example: str, option: str = "--set"
) -> dict[str, str]:
    """Return KEY=VALUE options, which set properties of a server or of a topic.

    Raises:
        ConfigurationError: one of them is not KEY=VALUE.
    """
    properties: dict[str, str] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise ConfigurationError(
                f"{option} {assignment!r} is not KEY=VALUE, for example {example}"
            )
        properties[name.strip()] = value
    return properties


def confirmed() -> bool:
    """Ask on stderr whether to continue, so that stdout can hold one JSON object.

    Raises:
        ConfigurationError: stdin is closed or at its end.
    """
    typer.echo("Do this? [y/N] ", nl=False, err=True)
    # A process that was started with a closed stdin has none.
    answer = sys.stdin.readline() if sys.stdin is not None else ""
    if not answer:
        typer.echo(err=True)
        raise ConfigurationError(
            "no answer on stdin, so nothing was done; give --yes to skip the question"
        )
    return answer.strip().casefold() in ("y", "yes")
