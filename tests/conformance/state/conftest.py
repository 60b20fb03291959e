from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eosframework.config import StateBackendKind, StateSettings
from eosframework.state import state_backend
from eosframework.state.rocksdb_backend import RocksState
from tests.support.applications.stores import SMALL_CACHE_BYTES


@pytest.fixture
def make_rocks(tmp_path: Path) -> Iterator[Callable[..., RocksState]]:
    """Make backends as the processes of one machine have them; they are closed after the test."""
    made: list[RocksState] = []

    def make(slot: str = "host.0", application: str = "flights") -> RocksState:
        settings = StateSettings(directory=tmp_path, cache_bytes=SMALL_CACHE_BYTES)
        made.append(RocksState(settings, application, slot))
        return made[-1]

    yield make
    for backend in made:
        backend.close()


@pytest.fixture(params=list(StateBackendKind))
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[object]:
    settings = StateSettings(
        backend=request.param, directory=tmp_path, cache_bytes=SMALL_CACHE_BYTES
    )
    made = state_backend(settings, "flights", "host.0")
    yield made
    made.close()
