"""A proxy in front of a schema registry that answers for single schemas as it is told."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


@dataclass
class RegistryProxy:
    """What it answers.

    Attributes:
        url: where it stands in for the registry.
        statuses: by number of a schema, the status of each answer about it.
        given: how often each status was given so.
    """

    url: str
    statuses: dict[int, int] = field(default_factory=dict[int, int])
    given: Counter[int] = field(default_factory=Counter[int])


@contextmanager
def registry_proxy(url: str) -> Iterator[RegistryProxy]:
    """Stand in front of the registry at `url`."""
    target = urlsplit(url)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            last = self.path.partition("?")[0].rpartition("/")[2]
            status = proxy.statuses.get(int(last)) if last.isdigit() else None
            if status is None:
                self.forward()
            else:
                proxy.given[status] += 1
                self.reply(status, b'{"error_code": %d, "message": "as told"}' % (status * 100))

        def do_POST(self) -> None:
            self.forward(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

        def forward(self, body: bytes | None = None) -> None:
            address = f"{target.scheme}://{target.netloc}{self.path}"
            kind = {"Content-Type": self.headers.get("Content-Type") or "application/json"}
            asked = urllib.request.Request(address, body, kind, method=self.command)
            try:
                with urllib.request.urlopen(asked, timeout=60) as answer:
                    self.reply(answer.status, answer.read())
            except urllib.error.HTTPError as error:
                self.reply(error.code, error.read())

        def reply(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        proxy = RegistryProxy(f"http://127.0.0.1:{server.server_address[1]}{target.path}")
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield proxy
        finally:
            server.shutdown()
