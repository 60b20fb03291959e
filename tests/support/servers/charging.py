"""A real HTTP service that charges, and counts what it was asked for."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Charges:
    """What the service knows.

    Args:
        kind: `keys` honours keys, `attempts` rejects attempts older than the newest it saw of a
            key, `plain` does neither.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.made: Counter[int] = Counter()
        """Effects by the number in the record."""
        self.calls = 0
        self.rejected = 0
        self.keys: dict[str, set[int]] = {}
        self.url = ""
        self._newest: dict[str, int] = {}
        self._lock = threading.Lock()

    def charge(self, number: int, key: str, attempt: int) -> int:
        with self._lock:
            self.calls += 1
            self.keys.setdefault(key, set()).add(number)
            if self.kind == "attempts" and attempt < self._newest.get(key, 0):
                self.rejected += 1
                return 409
            self._newest[key] = attempt
            if self.kind == "keys" and self.made[number]:
                return 200
            self.made[number] += 1
            return 200

    def is_made(self, number: int, key: str, attempt: int) -> bool:
        with self._lock:
            if self.kind == "attempts":
                self._newest[key] = max(attempt, self._newest.get(key, 0))
            return self.made[number] > 0


@contextmanager
def charging(kind: str) -> Generator[Charges]:
    """Run a service on a free port of this machine."""
    charges = Charges(kind)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            asked: dict[str, Any] = json.loads(self.rfile.read(length))
            identity = asked["n"], asked["key"], asked["attempt"]
            if self.path == "/charge":
                self._answer(charges.charge(*identity), {"n": 2 * asked["n"]})
            else:
                self._answer(200, {"made": charges.is_made(*identity)})

        def _answer(self, status: int, data: dict[str, Any]) -> None:
            body = json.dumps(data).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Write nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

    server = Server(("127.0.0.1", 0), Handler)
    charges.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield charges
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
