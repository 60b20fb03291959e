"""The server: a thread that accepts, and one for each request."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import structlog

from eosframework.errors import ConfigurationError, EosError, UserError
from eosframework.querying.texts import as_json
from eosframework.serving.address import host_and_port
from eosframework.serving.pages import Answer, NotServed, Pages, Request, Text

CLIENT_SECONDS = 5.0
"""How long a client may take to ask, or to take the answer."""

STOP_SECONDS = 0.1
"""How long the server may take to notice that it is to stop."""


@contextmanager
def serving(address: str, pages: Pages, *, setting: str = "worker.http_address") -> Generator[str]:
    """Answer for the length of a `with` block; give the address with the port that was taken.

    Args:
        address: `host:port`; port 0 is any free one.
        pages: what there is.
        setting: where the address comes from, for messages.

    Raises:
        ConfigurationError: the address cannot be had.
    """
    host, port = host_and_port(address)
    try:
        server = _server(host, port, pages)
    except (OSError, OverflowError) as error:
        raise ConfigurationError(
            f"{setting}={address!r} cannot be listened on: "
            f"{getattr(error, 'strerror', None) or error}; give this process another port or an "
            f"address of this machine"
        ) from error
    thread = threading.Thread(
        target=server.serve_forever, args=(STOP_SECONDS,), name="eos-http", daemon=True
    )
    thread.start()
    taken = f"{f'[{host}]' if ':' in host else host}:{server.server_address[1]}"
    structlog.get_logger("eosframework.http").info("http_serving", address=taken)
    try:
        yield taken
    finally:
        server.shutdown()
        server.server_close()
        thread.join(CLIENT_SECONDS)


def _server(host: str, port: int, pages: Pages) -> ThreadingHTTPServer:
    class Server(ThreadingHTTPServer):
        address_family = AF_INET6 if ":" in host else AF_INET
        daemon_threads = True
        # A client that says nothing must not hold the worker's end up.
        block_on_close = False

        def server_bind(self) -> None:
            # HTTPServer's own asks the resolver for this host's full name, which may take long.
            TCPServer.server_bind(self)
            self.server_name, self.server_port = host, self.server_address[1]

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Clients go away as they like."""

    class Handler(_Handler):
        def answer(self) -> Answer:
            return _answer(self.path, pages)

    return Server((host, port), Handler)


class _Handler(BaseHTTPRequestHandler):
    """One request, one answer: the connection ends with it (HTTP/1.0)."""

    timeout = CLIENT_SECONDS
    error_content_type = "application/json"
    error_message_format = '{"error": "%(message)s"}\n'

    def answer(self) -> Answer:
        raise AssertionError("each server has its own")

    def do_GET(self) -> None:
        self._send(self.answer(), with_content=True)

    def do_HEAD(self) -> None:
        self._send(self.answer(), with_content=False)

    def version_string(self) -> str:
        return "eosframework"

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are no events of the worker."""

    def _send(self, answer: Answer, *, with_content: bool) -> None:
        text = answer.content
        if not isinstance(text, Text):
            text = Text(as_json(text) + b"\n", "application/json")
        content = text.content
        self.send_response(answer.status)
        self.send_header("Content-Type", text.content_type)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if with_content:
            self.wfile.write(content)


def _answer(target: str, pages: Pages) -> Answer:
    split = urlsplit(target)
    first, *rest = [unquote(part) for part in split.path.removeprefix("/").split("/")]
    page = pages.get(first)
    try:
        if page is None:
            known = ", ".join(f"/{name}" for name in sorted(pages))
            raise NotServed(HTTPStatus.NOT_FOUND, f"there is no {split.path!r}; there are {known}")
        return page(Request(rest, dict(parse_qsl(split.query, keep_blank_values=True))))
    except NotServed as error:
        return error.answer
    except UserError as error:
        return Answer(HTTPStatus.BAD_REQUEST, {"error": str(error)})
    except EosError as error:
        return Answer(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": str(error)})
    except Exception as error:
        structlog.get_logger("eosframework.http").exception("http_failed", path=split.path)
        return Answer(
            HTTPStatus.INTERNAL_SERVER_ERROR, {"error": f"{type(error).__name__}: {error}"}
        )
