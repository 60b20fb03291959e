"""A real worker's traces, as a collector gets them."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.applications.feeding import feeder
from tests.support.applications.pipeline import read_committed
from tests.support.processes.commands import Cluster, Folder

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, value: json}
streams:
  copied:
    from: numbers
    to: [{topic: NAME.out, value: json}]
"""

TRACE = "0af7651916cd43dd8448eb211c80319c"
SAMPLED = f"00-{TRACE}-b7ad6b7169203331-01".encode()


class Collector(ThreadingHTTPServer):
    """Takes what is exported by OTLP over HTTP."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taking)
        self.taken: list[ExportTraceServiceRequest] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Taking(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            data = gzip.decompress(data)
        assert isinstance(self.server, Collector)
        self.server.taken.append(ExportTraceServiceRequest.FromString(data))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """The test's output is for the test."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_collector_gets_a_span_for_each_transaction_and_outputs_carry_contexts(
    kafka: Any, unique_name: Callable[[str], str], tmp_path: Path, collector: Collector
) -> None:
    name, folder = unique_name("traced"), Folder(tmp_path, kafka.bootstrap_servers)
    Cluster(kafka.bootstrap_servers).create(f"{name}.in", f"{name}.out")
    folder.write("app.yaml", TOPOLOGY.replace("NAME", name))
    producer = feeder(kafka.bootstrap_servers)
    producer.produce(f"{name}.in", b'{"n":1}', headers=[("traceparent", SAMPLED)])
    producer.produce(f"{name}.in", b'{"n":2}')
    assert producer.flush(60) == 0
    done = folder.run(
        "run-worker",
        "app.yaml",
        "--until-caught-up",
        environment={
            "EOS_TRACING__ENABLED": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
        },
    )
    assert done.exit_code == 0, done.err
    resources = [spans for request in collector.taken for spans in request.resource_spans]
    spans = [s for r in resources for scope in r.scope_spans for s in scope.spans]
    of = {a.key: a.value.string_value for r in resources for a in r.resource.attributes}
    assert (of["service.name"], of["deployment.environment.name"]) == (name, "test")
    linked = [link.trace_id.hex() for span in spans for link in span.links]
    assert linked == [TRACE]
    first, second = read_committed(kafka.bootstrap_servers, f"{name}.out")
    assert first.headers() == [("traceparent", SAMPLED)]
    [(header, own)] = second.headers() or []
    assert header == "traceparent"
    assert isinstance(own, bytes)
    assert own.decode()[:-2] in {f"00-{s.trace_id.hex()}-{s.span_id.hex()}-" for s in spans}
