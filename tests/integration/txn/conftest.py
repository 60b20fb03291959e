"""The command `eosframework txn`, run in this process."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest

from eosframework.cli import main
from tests.conftest import KafkaService

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `eosframework txn …` here, with nobody to answer: exit code, stdout, stderr."""
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    def run_it(service: KafkaService, *arguments: str) -> tuple[int, str, str]:
        servers = f"kafka.bootstrap_servers={service.bootstrap_servers}"
        capfd.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main(["txn", *arguments, "--set", servers])
        output = capfd.readouterr()
        return int(stopped.value.code or 0), output.out, output.err

    return run_it
