"""A console whose readings are fed: real pages of an application of any size, without a cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from eosframework.application.composition.application_status import (
    ApplicationStatus,
    PartitionStatus,
    TaskFailure,
    TaskStatus,
)
from eosframework.application.monitoring.http.http_server import answering, listen
from eosframework.config import Settings
from eosframework.kafka.admin.metadata import GroupMember
from eosframework.operations.console.access import Access
from eosframework.operations.console.application import Application, Overview
from eosframework.operations.console.readings import History, Reading
from eosframework.operations.console.server import site_of
from eosframework.records import TopicPartition

FUNCTIONS = "tests.support.applications.functions"

_PIPELINE = """\
  {name}:
    from: {name}_in
    on_error: {{dead_letter: shop.dead}}
    steps:
      - filter: "{functions}:by_chance"
      - map_values: "{functions}:double"
      - group_by: {{by: "{functions}:tens", key: string, name: {name}_by_ten}}
      - count: {{store: {name}_counts, window: {{tumbling: 1h, grace: 1m}}}}
    to: [{{topic: shop.{name}.totals}}]
"""

_NAMES = ("orders", "payments", "refunds", "parcels", "visits", "prices", "stock", "reviews")


def names_of(pipelines: int) -> list[str]:
    return [f"{_NAMES[n % 8]}{n // 8 or ''}" for n in range(pipelines)]


def topology_of(pipelines: int) -> str:
    """A topology with two sub-topologies for each pipeline."""
    names = names_of(pipelines)
    sources = [f"  {name}_in: {{topic: shop.{name}, value: json}}" for name in names]
    streams = [_PIPELINE.format(name=name, functions=FUNCTIONS) for name in names]
    head = ["application: shop", "sources:", *sources, "streams:"]
    return "\n".join([*head, *streams])


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class FedApplication(Application):
    """An application whose readings are what it was fed.

    Attributes:
        fed: readings by name; others have no value.
    """

    def __init__(self, file: Path, addresses: Sequence[str] = ()) -> None:
        super().__init__(str(file), Settings(), addresses)
        self.clock = Clock()
        self.history = History(self.clock)
        self.fed: dict[str, Reading[Any]] = {}

    def read(self, name: str, read: Any, max_age_seconds: float) -> Reading[Any]:
        return self.fed.get(name, Reading())

    def known(self, name: str) -> Reading[Any]:
        return self.fed.get(name, Reading())

    def new_dead_letters(self) -> Any:
        return self.known("dead letters").value

    def feed(self, name: str, value: Any, error: str | None = None) -> None:
        self.fed[name] = Reading(value, datetime.now(UTC), error)


INSTANCE = "shop.worker{}"


def status_of(
    app: FedApplication,
    partitions: int,
    *,
    owners: int = 3,
    failures: Sequence[tuple[str, str, str]] = (),
) -> ApplicationStatus:
    """A status with tasks of each sub-topology, their lag spread over all levels."""
    graph = app.graph()
    tasks: list[TaskStatus] = []
    for part in graph.sub_topologies:
        for number in range(partitions):
            count = len(tasks)
            lag = 0 if count % 3 else (count * 37) % 20_000 if count % 9 == 0 else count % 1000
            owner = INSTANCE.format(count % owners) if owners else None
            places = [
                PartitionStatus(f"{source.topic}[{number}]", 1000 + 7 * count, lag, 0)
                for source in part.sources
            ]
            tasks.append(TaskStatus(f"{part.name}[{number}]", "transforms", owner, tuple(places)))
    members = tuple(
        GroupMember(
            INSTANCE.format(n),
            f"10.0.0.{n + 1}",
            tuple(
                TopicPartition(*_parsed(p.partition))
                for task in tasks
                if task.owner == INSTANCE.format(n)
                for p in task.partitions
            ),
        )
        for n in range(owners)
    )
    stopped = tuple(
        TaskFailure(task, "transforms", record, error, INSTANCE.format(0), 1_770_000_000_000)
        for task, record, error in failures
    )
    return ApplicationStatus("shop", {"transforms": members}, tuple(tasks), (), stopped)


def _parsed(name: str) -> tuple[str, int]:
    topic, _, number = name.rstrip("]").rpartition("[")
    return topic, int(number)


def feed_status(app: FedApplication, status: ApplicationStatus, error: str | None = None) -> None:
    """Feed the status, and what asked workers would answer about their tasks."""
    app.feed("overview", Overview(status, status.as_data()), error)
    app.history.observe(status, {})
    app.feed("writers", {t.task: f"shop:worker.{t.owner}:0" for t in status.tasks if t.owner})
    for number, address in enumerate(app.addresses):
        instance = INSTANCE.format(number)
        own = [task.task for task in status.tasks if task.owner == instance]
        answer: dict[str, Any] = {
            "application": "shop",
            "instance": instance,
            "process": "transforms",
            "ready": True,
            "reasons": [],
            "tasks": [{"task": task, "state": "running", "waits_for": []} for task in own],
            "records": 123_456,
            "commits": 4321,
            "late": [],
            "keyless": [],
        }
        app.feed(f"ask {address}", answer)


def feed_rates(app: FedApplication) -> None:
    """Feed committed offsets and ends that move, so that topics have rates."""
    overview: Overview | None = app.fed["overview"].value
    assert overview is not None
    status = overview.status
    app.history.observe(status, _ends(app, 0))
    moved = [
        replace(
            task,
            partitions=tuple(
                replace(p, committed=(p.committed or 0) + 900 + 400 * (len(p.partition) % 5))
                for p in task.partitions
            ),
        )
        for task in status.tasks
    ]
    app.clock.seconds += 10
    app.history.observe(replace(status, tasks=tuple(moved)), _ends(app, 700))


def _ends(app: FedApplication, offset: int) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, 0): offset for topic in app.graph().written_topics}


def feed_history(app: FedApplication, minutes: int = 30) -> None:
    """Feed metrics of the last minutes, with a burst of lag in the middle."""
    now = time.time()
    for step in range(minutes * 6 + 1):
        at = now - minutes * 60 + step * 10
        burst = 1 + 3 * (60 <= step < 90)
        for number, address in enumerate(app.addresses):
            app.memory.take(address, at, metrics_text(step, number, burst))
        lag = 200.0 + (step * 53) % 90 + (4000.0 - abs(75 - step) * 200 if burst > 1 else 0)
        app.memory.add_point(at, lag, None)


def metrics_text(step: int, number: int, burst: int) -> str:
    """A worker's answer to `/metrics`."""
    own = '{application="shop"}'
    count = step * 120
    slow = step * 4 * burst
    topic = '{application="shop",topic="shop.orders"}'
    lines = [
        f"eosframework_records_read_total{topic} {step * 12_000 + (step * 977) % 4000}",
        f"eosframework_records_written_total{topic} {step * 8000 + (step * 631) % 3000}",
        f"eosframework_dead_letters_total{own} {step // 40 if number == 0 else 0}",
        f"eosframework_retries_total{own} {step // 7}",
        f"eosframework_skipped_records_total{own} 0",
        f'eosframework_transactions_total{{application="shop",outcome="aborted"}} {step // 30}',
        f'eosframework_transactions_total{{application="shop",outcome="committed"}} {count}',
        f"eosframework_ready{own} 1",
        f"eosframework_fences_total{own} 0",
    ]
    for bound, share in (("0.025", 0.6), ("0.05", 0.9), ("0.1", 0.97), ("0.5", 1), ("+Inf", 1)):
        value = count * share - (slow if share < 1 else 0)
        lines.append(
            f'eosframework_commit_seconds_bucket{{application="shop",le="{bound}"}} {value:.0f}'
        )
    return "\n".join(lines) + "\n"


HOUR_MS = 3_600_000
WINDOW_MS = 1_772_359_200_000
"""2026-03-01 10:00:00 UTC."""


def feed_pages(app: FedApplication) -> None:
    """Feed what the pages of positions, transactions, state, dead letters and backfills show."""
    at = datetime(2026, 3, 1, 10, 0, 0, 123_000, UTC)
    long_id = f"shop:worker.{'a-host-with-a-long-name.' * 3}0:0"
    place = {"topic": "shop.orders", "partition": 11}
    rows = [
        {**place, "partition": n, "committed": 1_234_567, "committed_before": True}
        | {"first": 0, "end": 1_234_890}
        for n in range(3)
    ]
    app.feed("positions", rows)
    transaction = {"transactional_id": long_id, "state": "Ongoing", "open_seconds": 61.5}
    listed = {**transaction, "producer_id": 4711, "coordinator": 1}
    app.feed("ids", [listed])
    entry = {
        **place,
        "transaction": transaction,
        "producer_id": 4711,
        "producer_epoch": 3,
        "start_offset": 1_234_567,
        "last_stable_offset": 1_234_567,
        "held_back": 323,
        "health": "healthy",
        "meaning": "its coordinator aborts it by itself in 585 s, unless its producer ends it",
    }
    end = "eosframework txn commit --topic shop.orders --partition 11 --producer-id 4711"
    found = {"hanging": [entry], "healthy": [entry], "overdue": [listed], "remedies": [end]}
    app.feed("transactions", found)
    states = [
        {"state": name, "time": at + timedelta(milliseconds=n * 40), "joined": joined}
        for n, (name, joined) in enumerate(
            (("Ongoing", [place]), ("PrepareCommit", []), ("CompleteCommit", []))
        )
    ]
    traced = {
        "committed": True,
        "started": at,
        "producer_id": 4711,
        "producer_epoch": 3,
        "states": states,
        "markers": [{**place, "offset": 1_234_890, "committed": True, "time": states[2]["time"]}],
        "written": [],
        "offsets": [],
        "missing_markers": [],
    }
    app.feed(f"trace {long_id}", {"transactions": [traced]})
    group = {
        "topic": "shop.dead",
        "input": "shop.payments",
        "step": f"payments.by_key.steps[1] map_values({FUNCTIONS}:double)",
        "error": "KeyError: 'a-field-with-a-name-that-is-longer-than-a-narrow-window-is-wide'",
        "error_type": "KeyError",
        "count": 42,
        "replayed": 0,
        "example": "shop.dead[0]@5",
        "first_failed_at": at,
        "last_failed_at": at,
    }
    app.feed("dead letters", {"topics": ["shop.dead"], "groups": [group], "foreign": {}})
    letter = {
        **{name: group[name] for name in ("topic", "input", "step", "error")},
        "value": {"a-field-with-a-long-name-" * 4: "a-value-without-a-space-" * 8},
        "headers": [{"name": "__eos.errors.step", "value": group["step"]}],
    }
    app.feed("letter shop.dead[0]@5", letter)
    stage = {
        "stage": "orders.keyed",
        "complete": False,
        "total": 1000,
        "done": 400,
        "tasks": [{"complete": False}],
        "records": 400,
        "per_second": 12_345.6,
        "seconds_left": 50.0,
    }
    job = {"job": "history", "suffix": "", "created_at": at, "cut_over_at": None}
    app.feed("backfills", [{**job, "complete": False, "records": 400, "stages": [stage]}])
    windows = [
        {
            "key": "a-key-" * 20 if n else "short",
            "value": {"start": start, "end": start + HOUR_MS, "value": {"orders": n}},
            "timestamp": start + 1234,
            "partition": n,
        }
        for n, start in enumerate((WINDOW_MS, WINDOW_MS + HOUR_MS))
    ]
    app.feed("scan changelog orders_counts None None", {"found": windows, "more": True})
    one = {"key": "short", "partition": 0, "found": windows[:1], "more": False}
    app.feed("get changelog orders_counts short", one)


@contextmanager
def serving(app: Application) -> Iterator[str]:
    """Serve the pages of an application; the address of the site."""
    listener, taken = listen("127.0.0.1:0", "--address")
    with answering(listener, site_of(app, Access(None), "127.0.0.1:0", taken)):
        yield f"http://{taken}"
