"""The audit of tables that are decided together with outputs.

1. open a snapshot of the database: the rows, and the offsets D up to which they are decided
2. run the functions over the input up to D, and keep the rows that they give
3. compare the rows in the database

Rows and D change in one transaction, so workers may run meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from eosframework.config import Settings
from eosframework.operations.audit.audit_logs import Logs
from eosframework.operations.audit.audit_verdict import Detail, Verdict
from eosframework.operations.audit.output_comparison import Derivation
from eosframework.topology.graph.graph import Graph, SubTopology
from eosframework.topology.graph.walk import has_state

if TYPE_CHECKING:
    from eosframework.postgres.database.tables.row_comparison import Difference, ExpectedRows
    from eosframework.postgres.tables.table_ports import Batch

_TEXTS = {
    "missing": "the row {row} of table {table} is not there",
    "changed": "the row {row} of table {table} has other values than the input gives it",
    "repeated": "table {table} has the row {row} {times} more than the input gives it",
    "unexpected": "table {table} has the row {row}, which no input record gives",
}
_LOST, _DUPLICATED = ("missing", "changed"), ("repeated", "unexpected")


def audit_rows(graph: Graph, settings: Settings, logs: Logs, derivation: Derivation) -> Verdict:
    """Compare tables that are decided together with outputs with the rows that the input gives.

    Args:
        graph: the application.
        settings: of its workers.
        logs: its topics.
        derivation: knows the dead letters.

    Returns:
        A verdict without input records: those are judged with their outputs.

    Raises:
        DatabaseUnusable: the database is unavailable.
        StartRefused: a table does not exist.
    """
    found = Verdict()
    for part in graph.sub_topologies:
        if not part.together:
            continue
        if (reason := _not_comparable(part, logs)) is None:
            found += _audit_part(part, graph.application, settings, logs, derivation)
        else:
            tables = ", ".join(t.table for sink in part.together for t in sink.tables)
            found += Verdict(notes=(f"rows of table {tables} are not compared: {reason}",))
    return found


def _not_comparable(part: SubTopology, logs: Logs) -> str | None:
    if has_state(part):
        return f"{part.name} is stateful, and functions cannot derive its rows"
    if logs.processed().jobs:
        return "backfill jobs have processed a part of the input"
    partitions, _ = logs.partitions({source.topic for source in part.sources})
    gone = [p for p, first in logs.firsts(partitions).items() if first]
    return f"earlier records of {gone[0]} are gone" if gone else None


def _audit_part(
    part: SubTopology, application: str, settings: Settings, logs: Logs, derivation: Derivation
) -> Verdict:
    # Import the database driver only for tables.
    from eosframework.postgres.database import Database
    from eosframework.postgres.database.tables.row_comparison import ExpectedRows, snapshot
    from eosframework.postgres.tables.decided_rows import DecidedRows

    database = Database(settings.database, application_name=f"eosframework audit {application}")
    maker = DecidedRows(part.together)
    topics = {source.topic for source in part.sources}
    with snapshot(database, application) as (connection, decided):
        expected = {
            table: ExpectedRows(connection, table)
            for sink in part.together
            for table in sink.tables
        }
        logs.processed()  # What is decided is committed now, with its dead letters.
        ranges = {p: (0, end) for p, end in decided.items() if p.topic in topics and end}
        for partition, messages in logs.read(ranges, "input of rows"):
            batches: dict[str, Batch] = {}
            maker.add(derivation.rows(partition, messages), batches)
            for rows in (rows for batch in batches.values() for rows in batch.tables):
                if rows.rows:
                    expected[rows.table].add(partition, rows.rows)
        found = Verdict()
        for table, rows in expected.items():
            found += _verdict(table.table, rows)
    return found


def _verdict(table: str, rows: ExpectedRows) -> Verdict:
    if rows.may_be_filled_by_triggers:
        return Verdict(notes=(f"table {table} is not compared: a trigger may change its rows",))
    found = rows.differences()
    totals = defaultdict(int, found.totals)
    return Verdict(
        lost=sum(totals[kind] for kind in _LOST),
        duplicated=sum(totals[kind] for kind in _DUPLICATED),
        unexpected=totals["unexpected"],
        details=tuple(_detail(table, one) for one in found.first),
    )


def _detail(table: str, one: Difference) -> Detail:
    kind = "lost" if one.kind in _LOST else "duplicated"
    times = "once" if one.times == 1 else f"{one.times} times"
    return Detail(kind, _TEXTS[one.kind].format(row=one.row, table=table, times=times))
