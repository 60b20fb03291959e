"""The results of windows are written by the serde that their aggregate declares."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from eosframework import Topology, WindowResult, dead_letter, tumbling
from eosframework.engine.task.late_results import EmittedResult
from eosframework.serialization.serdes import JSON, WINDOW, Serde, serde_of, window_serde
from eosframework.testing import TopologyTestDriver

START = 1_700_000_000_000 // 60_000 * 60_000
MONEY = Serde(
    "money", lambda money: f"{money:f} EUR".encode(), lambda data: Decimal(data[:-4].decode())
)


class Total(BaseModel):
    cents: int = 0
    items: list[str] = []


def add(total: Total, order: dict[str, Any]) -> Total:
    return Total(cents=total.cents + order["cents"], items=[*total.items, "x"])


def price(order: dict[str, Any]) -> Decimal:
    return Decimal(order["cents"]) / 100


def refuse(result: Any) -> Any:
    raise ValueError(f"no {type(result.value).__name__}")


def windows(app: Topology) -> Any:
    orders = app.stream("orders", key=str, value=dict)
    return orders.group_by_key().window(tumbling(timedelta(minutes=1)))


def run(app: Topology) -> TopologyTestDriver:
    driver = TopologyTestDriver(app)
    for at, cents in ((START, 150), (START + 1, 25), (START + 120_000, 1)):
        driver.send("orders", {"cents": cents}, key="u", timestamp=at)
    driver.run()
    return driver


@pytest.mark.parametrize("emit", ["close", "each"])
def test_a_serde_of_the_user_writes_the_result(emit: Any) -> None:
    app = Topology("shop")
    windows(app).sum(price, value=MONEY, store="spent", emit=emit).to("spent")
    values = [record.value for record in run(app).read("spent")]
    assert WindowResult(START, START + 60_000, Decimal("1.75")) in values


def test_a_model_stays_a_model_through_a_repartition_topic() -> None:
    app = Topology("shop")
    totals = windows(app).aggregate(Total, add, value=Total, store="totals", emit="close")
    every = totals.group_by(lambda record: "all", key=str, name="every")
    every.count(store="seen").to("seen", value=int)
    totals.to("totals")
    driver = run(app)
    [*_, last] = [r.value for r in driver.read("totals") if r.value.start == START]
    assert last.value == Total(cents=175, items=["x", "x"])
    assert driver.read("seen")


def test_a_result_that_fails_is_a_dead_letter_with_its_value() -> None:

    app = Topology("shop")
    sums = windows(app).sum(price, value=MONEY, store="spent", emit="close")
    sums.map_values(refuse).on_error(dead_letter("orders.dead")).to("spent", value="json")
    [letter] = run(app).read("orders.dead")
    assert (letter.key, letter.value) == (
        b"u",
        b'{"start":%d,"end":%d,"value":"1.75 EUR"}' % (START, START + 60_000),
    )


@pytest.mark.parametrize("bad", [object(), Decimal("1.5"), {"a": {1}}])
def test_a_result_that_its_serde_does_not_write_is_shown_in_its_dead_letter(bad: Any) -> None:
    result = EmittedResult("changelog", 0, b"key", bad, 1, JSON)
    assert result.value() == repr(bad).encode()


def test_a_result_whose_own_text_fails_is_shown_by_its_class() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise ValueError

    assert EmittedResult("changelog", 0, b"key", Broken(), 1, JSON).value() == b"<Broken>"


def test_plain_aggregates_have_the_one_serde() -> None:
    assert window_serde(serde_of(int)) is WINDOW
    assert serde_of(window_serde(serde_of(Total)).name) is window_serde(serde_of(Total))
    nothing = WindowResult(1, 2, None)
    serde = window_serde(MONEY)
    assert serde.encode is not None
    assert serde.decode is not None
    assert serde.decode(serde.encode(nothing)) == nothing
    assert serde.decode(serde.encode({"other": 1})) == {"other": 1}
