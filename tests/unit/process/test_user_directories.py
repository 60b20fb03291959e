"""A user without a home directory, or with one that cannot be written, is told the setting."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from eosframework.config import StateSettings, WorkerSettings
from eosframework.embedded import find_kafka
from eosframework.embedded.jars import cache_directory
from eosframework.errors import ConfigurationError
from eosframework.process.instance import own_instance
from eosframework.state.store_directories import application_directory


@pytest.fixture
def _homeless(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    def unknown(_: int) -> NoReturn:
        raise KeyError("uid not found")

    for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "EOS_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)


def hold(**settings: Path) -> None:
    with own_instance("app", WorkerSettings.model_validate(settings)):
        pass


@pytest.mark.usefixtures("_homeless")
@pytest.mark.parametrize(
    ("use", "setting"),
    [
        (hold, r"worker\.instance_directory"),
        (lambda: hold(instance_directory=Path("~", "names")), r"worker\.instance_directory"),
        (lambda: application_directory(StateSettings(), "app"), r"state\.directory"),
        (cache_directory, "EOS_CACHE_DIR"),
        (lambda: find_kafka(Path("~", "kafka")), "data directory"),
    ],
)
def test_a_user_without_a_home_is_told_the_setting(use: Callable[[], object], setting: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"no home directory .*{setting}"):
        use()


@pytest.mark.usefixtures("_homeless")
def test_settings_replace_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hold(instance_directory=tmp_path / "names")
    assert list((tmp_path / "names" / "app").iterdir())
    stores = application_directory(StateSettings(directory=tmp_path), "app")
    assert stores == tmp_path / "app"
    monkeypatch.setenv("EOS_CACHE_DIR", str(tmp_path))
    assert cache_directory() == tmp_path


def test_a_directory_that_cannot_be_made_is_named_with_the_setting(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ConfigurationError, match=r"file/app, .* Not a directory; set worker\.inst"):
        hold(instance_directory=file)


def test_the_command_line_starts_without_a_home() -> None:
    program = (
        "import pwd\n"
        "def unknown(_): raise KeyError\n"
        "pwd.getpwuid = unknown\n"
        "from eosframework.__main__ import main\n"
        "main()\n"
    )
    known = {n: v for n, v in os.environ.items() if n != "HOME" and not n.startswith("XDG_")}
    done = subprocess.run(
        [sys.executable, "-c", program, "broker", "status"],
        env=known,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: this user has no home directory"), done.stderr
