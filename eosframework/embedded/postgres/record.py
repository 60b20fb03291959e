"""What the data directory of a PostgreSQL server holds.

postgres.json   port, password, settings and programs
server.log      what the server says
initialized     the data is complete; without it, it is made again
data            PostgreSQL's own directory
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from eosframework.embedded.folder import replace_file
from eosframework.errors import ConfigurationError
from eosframework.process.private_files import FILE_MODE

_STATE = "postgres.json"


@dataclass(frozen=True, kw_only=True)
class Record:
    """A server as its data directory records it.

    Args:
        port: where it listens on 127.0.0.1.
        password: the superuser's.
        settings: PostgreSQL's own.
        programs: the directory with its programs. None: those of the wheel.
    """

    port: int
    password: str = field(repr=False)
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    programs: str | None = None

    @property
    def durable(self) -> bool:
        """Whether a commit waits until it is on the disk."""
        return self.settings.get("fsync", "on") not in ("off", "false", "no", "0")


_RECORD = TypeAdapter(Record)


def load_record(data_dir: Path) -> Record | None:
    """Read what an earlier start recorded; None if there was none.

    Raises:
        ConfigurationError: the record cannot be read.
    """
    file = data_dir / _STATE
    try:
        return _RECORD.validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{file} does not describe a PostgreSQL server ({type(error).__name__}); "
            f"remove the data directory {data_dir}, or choose another with --data-dir"
        ) from None  # its text would show the password


def save_record(data_dir: Path, record: Record) -> None:
    """Write the record for its owner's eyes only: it has the password."""
    replace_file(data_dir / _STATE, json.dumps(asdict(record), indent=2))


def data_of(data_dir: Path) -> Path:
    """Return PostgreSQL's own directory."""
    return data_dir / "data"


def log_of(data_dir: Path) -> Path:
    """Return the server's log."""
    return data_dir / "server.log"


def is_initialized(data_dir: Path) -> bool:
    """Whether the data is complete."""
    return (data_dir / "initialized").exists()


def mark_initialized(data_dir: Path) -> None:
    """Say that the data is complete."""
    (data_dir / "initialized").touch(FILE_MODE)
