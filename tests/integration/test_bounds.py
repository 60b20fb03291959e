"""Each bound accepts its limit and the value below it, and not the one above."""

from __future__ import annotations

import pickle
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waitress.channel import ClientDisconnected

from eosframework.application.monitoring.http.http_server import BoundedServer
from eosframework.config import Settings
from eosframework.kafka.schema_registry.child_decoder import ChildDecoder
from eosframework.operations.console import application as console
from eosframework.operations.console.application import Application
from eosframework.operations.console.jobs import Done, Jobs
from eosframework.serialization import bounds
from eosframework.serialization.avro_cost import cost_of
from eosframework.serialization.bounds import Bound
from tests.hostile.foreign_schemas import avro_number

TESTS = Path(__file__).parent.parent
BOUNDS = {name: each for name, each in vars(bounds).items() if isinstance(each, Bound)}

HTTP = "integration/monitoring/test_http_server.py"
CONSOLE = "integration/console/test_console_server.py"
AVRO = "unit/serialization/test_avro_cost.py::test_a_bound_holds_up_to_its_last_byte"
FOREIGN = "unit/kafka/test_foreign_values.py"
READINGS = "unit/operations/console/test_readings.py"
STATE = "unit/application/monitoring/test_state_pages.py"
CHILD = "integration/test_bounds.py::test_the_kernel_limits_the_child_to_the_bounds"
STOPPED_OWNER = (
    "faults/test_zombie_answers.py::"
    "test_a_stopped_owner_delays_its_own_keys_alone_until_its_session_ends"
)

ELSEWHERE = {
    "CONNECTIONS": f"{HTTP}::test_a_connection_beyond_the_bound_replaces_the_slowest",
    "HEAD_BYTES": f"{HTTP}::test_the_head_of_a_request_is_bounded",
    "BODY_BYTES": f"{HTTP}::test_the_body_of_a_request_is_bounded",
    "FIELDS": f"{HTTP}::test_fields_of_a_query_are_bounded",
    "RECEIVE_SECONDS": f"{HTTP}::test_a_request_has_a_deadline_in_total_and_a_byte_now_and_then_"
    "wins_no_time",
    "PAGE_SECONDS": f"{HTTP}::test_an_answer_has_a_deadline_whether_its_page_or_its_client_is_slow",
    "PAGES": f"{HTTP}::test_probes_are_answered_while_all_other_pages_take_long",
    "STATE_ROWS": f"{STATE}::test_a_limit_that_cannot_be_is_refused",
    "STATE_BYTES": f"{STATE}::test_the_rows_of_an_answer_are_bounded_in_bytes",
    "SCAN_BYTES": "conformance/state/test_shared_stores.py::"
    "test_a_scan_holds_a_bounded_number_of_bytes",
    "ASKED_BYTES": f"{HTTP}::test_the_answer_of_an_asked_process_is_bounded",
    "FORWARDED": STOPPED_OWNER,
    "PEER_SECONDS": STOPPED_OWNER,
    # The same server as above, with other numbers.
    "CONSOLE_SECONDS": f"{CONSOLE}::test_a_request_whose_head_does_not_come_is_given_up",
    "CONSOLE_PAGES": f"{HTTP}::test_probes_are_answered_while_all_other_pages_take_long",
    "CHANGELOG_BYTES": "integration/test_reading_state.py::"
    "test_a_changelog_that_is_too_large_to_be_held_is_refused_by_name",
    "READINGS": f"{READINGS}::test_what_is_remembered_is_bounded_in_number_and_in_bytes",
    "READINGS_BYTES": f"{READINGS}::test_what_is_remembered_is_bounded_in_number_and_in_bytes",
    "SERIES": "unit/operations/console/test_charts.py::"
    "test_the_series_of_a_process_are_bounded_and_known_ones_go_on",
    "READINGS_AT_ONCE": f"{READINGS}::test_attempts_that_hang_are_bounded_in_number",
    "SESSIONS": "unit/operations/console/test_access.py::"
    "test_a_session_is_known_until_it_ends_and_only_by_its_own_cookie",
    "WRONG_TOKENS": f"{CONSOLE}::test_wrong_tokens_delay_their_own_clients_alone",
    "SCHEMA_BYTES": f"{FOREIGN}::test_a_schema_is_taken_up_to_each_bound",
    "SCHEMA_LEVELS": f"{FOREIGN}::test_a_schema_is_taken_up_to_each_bound",
    "SCHEMA_REFERENCES": f"{FOREIGN}::test_a_schema_is_taken_up_to_each_bound",
    "AVRO_LEVELS": AVRO,
    "AVRO_VALUES": AVRO,
    "AVRO_DECIMAL_BYTES": AVRO,
    "UNKNOWN_SCHEMA_SECONDS": f"{FOREIGN}::test_an_unknown_schema_is_asked_for_once_in_a_while",
    # The kernel keeps them, of which this test sees the numbers; their effects have tests there.
    "DECODING_SECONDS": CHILD,
    "DECODING_BYTES": CHILD,
}
"""Tests of other bounds, by name."""


@pytest.fixture
def child() -> Iterator[ChildDecoder]:
    made = ChildDecoder()
    yield made
    made.close()


def goes_on(size: int, _: Any) -> bool:
    """Tell whether a page goes on while so many bytes wait for its client, which reads nothing."""
    ours, client = socket.socketpair()
    ours.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            ours.send(bytes(4096))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        site: Any = SimpleNamespace(seconds=bounds.PAGE_SECONDS, at_once=bounds.PAGES)
        server = BoundedServer(listener.dup(), site)
    channel = server.channel_class(server, ours, ("", 0), server.adj, {})
    channel.write_soon(bytes(size))
    written = threading.Event()

    def write() -> None:
        with suppress(ClientDisconnected):
            channel.write_soon(b"more")
            written.set()

    page = threading.Thread(target=write)
    page.start()
    at_once = written.wait(0.3)
    channel.handle_close()
    page.join()
    client.close()
    server.stop()
    server.serve()
    return at_once


def application(*addresses: str) -> Application:
    return Application("app", Settings(), addresses)


def shows_all_rows(count: int, patched: pytest.MonkeyPatch) -> bool:
    """Tell whether the console shows so many rows of a store."""
    rows = [{"key": n} for n in range(count)]
    patched.setattr(console, "ask", lambda *_: (200, {"found": list(rows)}))
    found = application("somewhere").rows_of("store", None, None, "workers").value
    assert found is not None
    assert len(found["found"]) == min(count, bounds.CONSOLE_ROWS.value)
    return not found["more"]


def reads_at_once(count: int, patched: pytest.MonkeyPatch) -> bool:
    """Tell whether the console reads so many stores at a time."""
    patched.setattr(console, "WAIT_SECONDS", 0.3)
    begun, end = threading.Semaphore(0), threading.Event()

    def ask(*_: object) -> tuple[int, dict[str, Any]]:
        begun.release()
        end.wait(30)
        return 200, {"found": []}

    patched.setattr(console, "ask", ask)
    app = application("somewhere")
    with ThreadPoolExecutor(count) as pool:
        asked = [pool.submit(app.rows_of, f"s{n}", None, None, "workers") for n in range(count)]
        all_begun = all(begun.acquire(timeout=1.5) for _ in range(count))
        end.set()
        for each in asked:
            each.result()
    return all_begun


def remembers_the_first(count: int, _: Any) -> bool:
    """Tell whether the console remembers the first one of so many jobs."""
    jobs = Jobs()
    for number in range(1, count + 1):
        job = jobs.start("nothing", [], lambda _: Done([]))
        assert job is not None
        assert job.number == number
        while job.is_running:
            time.sleep(0.001)
    return jobs.find(1) is not None


def is_accepted(step: Callable[[], object], refusal: str) -> bool:
    """Tell whether a step succeeds; it must not fail for another reason."""
    found = ""
    try:
        step()
    except ValueError as error:
        found = str(error)
    assert not found or refusal in found
    return not found


def has_types(count: int, _: Any) -> bool:
    """Tell whether a schema of so many types is taken."""
    fields = [{"name": f"f{n}", "type": "int"} for n in range(count - 1)]
    return is_accepted(
        lambda: cost_of({"type": "record", "name": "R", "fields": fields}), f"has {count} types"
    )


def returns(size: int, _: Any) -> bool:
    """Tell whether the child process returns a value of so many bytes."""
    framing = len(pickle.dumps(("x" * 70_000, None), pickle.HIGHEST_PROTOCOL)) - 70_000
    text = b"x" * (size - framing)
    child = ChildDecoder()
    with closing(child):
        return is_accepted(
            lambda: child.decode('"string"', {}, None, avro_number(len(text)) + text),
            f"the value has {size} bytes",
        )


CASES: Mapping[str, Callable[[int, pytest.MonkeyPatch], bool]] = {
    "UNSENT_BYTES": goes_on,
    "CONSOLE_ROWS": shows_all_rows,
    "CONSOLE_SCANS": reads_at_once,
    "JOBS": remembers_the_first,
    "SCHEMA_TYPES": has_types,
    "DECODED_BYTES": returns,
}
"""Tell of a number whether it is accepted."""


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("name", CASES)
def test_a_limit_is_accepted_and_one_more_is_not(
    name: str, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert CASES[name](BOUNDS[name].value + more, monkeypatch) is (more <= 0)


def test_the_kernel_limits_the_child_to_the_bounds(child: ChildDecoder) -> None:
    assert child.decode('"int"', {}, None, b"\2") == 1
    assert child._process is not None
    memory, _ = resource.prlimit(child._process.pid, resource.RLIMIT_AS)
    assert memory == bounds.DECODING_BYTES.value
    seconds, _ = resource.prlimit(child._process.pid, resource.RLIMIT_CPU)
    # The kernel counts whole seconds, from those that the child took to start.
    assert bounds.DECODING_SECONDS.value < seconds <= bounds.DECODING_SECONDS.value + 4


def test_each_bound_has_a_test() -> None:
    assert {*CASES, *ELSEWHERE} == BOUNDS.keys()
    for name, place in ELSEWHERE.items():
        file, _, test = place.partition("::")
        assert f"def {test}(" in (TESTS / file).read_text(), f"{name}: there is no {place}"
