"""The guard of processes/leftovers.py, on small suites that leave something behind."""

from __future__ import annotations

import pytest

PLANTED = {
    "process": """
        import os

        def test_it():
            os.posix_spawnp("sleep", ["sleep", "1234"], os.environ)
        """,
    "orphan": """
        import subprocess

        def test_it():
            subprocess.run(["sh", "-c", "sleep 1234 &"], check=True)
        """,
    "zombie": """
        import os

        def test_it():
            pid = os.fork()
            if pid == 0:
                os._exit(0)
        """,
    "thread": """
        import threading, time
        from pathlib import Path

        END = Path("end").absolute()

        def linger():
            while not END.exists():
                time.sleep(0.01)

        def test_it():
            threading.Thread(target=linger, name="idle", daemon=True).start()
        """,
    "temporary file": """
        import tempfile

        def test_it():
            tempfile.mkdtemp(prefix="planted")
        """,
    "file": """
        from pathlib import Path

        def test_it():
            Path("planted").mkdir()
        """,
    "fixture": """
        import os, pytest

        @pytest.fixture(scope="module")
        def server():
            os.posix_spawnp("sleep", ["sleep", "1234"], os.environ)

        def test_first(server):
            pass

        def test_second(server):
            pass
        """,
}

TOLD = {
    "process": "*process *: sleep 1234",
    "orphan": "*process *: sleep 1234",
    "zombie": "*process *, which has ended and was not waited for: *",
    "thread": "*thread 'idle', which runs linger",
    "temporary file": "*directory */tmp/planted*",
    "file": "*directory */planted (this test, or one that ran beside it)",
    "fixture": "*process *: sleep 1234, of fixture server (module)",
}

CLEAN = """
    import subprocess, tempfile, threading, time, pytest

    @pytest.fixture(scope="module")
    def server():
        process = subprocess.Popen(["sleep", "1234"])
        yield process
        process.kill()
        process.wait()

    @pytest.fixture(scope="module")
    def place():
        with tempfile.TemporaryDirectory() as folder:
            yield folder

    def test_what_a_module_has_goes_with_it(server, place):
        assert server.poll() is None

    def test_what_is_just_ending_is_waited_for():
        threading.Thread(target=time.sleep, args=(0.3,)).start()

    def test_what_is_waited_for_is_gone():
        subprocess.run(["true"], check=True)

    def test_the_server_still_runs(server):
        assert server.poll() is None
    """


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """A suite in which nothing ends by itself, so there is nothing to wait for."""
    pytester.makeini("[pytest]\nleftovers_patience = 1\n")
    return pytester


@pytest.mark.parametrize("kind", PLANTED)
def test_a_test_that_leaves_something_behind_fails_and_names_it(
    suite: pytest.Pytester, kind: str
) -> None:
    suite.makepyfile(PLANTED[kind])
    done = run(suite)
    (suite.path / "end").touch()
    done.assert_outcomes(passed=2 if kind == "fixture" else 1, errors=1)
    done.stdout.fnmatch_lines(["*this test left behind:", TOLD[kind]])


def test_the_next_test_finds_nothing_of_it(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import os, pytest

        started = []

        def test_it():
            started.append(os.posix_spawnp("sleep", ["sleep", "1234"], os.environ))

        def test_next():
            with pytest.raises(ProcessLookupError):
                os.kill(started[0], 0)
        """
    )
    run(suite).assert_outcomes(passed=2, errors=1)


def test_what_was_left_is_told_of_a_test_that_fails_in_its_teardown(
    suite: pytest.Pytester,
) -> None:
    suite.makepyfile(
        """
        import tempfile, pytest

        @pytest.fixture
        def broken():
            yield
            raise ValueError("not this one")

        def test_it(broken):
            tempfile.mkdtemp(prefix="planted")
        """
    )
    done = run(suite)
    done.assert_outcomes(passed=1, errors=1)
    done.stdout.fnmatch_lines(["*ValueError: not this one", "*directory */tmp/planted*"])


def test_tests_that_leave_nothing_behind_pass(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(CLEAN)
    run(pytester).assert_outcomes(passed=4)


def run(suite: pytest.Pytester) -> pytest.RunResult:
    return suite.runpytest_inprocess(
        "-p", "tests.support.processes.leftovers", "-p", "no:cacheprovider"
    )
