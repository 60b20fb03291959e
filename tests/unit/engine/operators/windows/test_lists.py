"""Ranks and distinct values, with and without windows, against sorted lists of all values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from eosframework import Stream, Topology, hopping, session, sliding, tumbling
from eosframework.errors import TopologyError
from eosframework.serialization.annotations import type_name
from eosframework.testing import TopologyTestDriver
from eosframework.topology.dsl.streams import KeyedStream
from eosframework.topology.graph.description import as_text, describe
from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.loader import read_yaml
from eosframework.topology.resolve.resolve import resolve
from tests.unit.engine.operators.windows.bench import Bench, failed
from tests.unit.engine.operators.windows.functions import append, empty, itself, joined

NUMBERS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 6), st.integers(0, 60)), max_size=30
)
EXAMPLES = settings(deadline=None, max_examples=15)
WINDOWS = {
    "none": None,
    "tumbling": tumbling("10ms"),
    "hopping": hopping("20ms", every="5ms"),
    "sliding": sliding("10ms"),
    "session": session("4ms"),
    "records": sliding(records=6, step=2),
}


def of(kind: str, step: Callable[[Any], Stream]) -> Callable[[KeyedStream], Stream]:
    window = WINDOWS[kind]
    if window is None:
        return step
    grace = None if window.records else "1h"
    return lambda keyed: step(keyed.window(window, grace=grace))


def numbered(records: list[Any]) -> list[tuple[str, Any, int]]:
    """Return records whose values say which of several equal numbers came first."""
    return [(key, {"by": n, "at": i}, time) for i, (key, n, time) in enumerate(records)]


def play(bench: Bench, records: list[Any]) -> list[Any]:
    """Run records with a crash in between; what was not committed runs again."""
    half = len(records) // 2
    bench.send(*records[:half])
    bench.run()
    bench.commit()
    bench.send(*records[half:])
    bench.run()
    bench.crash()
    bench.run()
    bench.commit()
    return bench.results()


@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("operator", ["top", "bottom"])
@EXAMPLES
@given(records=NUMBERS, n=st.integers(1, 5))
def test_ranks_are_the_first_of_all_values_sorted(
    kind: str, operator: str, records: list[Any], n: int
) -> None:
    """What all values are, `append` says, which keeps each of them."""
    sent = numbered(records)
    merge: Any = {"merge": joined} if kind == "session" else {}
    everything = play(
        Bench(of(kind, lambda s: s.aggregate(empty, append, **merge)), value="json"), sent
    )
    ranks = play(Bench(of(kind, lambda s: getattr(s, operator)(n, by=number)), value="json"), sent)
    sign = -1 if operator == "top" else 1
    assert len(ranks) == len(everything)
    for (key, ranked, at), (_, whole, _) in zip(ranks, everything, strict=True):
        found, values = (ranked, whole) if kind == "none" else (ranked[2], whole[2])
        assert (key, at) == (key, at)
        if values is None:
            assert found is None
            continue
        wanted = sorted(values, key=lambda value: (sign * value["by"], value["at"]))[:n]
        if kind == "session":  # of equal numbers, those of the earlier session come first
            assert [v["by"] for v in found] == [v["by"] for v in wanted]
            assert all(v in values for v in found)
            assert len({v["at"] for v in found}) == len(found)
        else:
            assert found == wanted


def number(value: Any) -> Any:
    return value["by"]


@pytest.mark.parametrize("kind", WINDOWS)
@EXAMPLES
@given(records=NUMBERS)
def test_distinct_values_are_those_of_all_values_in_their_order(
    kind: str, records: list[Any]
) -> None:
    sent = numbered(records)
    merge: Any = {"merge": joined} if kind == "session" else {}
    whole = play(Bench(of(kind, lambda s: s.aggregate(empty, append, **merge)), value="json"), sent)
    found = play(Bench(of(kind, lambda s: s.distinct(by=number, limit=7)), value="json"), sent)
    for (key, listed, at), (other, all_, when) in zip(found, whole, strict=True):
        assert (key, at) == (other, when)
        members, values = (listed, all_) if kind == "none" else (listed[2], all_[2])
        assert members == (values and [*dict.fromkeys(value["by"] for value in values)])


@EXAMPLES
@given(records=NUMBERS, limit=st.integers(1, 3))
def test_over_the_limit_a_record_fails_and_the_list_stays_exact(
    records: list[Any], limit: int
) -> None:
    bench = Bench(
        lambda keyed: keyed.distinct(by=number, limit=limit).on_error("skip"), value="json"
    )
    sent = numbered(records)
    kept: defaultdict[str, list[int]] = defaultdict(list)
    wanted: list[Any] = []
    for key, value, _ in sent:
        members = kept[key]
        if value["by"] not in members and len(members) < limit:
            members.append(value["by"])
        elif value["by"] not in members:
            continue
        wanted.append((key, [*members]))
    bench.feed(*sent)
    assert [(key, value) for key, value, _ in bench.results()] == wanted
    assert bench.task.failures.skipped == len(sent) - len(wanted)


def test_over_the_limit_the_key_the_bound_and_the_way_out_are_named() -> None:
    bench = Bench(lambda keyed: keyed.distinct(by=itself, limit=2), value="json")
    bench.send(("a", "x", 1), ("a", "y", 2), ("a", "z", 3))
    message = str(failed(bench))
    for part in ("more than 2 distinct values, as 'z'", "raise limit:", "distinct("):
        assert part in message, message


@pytest.mark.parametrize(
    ("declare", "value", "complaint"),
    [
        (lambda keyed: keyed.top(2, by=itself), "x", "top takes numbers.*str: 'x'$"),
        (lambda keyed: keyed.bottom(2, by=lambda _: float("nan")), 1, "bottom was given nan"),
        (lambda keyed: keyed.distinct(by=itself, limit=2), 1.5, "texts and whole numbers.*float"),
        (lambda keyed: keyed.distinct(by=itself, limit=2), True, "texts and whole numbers.*bool"),
    ],
)
def test_what_has_no_order_or_no_identity_is_the_error_of_its_record(
    declare: Callable[[KeyedStream], Stream], value: Any, complaint: str
) -> None:
    bench = Bench(declare, value="json")
    bench.send(("a", value, 1))
    with pytest.raises(TypeError, match=complaint):
        raise failed(bench).__cause__ or AssertionError


class Sale(BaseModel):
    price: int
    item: str


def test_a_list_of_models_has_their_type() -> None:
    app = Topology("shop")
    sales = app.stream("sales", key=str, value=Sale).group_by_key()
    best = sales.window(tumbling("1h")).top(2, by=lambda sale: sale.price, emit="close")
    best.to("best")
    driver = TopologyTestDriver(app)
    for minute, price in enumerate([3, 9, 5, 9]):
        driver.send("sales", Sale(price=price, item=f"{minute}"), key="a", timestamp=minute)
    driver.send("sales", Sale(price=1, item="last"), key="a", timestamp=4_000_000)
    driver.run()
    (record,) = driver.read("best")
    assert record.value.value == [Sale(price=9, item="1"), Sale(price=9, item="3")]
    (store,) = resolve(app.loaded()).stores
    assert store.value.name == type_name(list[Sale])


HEAD = """
application: w
sources: {s: {topic: in, key: string, value: json, table: IS_TABLE}}
streams:
  a:
    from: s
    to: out
    steps:
"""


def with_steps(*steps: str, table: bool = False) -> Any:
    text = HEAD.replace("IS_TABLE", str(table).lower()) + "".join(
        f"    - {step}\n" for step in steps
    )
    return read_yaml(text, "app.yaml")


def test_yaml_and_python_say_the_same() -> None:
    written = with_steps(
        'top: {n: 5, by: "builtins:len", window: {tumbling: 1h}, emit: close, store: best}',
        'bottom: {n: 2, by: "builtins:len", store: least}',
        'distinct: {by: "builtins:str", limit: 10, store: kinds}',
    )
    app = Topology("w")
    stream = app.stream("in", key=str, value=dict, name="s").group_by_key()
    best = stream.window(tumbling("1h")).top(5, by=len, emit="close", store="best").group_by_key()
    least = best.bottom(2, by="builtins:len", store="least").group_by_key()
    least.distinct(by=str, limit=10, store="kinds").named("a").to("out")
    assert app.spec.streams["a"].steps == written.spec.streams["a"].steps


def test_description_and_store_name_the_bound() -> None:
    graph = resolve(with_steps('top: {n: 5, by: "builtins:len"}'))
    (step,) = describe(graph)["sub_topologies"][0]["keyed"]
    assert (step["operator"], step["bound"]) == ("top", 5)
    assert "top" in as_text(graph)


@pytest.mark.parametrize(
    ("step", "table", "complaint"),
    [
        ('top: {n: 0, by: "builtins:len"}', False, "greater than or equal to 1"),
        ('top: {n: 20000, by: "builtins:len"}', False, "less than or equal to 10000"),
        ('top: {by: "builtins:len"}', False, "n"),
        ('distinct: {by: "builtins:len"}', False, "limit"),
        ('top: {n: 3, by: "builtins:len"}', True, "top cannot take the changes of table 's'"),
        ('distinct: {limit: 3, by: "builtins:len"}', True, "distinct cannot take the changes"),
    ],
)
def test_what_does_not_fit_is_found_at_its_place(step: str, table: bool, complaint: str) -> None:
    (finding,) = lint(with_steps(step, table=table))
    assert complaint in finding.message
    assert finding.place.line == 9


def test_results_of_windows_are_listed_when_they_are_final() -> None:
    ranks = 'bottom: {n: 3, by: "builtins:len", store: least}'
    (finding,) = lint(with_steps("count: {window: {tumbling: 1h}}", ranks))
    assert "Let each window emit once, with emit: close" in finding.message
    assert lint(with_steps("count: {window: {tumbling: 1h}, emit: close}", ranks)) == []


def test_values_without_a_form_in_json_are_refused() -> None:
    app = Topology("w")
    app.stream("in", key=str, value=bytes).group_by_key().top(2, by=len).to("out")
    with pytest.raises(TopologyError, match=r"orders values of bytes.*at their source"):
        resolve(app.loaded())


def test_orjson_reads_what_was_kept() -> None:
    bench = Bench(lambda keyed: keyed.distinct(by=itself, limit=3), value="json")
    bench.feed(("a", "ü", 1), ("a", 7, 2))
    (store,) = bench.compiled.part.stores
    ((_, data),) = bench.kept.store(store.name).scan()
    assert orjson.loads(data[9:]) == ["ü", 7]
