"""Errors of rows and errors of tables, on a real PostgreSQL: neither is taken for the other."""

from __future__ import annotations

import pytest

from eosframework.errors import DatabaseRefused, RowRefused
from eosframework.topology.graph.graph import Policy, TableMode
from tests.support.servers.row_stores import P0, World, batch, sink, written

KINDS = [
    ("tsvector", "cat:1", "cat:"),
    ("tsquery", "cat & dog", "cat &"),
    ("jsonpath", "$.a", "$."),
    ("regclass", "pg_class", "no_such_table"),
    ("regtype", "integer", "no_such_type"),
    ("regnamespace", "public", "no_such_schema"),
    ("regprocedure", "now()", "now(integer)"),
    ("smallint", 1, 99999),
]


@pytest.mark.parametrize("mode", [TableMode.APPEND, TableMode.UPSERT])
def test_a_value_that_its_type_refuses_is_its_rows_error(world: World, mode: TableMode) -> None:
    columns = ", ".join(f"{kind} {kind}" for kind, _, _ in KINDS)
    world.see(f"CREATE TABLE kinds (id integer PRIMARY KEY, {columns})")
    store = world.store()
    [claim] = store.claim([P0])
    table = sink("kinds", mode, ("id",) if mode is TableMode.UPSERT else (), Policy.DEAD_LETTER)
    bad = [{"id": n, kind: value} for n, (kind, _, value) in enumerate(KINDS)]
    good = {"id": 90, **{kind: value for kind, value, _ in KINDS}}
    for rows in [*([row] for row in bad), [*bad, good]]:
        assert store.write([batch(claim, table, *rows)]).dead_letters == len(rows) - (good in rows)
        [claim] = store.claim([P0])
    assert world.see("SELECT id FROM kinds") == [(90,)]
    letters = world.see('SELECT "offset" FROM eosframework.dead_letters ORDER BY 1')
    assert letters == [(n,) for n in range(2 * len(KINDS))]


REFUSING = """
CREATE TABLE {0} (id integer PRIMARY KEY, name text);
CREATE FUNCTION on_{0}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN {1} RETURN NEW; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON {0} FOR EACH ROW EXECUTE FUNCTION on_{0}();
"""
IF_BAD = "IF NEW.name = 'bad' THEN {} END IF;"
BODIES = [
    *(IF_BAD.format(f"RAISE USING ERRCODE = '{code}';") for code in ("XX000", "42501", "MY001")),
    IF_BAD.format("EXECUTE 'SELECT FROM no_such';"),
    IF_BAD.format("PERFORM to_tsquery('cat &');"),
    "CASE NEW.name WHEN 'good' THEN NULL; END CASE;",
]


def test_a_row_that_fails_alone_is_refused_if_the_table_accepts_another(world: World) -> None:
    store = world.store()
    [claim] = store.claim([P0])
    rows = [{"id": n, "name": "bad" if n in (0, 2) else "good"} for n in range(4)]
    for n, body in enumerate(BODIES):
        world.see(REFUSING.format(f"t{n}", body))
        table = sink(f"t{n}", TableMode.UPSERT, ("id",), Policy.SKIP)
        assert store.write([batch(claim, table, *rows)]).skipped == 2
        [claim] = store.claim([P0])
        assert store.write([batch(claim, table, {"id": 4, "name": "bad"})]).skipped == 1
        [claim] = store.claim([P0])
        assert world.see(f"SELECT id FROM t{n} ORDER BY id") == [(1,), (3,)]


POLICY = """
ALTER TABLE t ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON t USING (name = 'own') WITH CHECK (name = 'own');
"""


@pytest.mark.parametrize("mode", [TableMode.APPEND, TableMode.UPSERT])
def test_a_policy_that_does_not_allow_a_row_is_no_lack_of_a_privilege(
    world: World, mode: TableMode
) -> None:
    limited = _role(world)
    world.see("CREATE TABLE t (id integer PRIMARY KEY, name text)")
    world.see(f"GRANT SELECT, INSERT, UPDATE ON t TO {limited.role}")
    keys = ("id",) if mode is TableMode.UPSERT else ()
    store, table = limited.store(), sink("t", mode, keys, Policy.SKIP)
    [claim] = store.claim([P0])
    [claim] = written(store, batch(claim, table, {"id": 0, "name": "own"}))
    world.see(POLICY)
    assert store.write([batch(claim, table, {"id": 1, "name": "other"})]).skipped == 1
    [claim] = store.claim([P0])
    written(store, batch(claim, table, {"id": 2, "name": "own"}))
    assert world.see("SELECT id FROM t ORDER BY id") == [(0,), (2,)]


PLAIN = "CREATE TABLE t (id integer PRIMARY KEY, name text, n {});"
AUDITED = REFUSING.format("t", "INSERT INTO audit VALUES (1);") + "GRANT ALL ON t TO {role};"
BROKEN = {
    "a sequence has no more values.*2200H": PLAIN.format("smallserial")
    + "SELECT setval('t_n_seq', 32767); GRANT ALL ON t, t_n_seq TO {role}",
    "fills column n: set its sequence": PLAIN.format("serial UNIQUE")
    + "INSERT INTO t (id, n) SELECT -n, n FROM generate_series(1, 50) AS n;"
    + "GRANT ALL ON t, t_n_seq TO {role}",
    "permission denied for sequence": PLAIN.format("serial") + "GRANT ALL ON t TO {role}",
    "permission denied for table t": PLAIN.format("int") + "GRANT SELECT ON t TO {role}",
    'audit" does not exist': AUDITED,
    "permission denied for table audit": AUDITED + "CREATE TABLE audit (n integer)",
}
"""Statements by the reason why no row can be written after them."""


def test_what_fails_for_every_row_is_no_rows_error(world: World) -> None:
    limited = _role(world)
    rows = [{"id": n, "name": "good"} for n in range(3)]
    for reason, statements in BROKEN.items():
        world.see(statements.format(role=limited.role))
        for policy in (Policy.SKIP, Policy.DEAD_LETTER, Policy.FAIL):
            store, table = limited.store(), sink("t", TableMode.UPSERT, ("id",), policy)
            [claim] = store.claim([P0])
            with pytest.raises(DatabaseRefused, match=reason):
                store.write([batch(claim, table, *rows)])
            store.close()
        assert world.see("SELECT count(*) FROM t WHERE id >= 0") == [(0,)]
        assert world.see("SELECT count(*) FROM eosframework.dead_letters") == [(0,)]
        world.see("DROP TABLE t; DROP TABLE IF EXISTS audit; DROP FUNCTION IF EXISTS on_t")


def test_a_table_that_stops_accepting_rows_is_found_with_the_last_row_that_it_accepted(
    world: World,
) -> None:
    world.see(
        REFUSING.format("t", "INSERT INTO audit VALUES (1);") + "CREATE TABLE audit (n integer)"
    )
    store, table = world.store(), sink("t", TableMode.UPSERT, ("id",), Policy.SKIP)
    [claim] = store.claim([P0])
    [claim] = written(store, batch(claim, table, {"id": 1, "name": "good"}))
    world.see("DROP TABLE audit")
    with pytest.raises(DatabaseRefused, match=r"row of record in\[0\]@1 to t, nor another row"):
        store.write([batch(claim, table, {"id": 2, "name": "good"})])
    world.see("CREATE TABLE audit (n integer)")
    [claim] = store.claim([P0])
    written(store, batch(claim, table, {"id": 2, "name": "good"}))
    assert world.see("SELECT count(*) FROM t") == [(2,)]


def test_a_row_that_fails_alone_ends_the_writer_after_the_rows_before_it(world: World) -> None:
    world.see(REFUSING.format("t", IF_BAD.format("EXECUTE 'SELECT FROM no_such';")))
    store, table = world.store(), sink("t", TableMode.UPSERT, ("id",), Policy.FAIL)
    [claim] = store.claim([P0])
    rows = [{"id": n, "name": "bad" if n == 2 else "good"} for n in range(4)]
    with pytest.raises(RowRefused, match=r"record in\[0\]@2: .*no_such"):
        store.write([batch(claim, table, *rows)])


def _role(world: World) -> World:
    """Return the database as a role sees it that owns nothing there."""
    [(role,)] = world.see("SELECT 'writer_' || current_database()")
    world.see(f"CREATE ROLE {role} LOGIN PASSWORD 'p'; GRANT ALL ON SCHEMA eosframework TO {role}")
    for kind in ("TABLES", "SEQUENCES"):
        world.see(f"GRANT ALL ON ALL {kind} IN SCHEMA eosframework TO {role}")
    world.undoing = [f"DROP OWNED BY {role}", f"DROP ROLE {role}"]
    return world.seen_by(role, "p")
