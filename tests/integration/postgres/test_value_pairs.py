"""Each type of value in each type of column: held exactly, or its row is refused."""

from __future__ import annotations

import psycopg
import pytest

from eosframework.topology.graph.graph import Policy, TableMode
from tests.support.servers.row_stores import P0, World, batch, sink
from tests.support.values.judge import is_held
from tests.support.values.pairs import COLUMNS, HELD, SOME
from tests.support.values.samples import SAMPLES


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "columns",
    [
        ["numeric(10,2)", "text", "timestamp", "jsonb"],
        pytest.param([*COLUMNS], id="all", marks=pytest.mark.exhaustive),
    ],
)
def test_a_value_is_held_exactly_or_its_row_is_refused(world: World, columns: list[str]) -> None:
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET timezone = 'America/New_York'".encode())
    found = {column: outcomes(world, column) for column in columns}
    assert found == {column: COLUMNS[column] for column in columns}


def outcomes(world: World, column: str) -> dict[str, str]:
    """Write the samples of each type into a column, and judge what it shows."""
    world.see(f"CREATE TABLE held (id int, value {column})")
    in_utc = "value AT TIME ZONE 'UTC'" if column.startswith("timestamptz") else "value"
    store = world.store()
    [claim] = store.claim([P0])
    found: dict[str, str] = {}
    for kind, values in SAMPLES.items():
        rows = [{"id": n, "value": value} for n, value in enumerate(values)]
        store.write([batch(claim, sink("held", TableMode.APPEND, (), Policy.SKIP), *rows)])
        [claim] = store.claim([P0])
        shown = dict(world.see(f"SELECT id, ({in_utc})::text FROM held"))
        for n, text in shown.items():
            assert (text is None) == (values[n] is None)
            assert text is None or is_held(values[n], column, text), (column, values[n], text)
        if shown:
            found[kind] = HELD if len(shown) == len(values) else SOME
        world.see("TRUNCATE held")
    world.see("DROP TABLE held")
    return found
