"""A service answers calls with too much, with nothing, or too late: the other records are whole."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.applications.pipeline import Pipeline, number_in

RECORDS = 60
LARGE, EMPTY, CLOSED, LATE = 13, 21, 34, 47
LARGE_BYTES = 10_000_000
TIMEOUT_SECONDS = 3.0

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  doubled:
    from: numbers
    on_error: {dead_letter: NAME.dead}
    steps:
      - map_async:
          call: "tests.support.applications.coroutines:ask"
          resources: {http: "tests.support.applications.coroutines:open_client"}
          timeout: 3s
    to: [{topic: NAME.doubled, value: json}]
"""


class Service(BaseHTTPRequestHandler):
    """Answers with the text that belongs to a number, but for some."""

    def do_GET(self) -> None:
        number = int(self.path.removeprefix("/"))
        if number == CLOSED:
            return  # The connection ends without an answer.
        if number == LATE:
            time.sleep(2 * TIMEOUT_SECONDS)
        length = LARGE_BYTES if number == LARGE else 3
        text = b"" if number == EMPTY else json.dumps({"text": "x" * length}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        try:
            self.wfile.write(text)
        except BrokenPipeError:  # The caller of a late answer has gone.
            assert number == LATE

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    """Connections beyond that are tried again after a second."""


@pytest.fixture
def service() -> Iterator[str]:
    server = Server(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_an_answer_that_is_too_large_empty_or_late_is_the_error_of_its_record(
    make_pipeline: Callable[..., Pipeline], service: str
) -> None:
    pipeline = make_pipeline(topology=TOPOLOGY)
    pipeline.feed(RECORDS)
    worker = pipeline.start_worker(until_caught_up=True, environment={"EOS_TEST_SERVICE": service})
    assert worker.wait() == 0, worker.log[-4000:]
    assert "Traceback" not in worker.log
    bad = {LARGE, EMPTY, CLOSED, LATE}
    found = Counter(number_in(m) for m in pipeline.read(f"{pipeline.name}.doubled"))
    assert found == Counter(set(range(RECORDS)) - bad)
    letters = pipeline.read(f"{pipeline.name}.dead")
    assert Counter(number_in(m) for m in letters) == Counter(bad)
    reasons = {number_in(m): str(m.headers()) for m in letters}
    assert "TimeoutError" in reasons[LATE]
    assert "JSONDecodeError" in reasons[EMPTY]
    assert "RemoteProtocolError" in reasons[CLOSED]
    assert "refuses a value of 10000018 bytes" in reasons[LARGE]
