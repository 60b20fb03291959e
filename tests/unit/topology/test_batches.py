"""Batch operators as they are declared, described and refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pydantic import BaseModel, Field

from eosframework import Topology
from eosframework.errors import TopologyError
from eosframework.topology.graph.description import describe
from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.loader import read_yaml
from eosframework.topology.resolve.resolve import resolve

HERE = "tests.unit.topology.test_batches"
ARROW = pa.schema([pa.field("price", pa.float64(), nullable=False), ("tags", pa.list_(pa.int8()))])


class Price(BaseModel):
    price: float
    amount: int = Field(alias="count")
    name: str | None = None


class Nested(BaseModel):
    tags: list[str]


def same(batch: Any) -> Any:
    return batch


def yaml_of(steps: str, source: str = "value: json") -> str:
    return f"""\
application: shop
sources:
  sold: {{topic: sold, {source}}}
streams:
  priced:
    from: sold
    steps: {steps}
    to: out
"""


def found(steps: str, source: str = "value: json") -> list[str]:
    return [str(finding) for finding in lint(read_yaml(yaml_of(steps, source), "app.yaml"))]


def test_python_and_yaml_give_the_same_spec() -> None:
    app = Topology("shop")
    sold = app.stream("sold", value="json")
    priced = sold.filter_batch(same, schema={"price": float, "n": "int8"}).map_batch(same)
    priced.named("priced").to("out")
    steps = (
        f"[{{filter_batch: {{call: '{HERE}:same', schema: {{price: float64, n: int8}}}}}}, "
        f"{{map_batch: '{HERE}:same'}}]"
    )
    read = read_yaml(yaml_of(steps), "app.yaml")
    assert app.loaded().spec == read.spec
    assert lint(read) == []


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"b": bool, "s": str, "at": "timestamp[ms]"}, ["bool", "string", "timestamp[ms]"]),
        (Price, ["double!", "int64!", "string"]),
        (f"{HERE}:Price", ["double!", "int64!", "string"]),
        (ARROW, ["double!", "list<item: int8>"]),
        (f"{HERE}:ARROW", ["double!", "list<item: int8>"]),
    ],
)
def test_describe_shows_the_columns(schema: Any, types: list[str]) -> None:
    app = Topology("shop")
    app.stream("sold", value="json").map_batch(same, schema=schema).to("out")
    [part] = describe(resolve(app.loaded()))["sub_topologies"]
    [step] = part["steps"]
    shown = [
        column["type"].replace("float64", "double") + "!" * column["required"]
        for column in step["columns"]
    ]
    assert (step["operator"], shown) == ("map_batch", types)


def test_fields_go_by_their_alias() -> None:
    app = Topology("shop")
    app.stream("sold", value="json").map_batch(same, schema=Price).to("out")
    [part] = describe(resolve(app.loaded()))["sub_topologies"]
    assert [column["name"] for column in part["steps"][0]["columns"]] == ["price", "count", "name"]


BATCH = f"{{map_batch: {{call: '{HERE}:same', schema: {{n: int64}}}}}}"


@pytest.mark.parametrize(
    ("steps", "source", "message"),
    [
        (f"[{{filter: 'builtins:bool'}}, {BATCH}]", "value: json", "cannot stand here"),
        (f"[{BATCH}]", "value: string", "directly follows a source with value: json"),
        (f"[{BATCH}]", "value: json, table: true, key: string", "cannot stand here"),
        (f"[{{group_by: 'builtins:id'}}, {BATCH}]", "value: json", "cannot stand here"),
        ("[{map_batch: 'builtins:id'}]", "value: json", "declares no columns; state its schema"),
        (f"[{BATCH}, {BATCH}]", "value: json", "leave out its schema"),
        (f"[{BATCH.replace('int64', 'int6')}]", "value: json", "did you mean 'int64'"),
        (f"[{BATCH.replace('{n: int64}', '{}')}]", "value: json", "at least one; found none"),
        (f"[{BATCH.replace('{n: int64}', 'nowhere:X')}]", "value: json", "no module 'nowhere'"),
        (f"[{BATCH.replace('{n: int64}', 'builtins:id')}]", "value: json", "which is no schema"),
        (f"[{BATCH.replace('{n: int64}', f'{HERE}:Nested')}]", "value: json", "field 'tags'"),
        (f"[{BATCH.replace('schema', 'schem')}]", "value: json", "did you mean 'schema'"),
    ],
)
def test_what_cannot_be_is_told_with_its_place(steps: str, source: str, message: str) -> None:
    [finding] = found(steps, source)
    assert message in finding
    assert finding.startswith("app.yaml:7:")


def test_streams_may_go_on_with_columns_of_others() -> None:
    app = Topology("shop")
    sold = app.stream("sold", value="json").map_batch(same, schema={"n": int}).named("read")
    sold.to("a")
    sold.filter_batch(same).to("b")
    sold.map_values(same).to("c")
    assert lint(app.loaded()) == []
    rows = app.stream("others", value="json").map_values(same).named("rows")
    rows.to("d")
    rows.map_batch(same, schema={"n": int}).to("e")
    [finding] = lint(app.loaded())
    assert "map_batch" in finding.message
    assert "cannot stand here" in finding.message


def test_what_cannot_take_the_new_values_is_found() -> None:
    app = Topology("shop")
    sold = app.stream("sold", value="json").map_batch(same, schema={"n": int}).named("read")
    sold.to("a", value="json")
    sold.to("b", value=Price)
    sold.to_table("c", model=Price)
    sold.to_table("d", model=Price, value="json")
    sold.to_table("e", model=Price, row=same)
    found = [finding.message for finding in lint(app.loaded()) if finding.rule == "batch"]
    assert len(found) == 2
    assert all("Price', which takes none; state value: json" in message for message in found)


def test_without_pyarrow_it_is_said_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eosframework.topology.lint.lint_steps.find_spec", lambda name: None)
    [finding] = found(f"[{BATCH}]")
    assert "needs pyarrow; install it: pip install 'eosframework[arrow]'" in finding


def test_a_schema_that_is_none_is_refused_where_it_is_given() -> None:
    sold = Topology("shop").stream("sold", value="json")
    with pytest.raises(TopologyError, match=r"test_batches\.py:\d+:\d+: map_batch: column 'n' has"):
        sold.map_batch(same, schema={"n": list})
