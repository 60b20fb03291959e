"""`eosframework settings`: every setting with its default, variable and purpose."""

from __future__ import annotations

from typing import Any

import typer

from eosframework.cli import app
from eosframework.cli.options import JsonOption


@app.command()
def settings(as_json: JsonOption = False) -> None:
    """Print every setting with its default and purpose."""
    rows = list_settings()
    if as_json:
        import orjson

        content = {"settings": rows}
        typer.echo(orjson.dumps(content, option=orjson.OPT_INDENT_2).decode())
        return
    import shutil

    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table("setting", "default", "purpose", box=box.SIMPLE, show_lines=True)
    for row in rows:
        default = "" if row["default"] is None else str(row["default"])
        table.add_row(f"{row['name']}\n{row['variable']}", default, row["purpose"])
    width = max(shutil.get_terminal_size().columns, 120)
    Console(width=width, highlight=False, markup=False).print(table)


def list_settings() -> list[dict[str, Any]]:
    """Return name, default, environment variable and purpose of every setting."""
    from pydantic import BaseModel
    from pydantic_core import to_jsonable_python

    from eosframework.config import Settings

    rows: list[dict[str, Any]] = []
    for section, declared in Settings.model_fields.items():
        model = declared.annotation
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            continue
        for name, field in model.model_fields.items():
            rows.append(
                {
                    "name": f"{section}.{name}",
                    "default": to_jsonable_python(field.get_default(call_default_factory=True)),
                    "variable": f"EOS_{section}__{name}".upper(),
                    "purpose": " ".join((field.description or "").split()),
                }
            )
    return rows
