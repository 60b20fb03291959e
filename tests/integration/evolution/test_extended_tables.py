"""Steps that an edit adds to a table that has rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.soak.foreign import ForeignTransaction
from tests.support.applications.edited import Program
from tests.support.applications.feeding import feeder

FLIGHTS = """\
from eosframework import Topology


def tail(record):
    return record.value["tail"]


def both(flight, plane):
    return {**flight, "model": plane and plane["model"]}


def nothing():
    return 0


def add(total, _):
    return total + 1


app = Topology("NAME")
flights = app.table("NAME.in", name="flights", key=str, value=dict)
planes = app.table("NAME.planes", name="planes", key=str, value=dict)
orders = app.stream("NAME.orders", name="orders", key=str, value=dict)
refunds = app.stream("NAME.refunds", name="refunds", key=str, value=dict)
flights.to("NAME.copies", value=dict)
planes.to("NAME.plane-copies", value=dict)
orders.merge(refunds).to("NAME.merged", value=dict)
"""
JOIN = """\
joined = flights.join(planes, both, key=tail, how="left")
joined.to("NAME.joined", value=dict)
"""
GROUP = """\
{}.group_by(tail, key=str, name="tails").count(store="tails").to("NAME.counts", value="json")
"""
ACTIVITY = """\
inputs = {orders.group_by_key(): add, refunds.group_by_key(): add}
app.cogroup(inputs, initial=nothing, name="activity").to("NAME.activity", value="json")
"""


@pytest.fixture
def program(kafka: Any, unique_name: Callable[[str], str], tmp_path: Path) -> Program:
    found = Program(kafka, unique_name("tables"), tmp_path)
    found.cluster.create(*(f"{found.name}.{topic}" for topic in ("planes", "orders", "refunds")))
    return found


def feed(program: Program, *rows: tuple[str, str, Any]) -> None:
    producer = feeder(program.cluster.bootstrap_servers)
    for topic, key, value in rows:
        data = None if value is None else json.dumps(value).encode()
        producer.produce(f"{program.name}.{topic}", data, key.encode())
    assert producer.flush(60) == 0


def test_groups_are_added_to_a_table_that_never_had_a_row(program: Program) -> None:
    """A row of an open transaction counts as one: it may be committed after the look."""
    program.write(FLIGHTS)
    assert program.do("apply", "shop.py").exit_code == 0
    feed(program, ("planes", "N1", {"model": "A320"}), ("orders", "ann", {}))
    assert program.run().exit_code == 0

    program.write(FLIGHTS + GROUP.format("flights"))
    planned = program.do("plan", "shop.py")
    assert planned.exit_code == 0, planned.out
    assert "stop: store tails: added to sub-topology tails.keyed" in planned.out
    assert program.do("apply", "shop.py").exit_code == 0
    changelog = f"{program.name}-flights-changelog"
    hidden = ForeignTransaction(program.cluster.bootstrap_servers, changelog, 1)
    refused = program.run()
    hidden.end()
    assert refused.exit_code == 2
    assert "table store flights has rows of earlier runs" in refused.error


@pytest.mark.exhaustive
def test_groups_of_a_table_without_rows_count_from_the_first_one(program: Program) -> None:
    program.write(FLIGHTS)
    assert program.do("apply", "shop.py").exit_code == 0
    assert program.run().exit_code == 0
    program.write(FLIGHTS + GROUP.format("flights") + JOIN)
    assert program.do("apply", "shop.py").exit_code == 0
    feed(program, *(("in", key, {"tail": "N1"}) for key in ("f1", "f2")), ("in", "f1", None))
    done = program.run()
    assert done.exit_code == 0, done.err
    assert program.sent("counts") == {"N1": [1, 2, 1]}


@pytest.mark.exhaustive
def test_what_an_edit_adds_to_a_table_with_rows_is_right_or_refused(program: Program) -> None:
    program.write(FLIGHTS)
    assert program.do("apply", "shop.py").exit_code == 0
    flight = {"tail": "N1"}
    feed(program, ("planes", "N1", {"model": "A320"}), ("orders", "ann", {}))
    feed(program, *(("in", key, flight) for key in ("f1", "f2", "f3")))
    assert program.run().exit_code == 0

    program.write(FLIGHTS + GROUP.format("flights"))
    planned, refused = program.do("plan", "shop.py"), program.run()
    assert (planned.exit_code, refused.exit_code) == (1, 2), refused.err
    for text in (planned.out, refused.error):
        assert "store tails: added to sub-topology tails.keyed" in text
        assert "table store flights has rows of earlier runs" in text
        assert "eosframework reset APP" in text
    assert "and a backfill" in program.do("apply", "shop.py").error

    program.write(FLIGHTS + JOIN + GROUP.format("joined") + ACTIVITY)
    planned = program.do("plan", "shop.py")
    assert planned.exit_code == 0, planned.out
    assert "stop: store flights.join.subscribed: added to sub-topology flights, and" in planned.out
    assert "rows of earlier runs get no result until they change" in planned.out
    assert program.do("apply", "shop.py").exit_code == 0
    feed(program, ("in", "f1", flight), ("in", "f2", None), ("orders", "ann", {}))
    done = program.run()
    assert done.exit_code == 0, done.err
    assert program.sent("joined") == {"f1": [{"tail": "N1", "model": "A320"}]}
    assert program.sent("counts") == {"N1": [1]}, "f2 was not counted, so it is not taken back"
    assert program.sent("activity") == {"ann": [1]}
