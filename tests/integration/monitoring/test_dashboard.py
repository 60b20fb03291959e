"""Each panel of the dashboard shows something, by a real Prometheus over real processes."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from tests.support.applications.outbox import OutboxWorld
from tests.support.applications.pipeline import wait_until
from tests.support.applications.tables import TablesWorld
from tests.support.servers.prometheus import scraping
from tests.support.verifiers.asked import ANY_PORT, addresses_of, wait_until_ready
from tests.unit.deployment.files import queries

COUNTED_AND_KEPT = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
  notes: {pattern: 'NAME[.]notes[.].*', key: bytes, value: json}
streams:
  noted:
    from: notes
    to: {topic: NAME.noted, value: json}
  counted:
    from: numbers
    steps:
      - group_by: {by: "tests.support.applications.functions:tens_of_even", key: string}
      - count: {window: {tumbling: 1h}, emit: commit}
    to: {topic: NAME.counted}
  asked:
    from: numbers
    steps: [{map_async: "tests.support.applications.coroutines:double"}]
    to: {topic: NAME.asked, value: json}
  kept:
    from: numbers
    to: [{table: numbers, mode: append}]
"""


def as_grafana_asks(query: str) -> str:
    return query.replace("$application", ".*").replace("$__rate_interval", "1m")


def test_every_panel_shows_a_series_of_processes_at_work(
    make_tables: Callable[..., TablesWorld],
    make_outbox: Callable[..., OutboxWorld],
    tmp_path: Path,
) -> None:
    tables = make_tables(topology=COUNTED_AND_KEPT, partitions=2)
    tables.see("CREATE TABLE numbers (n bigint)")
    tables.apply()
    worker = tables.start_worker(settings=[f"worker.http_address={ANY_PORT}"])
    outboxes = [make_outbox(kind=kind) for kind in ("table", "slot")]
    relays = [o.start_relay(settings=[f"outbox.http_address={ANY_PORT}"]) for o in outboxes]
    targets = [*addresses_of(worker, 2), *(addresses_of(relay)[0] for relay in relays)]
    for target in targets:
        wait_until_ready(target)
    silent = {as_grafana_asks(query) for _, query in queries()}
    with scraping(targets, tmp_path / "prometheus") as prometheus:

        def all_tell() -> bool:
            # More each time: a rate is between two looks of which the later one saw more.
            tables.feed(50)
            for outbox in outboxes:
                outbox.publish(5)
            silent.difference_update({query for query in silent if prometheus.values(query)})
            return not silent

        try:
            wait_until(all_tell, "a value for every query", 600)
        except AssertionError as error:
            raise AssertionError(f"nothing for {silent}") from error
    for process in (worker, *relays):
        process.signal(signal.SIGTERM)
    assert [process.wait() for process in (worker, *relays)] == [0, 0, 0]
