"""Debian's PostgreSQL: with TLS, and with a standby that follows and can be promoted.

The server in the wheel is built without TLS. A cluster here is a folder, on 127.0.0.1 and free
ports; what Debian set up by itself is left alone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from eosframework.embedded import PostgresServer, start_postgres
from eosframework.embedded.data_directory import free_ports
from eosframework.embedded.postgres_programs import Programs, as_account, give_to_account
from eosframework.embedded.postgres_server import (
    data_of,
    load_record,
    mark_initialized,
    save_record,
)
from tests.support.processes.places import shared_folder

_INSTALLED = Path("/usr/lib/postgresql")
_STARTED_BY_DEBIAN = Path("/etc/postgresql-common/createcluster.conf")


def debian_programs() -> Path:
    """Return where Debian's programs are, the newest; root installs them when they are missing."""
    if not _find():
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            pytest.skip("Debian's PostgreSQL is not installed, and only root can install it")
        with (shared_folder() / "eosframework-apt.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # tests that run side by side install it once
            if not _find():
                _install()
    return _find()[-1]


def start_primary(data_dir: Path) -> PostgresServer:
    """Start a primary that takes TLS connections and lets standbys follow."""
    data_dir.mkdir(parents=True)
    certificate, key = _make_certificate(data_dir)
    return start_postgres(
        data_dir,
        programs=debian_programs(),
        settings={
            "fsync": "off",
            "ssl": "on",
            "ssl_cert_file": str(certificate),
            "ssl_key_file": str(key),
            "wal_level": "logical",
            "max_wal_senders": "10",
            "wal_keep_size": "256MB",
        },
    )


def start_standby(primary: PostgresServer, data_dir: Path) -> PostgresServer:
    """Copy the primary and start a standby that follows it."""
    record = load_record(primary.data_dir)
    assert record is not None
    data_dir.mkdir(parents=True)
    give_to_account(data_dir)
    programs = debian_programs()
    copy = [
        str(programs / "pg_basebackup"),
        f"--pgdata={data_of(data_dir)}",
        f"--dbname={primary.dsn}",
        "--write-recovery-conf",
        "--checkpoint=fast",
        "--no-sync",
    ]
    subprocess.run(
        as_account(copy, data_dir, Programs(programs, bundled=False)),
        check=True,
        capture_output=True,
        cwd=data_dir,
    )
    mark_initialized(data_dir)
    save_record(data_dir, replace(record, port=free_ports(1)[0]))
    return start_postgres(data_dir)


def promote(standby: PostgresServer) -> None:
    """Make a standby the primary of a new timeline, and wait until it is."""
    with psycopg.connect(standby.dsn, autocommit=True) as connection:
        assert connection.execute("SELECT pg_promote(true, 60)").fetchone() == (True,)


def identity(dsn: str) -> tuple[str, int]:
    """Return a server's system identifier and the timeline it writes, or follows."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(
            "SELECT system_identifier::text, coalesce("
            "  (SELECT received_tli FROM pg_stat_wal_receiver),"
            "  CASE WHEN NOT pg_is_in_recovery()"
            "  THEN ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int END,"
            "  (pg_control_checkpoint()).timeline_id) FROM pg_control_system()"
        ).fetchone()
    assert row is not None
    return row[0], row[1]


def both(primary: PostgresServer, standby: PostgresServer) -> str:
    """Return the DSN by which libpq finds whichever of the two takes writes."""
    account, _, place = primary.dsn.partition("@")
    name = place.partition("/")[2]
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    return f"{account}@{hosts}/{name}?target_session_attrs=read-write"


def _find() -> list[Path]:
    found = (path.parent for path in _INSTALLED.glob("*/bin/postgres"))
    return sorted(found, key=lambda path: int(path.parent.name))


def _install() -> None:
    """Install the server, and keep Debian from starting one of its own."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    if not _STARTED_BY_DEBIAN.exists():
        _STARTED_BY_DEBIAN.parent.mkdir(parents=True, exist_ok=True)
        _STARTED_BY_DEBIAN.write_text("create_main_cluster = false\n")
    for command in (["update"], ["install", "--yes", "--no-install-recommends", "postgresql"]):
        done = subprocess.run(
            ["apt-get", "--quiet", *command],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            pytest.skip(f"Debian's PostgreSQL could not be installed: {done.stderr[-500:]}")


def _make_certificate(directory: Path) -> tuple[Path, Path]:
    """Make a certificate for 127.0.0.1 that signs itself."""
    certificate, key = directory / "server.crt", directory / "server.key"
    subprocess.run(
        [
            *("openssl", "req", "-new", "-x509", "-nodes", "-days", "30"),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-out", str(certificate), "-keyout", str(key)),
        ],
        check=True,
        capture_output=True,
    )
    key.chmod(0o600)
    for file in (certificate, key):
        give_to_account(file)
    return certificate, key
