from __future__ import annotations

from collections.abc import Iterator

import pytest

from eosframework.errors import EosError
from tests.support.servers.schema_registry import Registry, start_registry


@pytest.fixture(scope="session")
def registry(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Registry]:
    """A real schema registry that takes only schemas which can read what was written before."""
    try:
        running = start_registry(tmp_path_factory.mktemp("registry"))
    except EosError as error:
        if request.config.getoption("--require-services"):
            raise
        pytest.skip(f"no schema registry: {error}")
    try:
        running.wait_until_up()
        running.ask("PUT", "/config", {"compatibility": "BACKWARD"})
        yield running
    finally:
        running.stop()
