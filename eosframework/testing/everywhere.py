"""Repetitions of a scenario under conditions that must not change its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from eosframework.engine.operators.watermarks import WATERMARK_KEY
from eosframework.testing.topology_test_driver import TopologyTestDriver, graph_of
from eosframework.topology.dsl.builder import Topology
from eosframework.topology.graph.graph import Aggregate, Emit, Graph
from eosframework.topology.graph.walk import nodes_of

BATCH_ROWS = (1, 2)
"""Sizes of batches with which a scenario is repeated."""


def crash_everywhere(
    app: Topology | Graph | str,
    scenario: Callable[[TopologyTestDriver], None],
    *,
    partitions: int | Mapping[str, int] = 1,
) -> int:
    """Run a scenario once without a crash, then once per step of the cycle with a crash there.

    Each run must end with the same last value of every key in every topic, and the same stores and
    rows of tables with `commit="together"`, as the run without a crash; with one partition also
    with the same records in between.

    Args:
        app: as for the driver.
        scenario: sends records and runs them.
        partitions: as for the driver.

    Returns:
        The number of steps at which it crashed.

    Raises:
        AssertionError: names the step and the difference.
    """
    graph = graph_of(app)
    whole = TopologyTestDriver(graph, partitions=partitions)
    scenario(whole)
    expected = _outcome(whole)
    for step in range(1, whole.steps + 1):
        driver = TopologyTestDriver(graph, partitions=partitions)
        driver.crash_at(step)
        scenario(driver)
        assert driver.crashed, f"the scenario did not come to step {step}; is it deterministic?"
        _compare(_outcome(driver), expected, f"after a crash at step {step} of {whole.steps}")
    return whole.steps


def cut_everywhere(
    app: Topology | Graph | str,
    scenario: Callable[[TopologyTestDriver], None],
    *,
    partitions: int | Mapping[str, int] = 1,
) -> None:
    """Run a scenario with records in batches as they come, then one by one and two by two.

    Each run must have the same result: the sizes of a worker's batches vary, and are others after a
    crash.

    Args:
        app: as for the driver; has batch operators.
        scenario: sends records and runs them.
        partitions: as for the driver.

    Raises:
        AssertionError: names the size and the difference.
    """
    graph = graph_of(app)
    whole = TopologyTestDriver(graph, partitions=partitions)
    scenario(whole)
    expected = _outcome(whole)
    for rows in BATCH_ROWS:
        driver = TopologyTestDriver(graph, partitions=partitions, batch_rows=rows)
        scenario(driver)
        _compare(_outcome(driver), expected, f"in batches of at most {rows}")


def _compare(found: Mapping[str, Any], expected: Mapping[str, Any], when: str) -> None:
    for name in expected:
        assert found[name] == expected[name], (
            f"{when}, {name} differs: {found[name]!r:.500}, expected {expected[name]!r:.500}"
        )


def _outcome(driver: TopologyTestDriver) -> dict[str, Any]:
    """Return the result of a scenario: all records if their order is given, else the last ones.

    Watermarks are left out: a task announces its time once more after each takeover.
    """
    graph, outcome = driver.graph, dict[str, Any]()
    exact = max(driver.tasks.values(), default=1) == 1 and not _emits_at_commits(graph)
    topics = {topic for part in graph.sub_topologies for topic in part.sink_topics}
    for topic in sorted(topics):
        logs = [driver.kafka.logs[p] for p in driver.kafka.partitions_of(topic)]
        found = (message for log in logs for message in log.messages)
        records = [(m.key_, m.value_, m.timestamp_) for m in found if m.key_ != WATERMARK_KEY]
        last = {key: value for key, value, _ in records}
        outcome[f"topic {topic}"] = records if exact else last
    for part in graph.sub_topologies:
        for store in part.stores:
            outcome[f"store {store.name}"] = driver.state(store.name)
    for table in sorted({table.table for sink in graph.together for table in sink.tables}):
        rows = driver.rows(table)
        outcome[f"table {table}"] = rows if exact else sorted(map(repr, rows))
    return outcome


def _emits_at_commits(graph: Graph) -> bool:
    return any(
        isinstance(node, Aggregate) and node.emit is Emit.COMMIT
        for part in graph.sub_topologies
        for node in nodes_of(part)
    )
