"""The files in the data directory of a PostgreSQL server.

postgres.json   port, password, settings and programs
server.log      the server's log
initialized     the data is complete; without this file, it is created again
data            PostgreSQL's own directory
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from eosframework.embedded.data_directory import load_state, replace_file
from eosframework.process.private_files import FILE_MODE

_STATE = "postgres.json"


@dataclass(frozen=True, kw_only=True)
class Record:
    """A server as recorded in its data directory.

    Args:
        port: its port on 127.0.0.1.
        password: of the superuser.
        settings: of PostgreSQL.
        programs: the directory with its programs. None: those of the wheel.
    """

    port: int
    password: str = field(repr=False)
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    programs: str | None = None

    @property
    def durable(self) -> bool:
        """True if a commit waits until it is on the disk."""
        return self.settings.get("fsync", "on") not in ("off", "false", "no", "0")


_RECORD = TypeAdapter(Record)


def load_record(data_dir: Path) -> Record | None:
    """Return the record of an earlier start; None if there was none.

    Raises:
        ConfigurationError: the record cannot be read.
    """
    return load_state(data_dir / _STATE, _RECORD, "PostgreSQL server")


def save_record(data_dir: Path, record: Record) -> None:
    """Write the record, readable by its owner only: it contains the password."""
    replace_file(data_dir / _STATE, json.dumps(asdict(record), indent=2))


def data_of(data_dir: Path) -> Path:
    """Return PostgreSQL's own directory."""
    return data_dir / "data"


def log_of(data_dir: Path) -> Path:
    """Return the server's log."""
    return data_dir / "server.log"


def is_initialized(data_dir: Path) -> bool:
    """Return True if the data is complete."""
    return (data_dir / "initialized").exists()


def mark_initialized(data_dir: Path) -> None:
    """Record that the data is complete."""
    (data_dir / "initialized").touch(FILE_MODE)
