"""The dashboard asks for what is told, and for all of it."""

from __future__ import annotations

import re

from eosframework.application.monitoring.metrics.catalogue import METRICS, Kind
from tests.unit.deployment.files import dashboard, queries

EVERY_CLIENT_TELLS = {"process_cpu_seconds_total", "process_resident_memory_bytes"}


def asked() -> set[str]:
    """Names of metrics in the queries, of histograms without what Prometheus adds."""
    found = {name for _, query in queries() for name in re.findall(r"\b(\w+)[{]", query)}
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in found}


def test_it_asks_only_for_metrics_that_are_told() -> None:
    assert asked() - EVERY_CLIENT_TELLS <= {metric.full_name for metric in METRICS}


def test_it_shows_every_metric() -> None:
    assert {metric.full_name for metric in METRICS} <= asked()


def test_labels_that_it_asks_by_are_those_of_the_metric() -> None:
    labels = {m.full_name: {"application", "instance", "le", *m.labels} for m in METRICS}
    for title, query in queries():
        by = {
            label for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(", ")
        }
        for name in re.findall(r"\b(eosframework_\w+)[{]", query):
            metric = re.sub(r"_(bucket|sum|count)$", "", name)
            assert by <= labels[metric], title


def test_counters_are_asked_for_how_fast_they_rise() -> None:
    rising = {m.full_name for m in METRICS if m.kind is Kind.COUNTER}
    for title, query in queries():
        for name in re.findall(r"\b(eosframework_\w+)[{]", query):
            inside = re.search(rf"(rate|increase)\({name}", query)
            assert bool(inside) == (
                name in rising or bool(re.search("_(bucket|sum|count)$", name))
            ), title


def test_every_panel_says_what_to_make_of_it() -> None:
    panels = [panel for panel in dashboard()["panels"] if panel["type"] != "row"]
    assert all(panel["description"] for panel in panels)
    assert len({panel["id"] for panel in dashboard()["panels"]}) == len(dashboard()["panels"])
