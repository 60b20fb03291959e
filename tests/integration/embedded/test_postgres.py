from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg import sql

from eosframework.embedded import PostgresServer, find_postgres, start_postgres
from eosframework.embedded.data_directory import free_ports, is_free
from eosframework.errors import ConfigurationError
from tests.support.verifiers.modes import open_to_others, open_umask

START_AND_WAIT = """
import sys
from pathlib import Path
from eosframework.embedded import start_postgres

print(start_postgres(Path(sys.argv[1])).pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A server whose every test leaves it running."""
    directory = tmp_path_factory.mktemp("postgres")
    with open_umask():
        server = start_postgres(directory)
    with server:
        yield server


def processes_in(data_dir: Path) -> list[int]:
    """Processes of a server, found without its pid file: a backend keeps the server's folder."""
    data = str(data_dir / "data")
    found: list[int] = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == data:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_what_was_committed_survives_kill_9_and_what_was_not_does_not(
    shared: PostgresServer,
) -> None:
    with psycopg.connect(shared.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE survivors (n int)")
        connection.execute("INSERT INTO survivors VALUES (1)")
    open_one = psycopg.connect(shared.dsn)
    open_one.execute("INSERT INTO survivors VALUES (2)")

    shared.kill()
    killed = processes_in(shared.data_dir)
    shared.start()

    assert killed == []
    with pytest.raises(psycopg.OperationalError):
        open_one.commit()
    with psycopg.connect(shared.dsn) as connection:
        assert connection.execute("SELECT n FROM survivors").fetchall() == [(1,)]


def test_a_suspended_server_keeps_its_connections_and_goes_on(shared: PostgresServer) -> None:
    with psycopg.connect(shared.dsn) as connection:
        connection.execute("SELECT 1")

        shared.suspend()
        states = {psutil.Process(pid).status() for pid in processes_in(shared.data_dir)}
        with pytest.raises(psycopg.errors.ConnectionTimeout):
            psycopg.connect(shared.dsn, connect_timeout=2)
        shared.resume()

        assert states == {psutil.STATUS_STOPPED}
        assert shared.running
        assert connection.execute("SELECT 2").fetchone() == (2,)


def test_every_connection_needs_the_password_and_only_its_owner_can_read_it(
    shared: PostgresServer,
) -> None:
    without = shared.dsn.replace(shared.dsn.split("@")[0], "postgresql://postgres")

    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        psycopg.connect(without, passfile="")

    assert open_to_others(shared.data_dir) == []
    assert shared.data_dir.stat().st_mode & 0o066 == 0
    assert not (shared.data_dir / "password").exists()


def test_the_server_does_not_run_as_root_and_cannot_write_where_only_root_may(
    shared: PostgresServer, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has an account to leave")
    assert shared.pid is not None
    process = psutil.Process(shared.pid)
    written = tmp_path / "written by the server"

    with psycopg.connect(shared.dsn) as connection, pytest.raises(psycopg.Error):
        connection.execute(sql.SQL("COPY (SELECT 1) TO {}").format(str(written)))

    assert 0 not in process.uids()
    assert 0 not in process.gids()
    assert not written.exists()


CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


def test_the_server_of_root_has_no_capability_and_sees_none_of_roots_files(
    tmp_path: Path,
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has capabilities to leave")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    secret = closed / "secret"
    secret.write_text("root's")
    with start_postgres(closed / "server with a space") as server:
        status = Path(f"/proc/{server.pid}/status").read_text(encoding="ascii")
        held = dict(line.split(":\t", 1) for line in status.splitlines())
        assert {name: int(held[name], 16) for name in CAPABILITIES} == dict.fromkeys(
            CAPABILITIES, 0
        )
        assert held["NoNewPrivs"] == "1"
        with psycopg.connect(server.dsn) as connection:
            read = sql.SQL("SELECT pg_read_file({})").format(str(secret))
            with pytest.raises(psycopg.Error, match="secret"):
                connection.execute(read)
        assert server.log_file.exists()
    assert secret.read_text() == "root's"
    assert closed.stat().st_mode & 0o777 == 0o700


def test_one_data_directory_is_one_server(shared: PostgresServer) -> None:
    with pytest.raises(ConfigurationError, match=f"already runs .pid {shared.pid}"):
        start_postgres(shared.data_dir)

    found = find_postgres(shared.data_dir)
    assert found is not None
    assert (found.pid, found.dsn) == (shared.pid, shared.dsn)


def test_a_server_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", START_AND_WAIT, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    server = psutil.Process(int(parent.stdout.readline()))

    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()

    assert server.wait(timeout=60) is None


def test_data_that_an_interrupted_start_left_is_made_again(tmp_path: Path) -> None:
    half = tmp_path / "data"
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")

    with (
        start_postgres(tmp_path, settings={"fsync": "off"}) as server,
        psycopg.connect(server.dsn) as connection,
    ):
        assert connection.execute("SHOW fsync").fetchone() == ("off",)
    assert not server.running
    assert is_free(server.port)


def test_a_stopped_server_starts_again_and_takes_another_port_when_told(tmp_path: Path) -> None:
    with start_postgres(tmp_path, settings={"fsync": "off"}) as server:
        server.stop()
        server.start()
        assert server.running
    port = free_ports(1)[0]

    with start_postgres(tmp_path, port=port) as moved:
        assert moved.port == port
        assert moved.settings == {"fsync": "off"}
