from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.servers.row_stores import World


@pytest.fixture
def world(database: str) -> Iterator[World]:
    """A database with a row store; stores are closed, and what a test undoes is undone."""
    world = World(database)
    yield world
    for store in world.stores:
        store.close()
    for statement in world.undoing:
        world.see(statement)
