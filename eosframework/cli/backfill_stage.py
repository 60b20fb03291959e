"""`eosframework backfill stage`: copy a source without a repeatable order to Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eosframework.cli.options import JsonOption, MasterOption, SparkOption
from eosframework.cli.stdout import print_report
from eosframework.process.interrupts import cleaning_up, note_remains

if TYPE_CHECKING:
    from collections.abc import Sequence


def stage(
    kind: Annotated[
        str, typer.Argument(metavar="FORMAT", help="Data source of Spark, for example jdbc.")
    ],
    directory: Annotated[
        str,
        typer.Argument(
            metavar="DIRECTORY",
            help="For the files, on a file system that every executor can read.",
        ),
    ],
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="Option of the data source. Repeatable; overrides the file."
        ),
    ] = None,
    options_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Properties file with options, for passwords.", show_default=False
        ),
    ] = None,
    master: MasterOption = None,
    spark: SparkOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy a source without a repeatable order, such as a table, to Parquet files.

    `backfill run --source TOPIC=parquet:DIRECTORY` reads them. A complete copy is not repeated.
    """
    from eosframework.backfill.api import spark_options
    from eosframework.backfill.spark.spark_session import (
        check_packages,
        quiet_bridge,
        quiet_server,
        spark_session,
        stop_session,
    )
    from eosframework.backfill.spark.staging import stage_source

    options = _options(option or (), options_file)
    properties = spark_options(spark or ())
    check_packages()
    quiet_bridge()
    cleaning_up()
    session = spark_session(master, properties)
    quiet_server(session)
    try:
        note_remains(f"{directory} is incomplete; remove it before the next attempt")
        files = stage_source(session, kind, options, directory)
        rows = session.read.parquet(directory).count()
    finally:
        stop_session(session)
    size = sum(file.size_bytes for file in files)
    print_report(
        {"directory": directory, "files": len(files), "bytes": size, "rows": rows},
        f"{directory} has {rows:,} rows in {len(files)} files; to process them: eosframework "
        f"backfill run APP --source 'TOPIC=parquet:{directory};key=COLUMN'",
        as_json=as_json,
    )


def _options(given: Sequence[str], file: Path | None) -> dict[str, str]:
    from eosframework.config.properties_file import read_properties
    from eosframework.errors import ConfigurationError

    options: dict[str, str] = {}
    if file is not None:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"--options-file {file} cannot be read ({error}); expected a properties file with "
                f"options of the data source, such as password=…"
            ) from None
        options |= {found.name: found.value for found in read_properties(text, file)}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ConfigurationError(
                f"--option {text!r} is not NAME=VALUE, for example dbtable=orders"
            )
        options[name] = value
    return options
