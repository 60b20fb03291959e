"""The start of a PostgreSQL server, and the search for one that was started."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from eosframework.embedded.data_directory import START_SECONDS, exclusively, own_directory
from eosframework.embedded.ports import free_ports, require_free
from eosframework.embedded.postgres.programs import (
    find_programs,
    initialize,
    let_account_pass,
)
from eosframework.embedded.postgres.record import (
    Record,
    data_of,
    is_initialized,
    load_record,
    mark_initialized,
    save_record,
)
from eosframework.embedded.postgres.server import PostgresServer
from eosframework.errors import ConfigurationError
from eosframework.process.user_directories import expanded

_OWNED_SETTINGS = frozenset(
    {
        "config_file",
        "data_directory",
        "external_pid_file",
        "hba_file",
        "listen_addresses",
        "port",
        "unix_socket_directories",
    }
)


def start_postgres(
    data_dir: Path,
    *,
    port: int | None = None,
    settings: Mapping[str, str] | None = None,
    detached: bool = False,
    programs: Path | None = None,
    deadline_seconds: float = START_SECONDS,
) -> PostgresServer:
    """Start a server on the data in `data_dir`, or a new one if there is none.

    1. record port and settings  2. create the data  3. start  4. wait until it serves

    A commit is on the disk before it is acknowledged, unless `settings` state otherwise. PostgreSQL
    does not run as root, so a process of root's starts it under another account.

    Args:
        data_dir: for all files of the server; later starts use its data and port again.
        port: its port on 127.0.0.1. None: as recorded, a free one for a new server.
        settings: of PostgreSQL (`{"wal_level": "logical"}`). None: as recorded.
        detached: let the server outlive this process. Otherwise it is killed when this process
            ends, even by SIGKILL.
        programs: the directory with another PostgreSQL's programs. None: as recorded, those of
            the wheel for a new server.
        deadline_seconds: limit for steps 3 and 4.

    Raises:
        ConfigurationError: the port is taken, the server already runs, its programs are missing,
            or a setting is one that the data directory determines; nothing was started.
        ComponentFailed: the server ended or did not serve in time; it is not running.
    """
    data_dir = expanded(data_dir, "name the data directory").resolve()
    own_directory(data_dir)
    let_account_pass(data_dir)
    with exclusively(data_dir):
        recorded = load_record(data_dir)
        if recorded and (pid := PostgresServer(data_dir, recorded).pid):
            raise ConfigurationError(
                f"the server in {data_dir} already runs (pid {pid}); "
                f"stop it, or choose another data directory"
            )
        record = _plan(recorded, port, settings, programs)
        save_record(data_dir, record)
        _make_data(data_dir, record)
        server = PostgresServer(data_dir, record, guarded=not detached)
        server.start(deadline_seconds=deadline_seconds)
        return server


def find_postgres(data_dir: Path) -> PostgresServer | None:
    """Return the server recorded in `data_dir`, running or not; None if there is none."""
    data_dir = expanded(data_dir, "name the data directory").resolve()
    record = load_record(data_dir)
    return PostgresServer(data_dir, record) if record else None


def _plan(
    recorded: Record | None,
    port: int | None,
    settings: Mapping[str, str] | None,
    programs: Path | None,
) -> Record:
    """Return the record to start with: the recorded one, with the caller's changes."""
    if owned := _OWNED_SETTINGS & (settings or {}).keys():
        raise ConfigurationError(
            f"PostgreSQL setting {min(owned)} is decided by the embedded server; remove it"
        )
    chosen = port or (recorded.port if recorded else free_ports(1)[0])
    require_free(chosen)
    record = recorded or Record(port=chosen, password=secrets.token_urlsafe(18))
    return replace(
        record,
        port=chosen,
        settings=record.settings if settings is None else dict(settings),
        programs=record.programs if programs is None else str(programs.resolve()),
    )


def _make_data(data_dir: Path, record: Record) -> None:
    """Create the data unless it is complete; incomplete data is created anew."""
    if is_initialized(data_dir):
        return
    data = data_of(data_dir)
    shutil.rmtree(data, ignore_errors=True)
    initialize(find_programs(record.programs), data, record.password, durable=record.durable)
    mark_initialized(data_dir)
