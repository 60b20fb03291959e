"""Requests get the newest snapshot, and the main thread makes one twice a second at most."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from eosframework.application.monitoring.http.exchange import Health, Request, Text
from eosframework.application.monitoring.metrics.catalogue import Process
from eosframework.application.monitoring.metrics.observer import Identity, Observer, worker_observer
from eosframework.engine.stores.shared_stores import SharedStores
from eosframework.engine.task.measurements import Measures
from eosframework.engine.worker.worker_plan import WorkerCounts
from eosframework.engine.worker.worker_views import TaskView, WorkerView
from eosframework.kafka.client.statistics import ClientStatistics
from eosframework.records import TopicPartition

VIEW = WorkerView(
    WorkerCounts(),
    (TaskView("in[0]", "running", {TopicPartition("in", 0): 5}),),
    True,
    Measures().snapshot(),
)


class ObservedProcess:
    """An observer and how often it looked."""

    def __init__(self) -> None:
        self.views = 0
        identity = Identity("app", Process.TABLES, "one")
        self.observer: Observer[WorkerView] = worker_observer(
            identity, Health(30.0, 300.0), ClientStatistics(), SharedStores(), 30.0
        )

    def view(self) -> WorkerView:
        self.views += 1
        return VIEW

    def ask(self, page: str) -> tuple[HTTPStatus, Any]:
        answer = self.observer.pages[page](Request([], {}))
        content = answer.content
        return answer.status, content.content.decode() if isinstance(content, Text) else content


def test_there_is_an_answer_before_the_first_view() -> None:
    asked = ObservedProcess()
    assert asked.ask("livez")[0] is HTTPStatus.OK
    assert asked.ask("readyz")[0] is HTTPStatus.SERVICE_UNAVAILABLE
    assert asked.ask("status")[1]["ready"] is False
    text = asked.ask("metrics")[1]
    assert 'eosframework_ready{application="app"} 0.0' in text
    assert 'instance_name="one",process="tables"' in text


def test_turns_that_follow_one_another_share_a_view() -> None:
    asked = ObservedProcess()
    for _ in range(100):
        asked.observer.turn(asked.view)
    assert asked.views < 10
    assert asked.ask("readyz")[0] is HTTPStatus.OK
    status = asked.ask("status")[1]
    assert status["tasks"] == [
        {
            "task": "in[0]",
            "state": "running",
            "stream_time": None,
            "waits_for": [],
            "partitions": [{"partition": "in[0]", "read_to": 5, "lag": None, "held_back": None}],
        }
    ]
    assert 'eosframework_tasks{application="app",state="running"} 1.0' in asked.ask("metrics")[1]
