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

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
