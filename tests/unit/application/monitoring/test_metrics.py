"""Each metric is declared once, told as Prometheus wants it, and never per partition."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from eosframework.application.monitoring.metrics.catalogue import (
    METRICS,
    Kind,
    MetricValues,
    Process,
)
from eosframework.application.monitoring.metrics.observer import (
    Exposition,
    relay_values,
    tables_values,
    transforms_values,
)
from eosframework.engine.calls.call_figures import CallFigures
from eosframework.engine.histograms import HistogramSnapshot
from eosframework.engine.stores.state_ports import StoreStats
from eosframework.engine.task.measurements import Measures
from eosframework.engine.worker.worker_plan import WorkerCounts
from eosframework.engine.worker.worker_views import TaskView, WorkerView
from eosframework.kafka.client.statistics import Clients, ClientsSeen, Ends
from eosframework.postgres.outbox.relay import RelayView
from eosframework.postgres.outbox.relay_position import Backlog, RelayCounts
from eosframework.records import TopicPartition

SEEN = ClientsSeen(
    {"consumer": Clients(None, 1, 2, 3000), "producer": Clients(0.01, 4, 5, 6000)},
    {TopicPartition("in", 0): Ends(100, 110), TopicPartition("in", 1): Ends(50, 50)},
    rebalances=7,
)
PARTITIONS = {TopicPartition("in", 0): 60, TopicPartition("in", 1): 50}
ALWAYS = {"info", "ready", "turn_age_seconds"}
"""Told of every process, whatever its view."""


def measured() -> Measures:
    measures = Measures()
    measures.read["in"] += 10
    measures.written.update({"out": 8, "dead": 2})
    for seconds in (0.001, 0.005, 0.3, 100.0):
        measures.commit_seconds.add(seconds)
    return measures


def worker_view() -> WorkerView:
    tasks = tuple(
        TaskView(f"part[{p.partition}]", "running", {p: PARTITIONS[p]}) for p in PARTITIONS
    )
    counts = WorkerCounts(commits=3, aborts=1, dead_letters=2, unknown_outcomes=4, restoring=9)
    calls = CallFigures()
    calls.seconds.add(0.3)
    calls.wanted, calls.in_flight, calls.retries, calls.timeouts = 7, 4, 2, 1
    of_step = {"priced map_async": calls.snapshot()}
    return WorkerView(counts, tasks, True, measured().snapshot(), calls=of_step)


def relay_view() -> RelayView:
    backlog = Backlog(messages=5, oldest_seconds=1.5, log_bytes=70)
    return RelayView(
        RelayCounts(commits=2), {0: True, 1: False}, False, None, measured().snapshot(), backlog
    )


def all_figures() -> dict[Process, MetricValues]:
    stores = [StoreStats("counts", 5, 100, 20), StoreStats("counts", 6, 1, 0)]
    return {
        Process.TRANSFORMS: transforms_values(worker_view(), SEEN, stores),
        Process.TABLES: tables_values(
            worker_view(), replace(SEEN, clients={"consumer": SEEN.clients["consumer"]})
        ),
        Process.RELAY: relay_values(relay_view(), SEEN),
    }


def scraped(figures: MetricValues) -> dict[tuple[str, ...], float]:
    """Read the text as Prometheus would: samples by name and labels but the application's."""
    text = Exposition("app", lambda: figures).text().decode()
    return {
        (sample.name, *(v for k, v in sorted(sample.labels.items()) if k != "application")): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("eosframework_") and sample.labels["application"] == "app"
    }


def test_every_process_tells_the_metrics_that_are_declared_for_it_and_no_others() -> None:
    for process, figures in all_figures().items():
        declared = {metric.name for metric in METRICS if process in metric.exposed_by}
        assert set(figures) == declared - ALWAYS, process
        labels = {metric.name: len(metric.labels) for metric in METRICS}
        for name, values in figures.items():
            assert all(len(given) == labels[name] for given, _ in values), name


def test_names_and_units_follow_the_conventions_of_prometheus() -> None:
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    for metric in METRICS:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER), metric.name
        assert not re.search(r"(_ms|_millis|_kb|_minutes)(_|$)", metric.name)
        for text in (metric.what, metric.normal, metric.otherwise):
            assert text.endswith("."), metric.name


def test_no_label_grows_with_partitions_tasks_or_keys() -> None:
    bounded = {"topic", "step", "table", "store", "client", "state", "outcome", "pattern"}
    of_process = {"instance_name", "process", "version"}
    assert {label for metric in METRICS for label in metric.labels} <= bounded | of_process


def test_values_arrive_in_prometheus_text_as_they_are() -> None:
    found = scraped(all_figures()[Process.TRANSFORMS])
    assert found["eosframework_records_read_total", "in"] == 10
    assert found["eosframework_records_written_total", "dead"] == 2
    assert found["eosframework_transactions_total", "committed"] == 3
    assert found["eosframework_transactions_total", "aborted"] == 1
    assert found["eosframework_unknown_outcomes_total",] == 4
    assert found["eosframework_restore_records",] == 9
    assert found["eosframework_store_bytes", "counts"] == 121
    assert found["eosframework_store_keys", "counts"] == 11
    assert found["eosframework_tasks", "running"] == 2
    assert found["eosframework_client_disconnects_total", "producer"] == 4
    assert found["eosframework_rebalances_total",] == 7


def test_buckets_are_cumulative_and_a_value_on_a_bound_is_in_its_bucket() -> None:
    found = scraped(all_figures()[Process.TRANSFORMS])
    buckets = {
        float(key[1]): value
        for key, value in found.items()
        if key[0] == "eosframework_commit_seconds_bucket"
    }
    assert buckets[0.005] == 2
    assert buckets[0.25] == 2
    assert buckets[0.5] == 3
    assert buckets[30.0] == 3
    assert buckets[math.inf] == found["eosframework_commit_seconds_count",] == 4
    assert math.isclose(found["eosframework_commit_seconds_sum",], 100.306)


def test_lag_ends_at_the_last_stable_offset_and_what_is_behind_it_is_held_back() -> None:
    found = scraped(all_figures()[Process.TRANSFORMS])
    assert found["eosframework_lag_records", "in"] == 40
    assert found["eosframework_largest_lag_records", "in"] == 40
    assert found["eosframework_held_back_records", "in"] == 10


def test_what_is_not_known_is_not_told() -> None:
    view = worker_view()
    found = scraped(transforms_values(view, ClientsSeen(), []))
    assert not any("lag" in key[0] or "client" in key[0] for key in found)
    relay = relay_view()
    slot = RelayView(relay.counts, relay.shards, False, None, relay.measured, Backlog(log_bytes=70))
    assert ("eosframework_outbox_backlog_messages",) not in scraped(relay_values(slot, SEEN))
    assert scraped(relay_values(slot, SEEN))["eosframework_outbox_backlog_bytes",] == 70


def test_the_process_itself_is_told_by_the_names_of_all_prometheus_clients() -> None:
    text = Exposition("app", lambda: dict[str, Any]()).text().decode()
    assert "process_cpu_seconds_total" in text
    assert "process_resident_memory_bytes" in text


def test_an_empty_distribution_has_all_buckets() -> None:
    empty: Mapping[str, Any] = {"commit_seconds": [((), HistogramSnapshot((1.0,), (0, 0), 0.0))]}
    assert scraped(empty)["eosframework_commit_seconds_bucket", "+Inf"] == 0
