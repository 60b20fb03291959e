"""One object for admin requests, used by several threads at once."""

from __future__ import annotations

import gc
import threading
from typing import Any

from eosframework.config import KafkaSettings
from eosframework.errors import ClusterUnreachable
from eosframework.kafka.admin.cluster_admin import ClusterAdmin

THREADS = 6
UNREACHABLE = KafkaSettings(bootstrap_servers="127.0.0.1:1", request_timeout_seconds=1)


class Recorded(ClusterAdmin):
    """Notes the clients that its threads get."""

    @property
    def client(self) -> Any:
        return self._client


def in_thread(work: Any) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_a_request_without_an_answer_discards_the_client_of_its_thread_alone() -> None:
    admin = Recorded(UNREACHABLE)
    mine = admin.client
    others: list[Any] = []
    errors: list[type[BaseException]] = []
    together = threading.Barrier(THREADS)

    def ask() -> None:
        others.append(admin.client)
        together.wait()
        for _ in range(2):
            try:
                admin.describe_topics(["t"])
            except BaseException as error:
                errors.append(type(error))

    threads = [threading.Thread(target=ask) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [ClusterUnreachable] * 2 * THREADS
    assert len({id(client) for client in [mine, *others]}) == THREADS + 1
    assert admin.client is mine


def test_a_thread_takes_over_the_client_of_one_that_has_ended() -> None:
    admin = Recorded(UNREACHABLE)
    seen: list[Any] = []
    for _ in range(3):
        in_thread(lambda: seen.append(admin.client))
        gc.collect()
    assert seen[0] is seen[1] is seen[2]
    assert admin.client is seen[0]
