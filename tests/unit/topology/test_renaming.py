"""A topology beside itself: everything that it writes has another name, what it reads has not."""

from __future__ import annotations

import inspect

import pytest

from eosframework import Record
from eosframework.errors import ConfigurationError
from eosframework.topology.graph.graph import Function, Graph
from eosframework.topology.renaming import renamed
from eosframework.topology.resolve.resolve import resolve
from eosframework.topology.spec.loaded import LoadedApp
from tests.unit.topology.apps import by_carrier, read

APP = """
application: flights
sources:
  flights: {topic: flights.raw, key: string, value: json, on_error: {dead_letter: flights.bad}}
  delayed: {topic: flights.late, key: string, value: json}
  names: {topic: names, key: string, value: json, table: true}
streams:
  late:
    from: flights
    steps:
      - filter: "m:is_late"
      - deduplicate: {within: 1h, late: flights.too_late}
    on_error: {dead_letter: flights.dead}
    to: [flights.late, {table: late}, {table: stats.late, mode: upsert, keys: [key]}]
  chosen:
    from: flights
    to: [{topic_from: "m:by_carrier", topics: [flights.AA, flights.UA]}]
  counted:
    from: delayed
    steps:
      - count: {window: {tumbling: 1h, late: flights.late_counts}, emit: close}
    to: flights.counts
"""


def beside(text: str = APP) -> tuple[LoadedApp, Graph]:
    app = renamed(read(text), "v2")
    return app, resolve(app)


def topics(graph: Graph) -> set[str]:
    return {topic for part in graph.sub_topologies for topic in part.sink_topics}


def test_everything_written_has_the_suffix_and_nothing_else() -> None:
    before, after = resolve(read(APP)), beside()[1]
    assert after.application == "flights_v2"
    written = {f"{topic}_v2" for topic in topics(before) - {"flights-late-rows"}}
    assert topics(after) == written | {"flights_v2-late-rows"}
    assert [t.table for p in after.table_sinks for t in p.tables] == ["late_v2", "stats.late_v2"]


def test_a_source_follows_only_where_the_application_writes_it() -> None:
    app, _ = beside()
    assert {name: source.topic for name, source in app.spec.sources.items()} == {
        "flights": "flights.raw",
        "delayed": "flights.late_v2",
        "names": "names",
    }


def test_topics_of_its_own_are_others() -> None:
    before, after = resolve(read(APP)), beside()[1]
    stores = [
        {s.changelog for part in g.sub_topologies for s in part.stores} for g in (before, after)
    ]
    assert stores[0]
    assert stores[0].isdisjoint(stores[1])
    assert all(changelog.startswith("flights_v2-") for changelog in stores[1])


def test_a_chosen_topic_has_the_suffix_and_its_function_is_still_known() -> None:
    app, _ = beside()
    _, sink = app.spec.streams["chosen"].sinks[0]
    chooser = Function(f"{sink.topic_from}", app.find(f"{sink.topic_from}"))
    assert chooser.call(Record("AA", {}, 0)) == "flights.AA_v2"
    assert sink.topics == ("flights.AA_v2", "flights.UA_v2")
    assert inspect.unwrap(chooser.call) is by_carrier


def test_records_that_are_late_go_beside() -> None:
    app, _ = beside()
    [deduplicate] = [s.deduplicate for s in app.spec.streams["late"].steps if s.deduplicate]
    [count] = [s.count for s in app.spec.streams["counted"].steps if s.count]
    assert deduplicate.late == "flights.too_late_v2"
    assert count.window is not None
    assert count.window.late == "flights.late_counts_v2"


def test_what_was_given_is_not_changed() -> None:
    app = read(APP)
    before = app.spec.model_dump()
    renamed(app, "v2")
    assert app.spec.model_dump() == before


@pytest.mark.parametrize("suffix", ["", "V2", "v-2", "v.2", "x" * 41])
def test_a_suffix_that_fits_no_name_is_refused(suffix: str) -> None:
    with pytest.raises(ConfigurationError, match="lower-case"):
        renamed(read(APP), suffix)


def test_a_table_whose_name_would_be_cut_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="63"):
        renamed(read(APP.replace("{table: late}", f"{{table: {'t' * 60}}}")), "longer")
