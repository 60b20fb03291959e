"""A topic into a table, on a real broker and a real PostgreSQL, when nothing breaks."""

from __future__ import annotations

import signal
from collections.abc import Callable

from pydantic import SecretStr

from eosframework.config import DatabaseSettings
from eosframework.database import Database, migrate
from tests.support.tables import TablesWorld

MakeTables = Callable[..., TablesWorld]


def test_a_restarted_worker_goes_on_where_the_table_ends(make_tables: MakeTables) -> None:
    world = make_tables()
    migrate(Database(DatabaseSettings(dsn=SecretStr(world.dsn))))
    world.see("CREATE TABLE numbers (n bigint)")
    world.feed(3000)
    worker = world.start_worker()
    world.wait_for(1)
    worker.signal(signal.SIGTERM)
    assert worker.wait(40) == 0, worker.log[-3000:]
    world.feed(1000)
    world.finish()
    assert world.kept().clean, world.kept()
    assert world.count() == 4000
