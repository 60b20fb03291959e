"""A test that leaves something behind fails, and what it left is named and removed.

This is a plugin of pytest, which tests/conftest.py loads. It looks after every other teardown of a
test, and compares with what was there before. What a fixture of a wider scope started while it was
set up belongs to that fixture, and has to be gone when the fixture ends.

The temporary directory of a process that runs tests is a folder of its own, as are the directories
for what programs keep of their user: a test neither sees nor changes what others have there.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Collection, Generator, Hashable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import psycopg
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from psycopg import sql

from tests.support.processes.places import OWNER_VARIABLE, SHARED_FOLDER_VARIABLE, shared_folder

PATIENCE_SECONDS = 30.0
"""What is just ending gets as long, on a busy machine too; where all is clean, it costs nothing."""

ENGINE = b"dockerd"
"""Test processes share it, and the last that goes ends it (tests/support/servers/engine.py)."""

_PROC = Path("/proc")
_KILLED_SECONDS = 10.0
_EXECVE_SECONDS = 1.0


class Kind(Protocol):
    """Things of one kind that a test may leave behind."""

    @property
    def ends_by_itself(self) -> bool:
        """Whether it is worth waiting for one to go."""
        ...

    def look(self) -> Collection[Hashable]:
        """Return what is there."""
        ...

    def describe(self, key: Any) -> str:
        """Return how a person is told of it."""
        ...

    def relative(self, key: Any, known: Collection[Any]) -> Hashable | None:
        """Return to which known one this one belongs: it is not the test's, then."""
        ...

    def remove(self, key: Any) -> None:
        """Make it disappear, before it disturbs another test."""
        ...


class Process(NamedTuple):
    """A process, also where its number is used again."""

    pid: int
    started: bytes


@dataclass(slots=True)
class _Seen:
    name: bytes
    zombie: bool
    parent: int
    started: bytes


class Processes:
    """Descendants of this process, and those that lost their parent."""

    ends_by_itself = True

    def __init__(self) -> None:
        self._mark = f":{os.getpid()}:".encode()
        self._foreign: set[Process] = set()
        self._seen: dict[int, _Seen] = {}
        self._commands: dict[Process, bytes] = {}
        self._last: set[Process] = set()
        self._waited: object = None

    @property
    def mark(self) -> str:
        """What OWNER_VARIABLE says in children, besides the marks of who started this process."""
        return (os.environ.get(OWNER_VARIABLE) or ":") + self._mark.decode().removeprefix(":")

    def look(self) -> set[Process]:
        """Return those that run, and those that nobody waited for."""
        # A child that has come and gone was waited for, and changes the sums over all of those. So
        # most tests need no look at every process of the machine.
        waited = resource.getrusage(resource.RUSAGE_CHILDREN)
        if self._last or waited != self._waited or _has_children():
            self._waited = waited
            self._last = self._scan()
        return self._last

    def describe(self, key: Process) -> str:
        """Return its number and command line, or the name of one that has ended already."""
        seen = self._seen[key.pid]
        if seen.zombie:
            return f"process {key.pid}, which has ended and was not waited for: {_text(seen.name)}"
        return f"process {key.pid}: {_text(self._commands[key] or seen.name)}"

    def relative(self, key: Process, known: Collection[Process]) -> Process | None:
        """Return its ancestor, or the one whose place it took: a server that was started again."""
        numbers = {other.pid: other for other in known}
        for pid in self._line(key.pid):
            if pid in numbers:
                return numbers[pid]
        command = self._commands[key]
        same = (other for other in known if command and self._commands.get(other) == command)
        return next(same, None)

    def remove(self, key: Process) -> None:
        """Kill it and wait for its end."""
        deadline = time.monotonic() + _KILLED_SECONDS
        while (found := _stat(key.pid)) is not None and found.started == key.started:
            with suppress(ProcessLookupError):
                os.kill(key.pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(key.pid, os.WNOHANG)
            if time.monotonic() > deadline:
                return
            time.sleep(0.01)

    def _scan(self) -> set[Process]:
        self._seen = {pid: seen for pid in _numbers() if (seen := _stat(pid)) is not None}
        ours: set[Process] = set()
        foreign: set[Process] = set()
        servers = _of_multiprocessing()
        for pid, seen in self._seen.items():
            process = Process(pid, seen.started)
            if pid == os.getpid() or pid in servers:
                continue
            line = self._line(pid)
            if os.getpid() in line:
                above = [seen.name, *(self._seen[each].name for each in line if each in self._seen)]
                if ENGINE not in above:
                    ours.add(process)
            elif process in self._foreign or self._mark not in _owner(pid):
                foreign.add(process)
            else:
                ours.add(process)
        self._commands |= {process: _read(process.pid, "cmdline") for process in ours}
        self._foreign = foreign
        return ours

    def _line(self, pid: int) -> list[int]:
        """Return the ancestors of a process, the nearest first."""
        line: list[int] = []
        while (seen := self._seen.get(pid)) is not None and seen.parent not in line:
            pid = seen.parent
            line.append(pid)
        return line


def _is_of_spark(thread: threading.Thread) -> bool:
    """Whether a thread serves calls of Spark's JVM; it lasts as long as the shared session."""
    target: Any = getattr(thread, "_target", None)
    return str(getattr(target, "__module__", "")).startswith("py4j.")


_OF_LIBRARIES: Any = threading._DummyThread  # pyright: ignore[reportPrivateUsage]


class Threads:
    """Threads that Python knows, also those that would not keep this process from ending."""

    ends_by_itself = True

    def look(self) -> list[threading.Thread]:
        """Return those that run; one that a library of C started has no end that Python sees."""
        return [
            each
            for each in threading.enumerate()
            if not isinstance(each, _OF_LIBRARIES) and not _is_of_spark(each)
        ]

    def describe(self, key: threading.Thread) -> str:
        """Return its name and what it runs."""
        target: Any = getattr(key, "_target", None)
        what = getattr(target, "__qualname__", None) or type(key).__qualname__
        return f"thread {key.name!r}, which runs {what}"

    def relative(self, key: threading.Thread, known: Collection[threading.Thread]) -> None:
        """Return None: who started a thread is not known."""

    def remove(self, key: threading.Thread) -> None:
        """Leave it: nobody else can end a thread."""


class Entries:
    """Files and directories right in some folders.

    Args:
        folders: which.
        shared: they are not the tests' alone: a developer's tools keep caches there, which are
            overlooked, and nothing is deleted.
    """

    ends_by_itself = False

    def __init__(self, folders: Collection[Path], *, shared: bool) -> None:
        self._folders = sorted({str(folder) for folder in folders})
        self._shared = shared

    def look(self) -> set[str]:
        """Return their paths."""
        return {
            f"{folder}/{name}"
            for folder in self._folders
            for name in os.listdir(folder)
            if not (self._shared and name.startswith((".", "__pycache__")))
        }

    def describe(self, key: str) -> str:
        """Return the path."""
        beside = " (this test, or one that ran beside it)" if self._shared else ""
        return f"{'directory' if Path(key).is_dir() else 'file'} {key}{beside}"

    def relative(self, key: str, known: Collection[str]) -> None:
        """Return None: who made a file is not known."""

    def remove(self, key: str) -> None:
        """Delete it, unless it may be somebody's work."""
        if self._shared:
            return
        if Path(key).is_dir() and not Path(key).is_symlink():
            shutil.rmtree(key, ignore_errors=True)
        else:
            Path(key).unlink(missing_ok=True)


class Topics:
    """Topics of the broker that the tests of this process share."""

    ends_by_itself = False

    def __init__(self) -> None:
        self._admin: AdminClient | None = None
        self._other: set[str] = set()
        self._last: set[str] = set()
        self._whole = True

    @contextmanager
    def watched(self, bootstrap_servers: str, *, whole: bool) -> Generator[None]:
        """Look at a broker for as long as the context lasts.

        Args:
            bootstrap_servers: where it is.
            whole: nobody else uses it, so all of its new topics are those of tests.
        """
        # One that is closed for being idle is nothing to tell of.
        quiet = {"log_level": 2, "log.connection.close": False}
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, **quiet})
        self._whole = whole
        self._other = self._names()
        try:
            yield
        finally:
            # The broker ends before the guard looks for the last time.
            self._last = self.look()
            self._admin = None

    def look(self) -> set[str]:
        """Return the names of those that were made since the broker is looked at."""
        if self._admin is None or not self._whole:
            return self._last
        return self._names() - self._other

    def delete(self, beginnings: Collection[str]) -> None:
        """Delete every topic whose name begins so, and wait until the broker has forgotten it."""
        if self._admin is None or not beginnings:
            return
        doomed = {name for name in self._names() if name.startswith(tuple(beginnings))}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while doomed:
            for deleted in self._deleting(doomed):
                with suppress(KafkaException):  # gone already, or asked for again
                    deleted.result(PATIENCE_SECONDS)
            pause = 0.005
            while (doomed := doomed & self._names()) and pause < 1:
                time.sleep(pause)
                pause *= 2
            if doomed and time.monotonic() > deadline:
                raise AssertionError(f"topics were not deleted: {', '.join(sorted(doomed))}")

    def describe(self, key: str) -> str:
        """Return the name."""
        return f"topic {key}"

    def relative(self, key: str, known: Collection[str]) -> None:
        """Return None: who made a topic is not known."""

    def remove(self, key: str) -> None:
        """Delete it, if the broker still runs."""
        self.delete([key])

    def _deleting(self, names: Collection[str]) -> Collection[Future[None]]:
        admin: Any = self._admin  # its stub leaves open what a future gives
        return admin.delete_topics(sorted(names)).values()

    def _names(self) -> set[str]:
        assert self._admin is not None
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                topics = self._admin.list_topics(timeout=10).topics
                return {name for name in topics if not name.startswith("__")}
            except KafkaException as error:
                known = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT)
                if error.args[0].code() not in known or time.monotonic() > deadline:
                    raise


class Databases:
    """Databases, roles and replication slots of the server that the tests of this process share."""

    ends_by_itself = False

    _QUESTION = """
        SELECT 'database', datname FROM pg_database
        UNION ALL SELECT 'role', rolname FROM pg_roles
        UNION ALL SELECT 'replication slot', slot_name FROM pg_replication_slots
    """

    def __init__(self) -> None:
        self._connection: psycopg.Connection[Any] | None = None
        self._other: set[tuple[str, str]] = set()
        self._last: set[tuple[str, str]] = set()

    @contextmanager
    def watched(self, dsn: str, *, whole: bool) -> Generator[None]:
        """Look at a server for as long as the context lasts.

        Args:
            dsn: where it is, for a superuser.
            whole: nobody else uses it; else there is no telling what is a test's.
        """
        if not whole:
            yield
            return
        with psycopg.connect(dsn, autocommit=True, application_name="leftovers") as connection:
            self._connection = connection
            self._other = self.look()
            try:
                yield
            finally:
                # The server ends before the guard looks for the last time.
                self._last = self.look()
                self._connection = None

    def look(self) -> set[tuple[str, str]]:
        """Return those that were made since the server is looked at."""
        if self._connection is None:
            return self._last
        return set(self._connection.execute(self._QUESTION)) - self._other

    def describe(self, key: tuple[str, str]) -> str:
        """Return what it is, and the name."""
        return " ".join(key)

    def relative(self, key: tuple[str, str], known: Collection[tuple[str, str]]) -> None:
        """Return None: who made it is not known."""

    def remove(self, key: tuple[str, str]) -> None:
        """Drop it, if the server still runs and lets it go."""
        kind, name = key
        drop = {
            "database": sql.SQL("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
            "role": sql.SQL("DROP ROLE IF EXISTS {name}"),
            "replication slot": sql.SQL("SELECT pg_drop_replication_slot({text})"),
        }[kind].format(name=sql.Identifier(name), text=sql.Literal(name))
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.execute(drop)


class Thing(NamedTuple):
    """One that is there."""

    kind: Kind
    key: Hashable


class Guard:
    """Fails tests that leave something behind.

    Args:
        patience: for how many seconds what is just ending is waited for.
        java: where a JVM may leave what it unpacks.
    """

    def __init__(self, kinds: Collection[Kind], patience: float, java: Path) -> None:
        self.java = java
        self.topics = Topics()
        self.databases = Databases()
        self._kinds = (*kinds, self.topics, self.databases)
        self._patience = patience
        self._before: set[Thing] = set()
        self._owned: dict[pytest.FixtureDef[Any], set[Thing]] = {}
        self._ended: dict[Thing, str] = {}

    @contextmanager
    def started_for(self, fixture: str) -> Generator[None]:
        """Let what starts within the context belong to a fixture of a wider scope.

        Args:
            fixture: its name; it is set up already, and starts what it has when first asked for.
        """
        [owned] = [owned for owner, owned in self._owned.items() if owner.argname == fixture]
        before = self._look()
        try:
            yield
        finally:
            owned |= self._look() - before - self._excused()

    def pytest_sessionstart(self) -> None:
        self._before = self._look()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any]
    ) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        before = self._look()
        try:
            return (yield)
        finally:
            self._owned[fixturedef] = self._look() - before - self._excused()

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        for thing in self._owned.pop(fixturedef, ()):
            self._ended[thing] = f"fixture {fixturedef.argname} ({fixturedef.scope})"
            self._before.discard(thing)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        try:
            result = yield
        except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:
            if found := self._leftovers(item):
                error.add_note(found)
            raise
        if found := self._leftovers(item):
            pytest.fail(found, pytrace=False)
        return result

    def _leftovers(self, item: pytest.Item) -> str:
        """Return what to tell of a test that has ended, and remove what it left."""
        left = self._wait(self._patience_for(item))
        told = [f"  {t.kind.describe(t.key)}{self._origin(t)}" for t in left]
        for thing in left:
            thing.kind.remove(thing.key)
        if left:
            self._before = self._look()
        self._ended.clear()
        return "\n".join(["this test left behind:", *sorted(told)]) if told else ""

    def _wait(self, seconds: float) -> set[Thing]:
        """Return what is left, once nothing of it can be expected to go by itself."""
        deadline = time.monotonic() + seconds
        pause = 0.005
        while True:
            there = self._look()
            left = self._strangers(there)
            if not any(thing.kind.ends_by_itself for thing in left) or time.monotonic() > deadline:
                self._before = there
                return left
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)

    def _look(self) -> set[Thing]:
        return {Thing(kind, key) for kind in self._kinds for key in kind.look()}

    def _excused(self) -> set[Thing]:
        return self._before.union(*self._owned.values())

    def _strangers(self, there: set[Thing]) -> set[Thing]:
        excused = self._excused()
        strangers = there - excused
        if not strangers:
            return strangers
        for thing in list(strangers):
            known = [other.key for other in excused if other.kind is thing.kind]
            relative = thing.kind.relative(thing.key, known)
            if relative is None:
                continue
            strangers.discard(thing)
            for owned in self._owned.values():
                if Thing(thing.kind, relative) in owned:
                    owned.add(thing)
        return strangers

    def _origin(self, thing: Thing) -> str:
        origin = self._ended.get(thing)
        return f", of {origin}" if origin else ""

    def _patience_for(self, item: pytest.Item) -> float:
        """Return for how long to wait: the test's own time must not run out meanwhile."""
        limit = item.get_closest_marker("timeout")
        return min(self._patience, limit.args[0] / 2) if limit and limit.args else self._patience


class Home:
    """Folders that a process which runs tests has for itself, in place of its user's.

    Java's, of which Spark is told, is one of them, and need not be empty: a JVM that is killed
    leaves the libraries that it unpacked.
    """

    def __init__(self) -> None:
        # The socket of the fork server lives as long as this process, which removes it at its end.
        get_temp_dir()
        self._former = tempfile.tempdir
        self._variables = pytest.MonkeyPatch()
        self._variables.setenv(SHARED_FOLDER_VARIABLE, str(shared_folder()))
        _remove_homes_of_the_dead()
        # Sockets are made there, whose paths are limited to about a hundred bytes.
        home = tempfile.mkdtemp(prefix=f"{_HOME}{os.getpid()}-", dir=shared_folder())
        self._folder = Path(home)
        self.temporary = self._folder / "tmp"
        self.java = self._folder / "java"
        self.java.mkdir()
        for variable, name in (
            ("TMPDIR", "tmp"),
            ("XDG_DATA_HOME", "data"),
            ("XDG_STATE_HOME", "state"),
        ):
            (self._folder / name).mkdir()
            self._variables.setenv(variable, str(self._folder / name))
        tempfile.tempdir = str(self.temporary)

    def mark_children(self, mark: str) -> None:
        """Let child processes inherit whose they are."""
        self._variables.setenv(OWNER_VARIABLE, mark)

    def close(self) -> None:
        """Remove the folders, and go back to the user's."""
        tempfile.tempdir = self._former
        self._variables.undo()
        shutil.rmtree(self._folder, ignore_errors=True)


def guard_of(config: pytest.Config) -> Guard:
    """Return the guard of this run."""
    guard = config.pluginmanager.get_plugin(_NAME)
    assert isinstance(guard, Guard)
    return guard


_NAME = "leftovers-guard"
_HOME = "eos-tests-"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "leftovers_patience",
        "for how many seconds what a test left may still be ending",
        default=str(PATIENCE_SECONDS),
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    home = Home()
    config.add_cleanup(home.close)
    processes = Processes()
    home.mark_children(processes.mark)
    root = config.rootpath
    kept = [folder for folder in (root, root / "tests", Path.cwd()) if folder.is_dir()]
    kinds: list[Kind] = [
        processes,
        Threads(),
        Entries([home.temporary], shared=False),
        Entries(kept, shared=True),
    ]
    guard = Guard(kinds, float(config.getini("leftovers_patience")), home.java)
    config.pluginmanager.register(guard, _NAME)


def _remove_homes_of_the_dead() -> None:
    """Remove the folders of processes that were killed before they could do it."""
    for folder in shared_folder().glob(f"{_HOME}*-*"):
        pid = folder.name.removeprefix(_HOME).partition("-")[0]
        if pid.isdigit() and not (_PROC / pid).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _numbers() -> Iterator[int]:
    return (int(entry) for entry in os.listdir(_PROC) if entry.isdigit())


def _stat(pid: int) -> _Seen | None:
    line = _read(pid, "stat")
    name, parenthesis, rest = line.partition(b"(")[2].rpartition(b")")
    if not parenthesis:
        return None
    fields = rest.split()
    return _Seen(name, fields[0] == b"Z", int(fields[1]), fields[19])


def _of_multiprocessing() -> set[int | None]:
    """Return its fork server and what tracks its semaphores: they serve this process to its end."""
    server: Any = forkserver._forkserver  # pyright: ignore[reportAttributeAccessIssue]
    tracker: Any = resource_tracker._resource_tracker  # pyright: ignore[reportAttributeAccessIssue]
    return {server._forkserver_pid, tracker._pid}


def _owner(pid: int) -> bytes:
    """Return the owner that a process has in its environment."""
    variables = _environment(pid).split(b"\0")
    name = f"{OWNER_VARIABLE}=".encode()
    return next((each for each in variables if each.startswith(name)), b"")


def _environment(pid: int) -> bytes:
    # A process has no environment for a moment while it is in execve(). A kernel thread and a
    # zombie never have one, and no program either.
    deadline = time.monotonic() + _EXECVE_SECONDS
    while not (found := _read(pid, "environ")) and time.monotonic() < deadline:
        try:
            os.readlink(f"{_PROC}/{pid}/exe")
        except OSError:
            break
        time.sleep(0.001)
    return found


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"{_PROC}/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _text(command: bytes) -> str:
    return command.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
