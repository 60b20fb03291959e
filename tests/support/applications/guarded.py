"""One application on a broker with an authorizer, and the ACLs that its principals are given."""

from __future__ import annotations

import base64
import http.server
import json
import threading
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.applications.pipeline import wait_until
from tests.support.processes.commands import Cluster, Folder
from tests.support.processes.programs import Finished
from tests.support.servers.kafka_admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from tests.support.servers.secured_kafka import KEY_PASSWORD, PASSWORD, USER, SecuredKafka

_KINDS = {
    "Topic": ResourceType.TOPIC,
    "Group": ResourceType.GROUP,
    "TransactionalId": ResourceType.TRANSACTIONAL_ID,
    "Cluster": ResourceType.BROKER,
}
_OPERATIONS = {
    "".join(map(str.capitalize, operation.name.split("_"))): operation for operation in AclOperation
}
MACHINE = "machine"
TOKENS = """\
import base64, json, os, pathlib, time

SECONDS = 15


def get(config):
    if (reason := pathlib.Path(__file__).with_name("refused")).exists():
        raise PermissionError(reason.read_text())
    with open(pathlib.Path(__file__).with_name("calls"), "a") as calls:
        calls.write(f"{os.getpid()}\\n")
    now = time.time()
    name = config.partition("=")[2]
    claims = {"sub": name, "iat": now, "exp": now + SECONDS}
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    token = ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
    return token + ".", now + SECONDS, name
"""
CLIENT, CLIENT_SECRET = "robot", "p@ss of a robot+/="


@dataclass(frozen=True)
class Right:
    """One operation on one resource, as `plan` has it."""

    kind: str
    name: str | None
    is_prefix: bool
    operation: str

    def binding(self, principal: str, form: Any = AclBinding) -> Any:
        pattern = ResourcePatternType.PREFIXED if self.is_prefix else ResourcePatternType.LITERAL
        return form(
            _KINDS[self.kind],
            self.name or "kafka-cluster",
            pattern,
            principal,
            "*",
            _OPERATIONS[self.operation],
            AclPermissionType.ALLOW,
        )


def rights(access: Iterable[Mapping[str, Any]]) -> list[Right]:
    """The single operations in what `plan --json` calls access."""
    return [
        Right(one["kind"], one["name"], one["is_prefix"], operation)
        for one in access
        for operation in one["operations"]
    ]


class Guarded:
    """A folder of a user's on a broker where nobody may do anything without an ACL.

    Args:
        directory: gets a config file and a directory of secrets for each way to connect.
        token_endpoint: gives tokens; None: nobody connects so.
    """

    def __init__(
        self, broker: SecuredKafka, directory: Path, token_endpoint: str | None = None
    ) -> None:
        self.cluster = Cluster(broker.plain)
        self.folder = Folder(directory)
        self.directory = directory
        for way, (servers, public, secret) in _ways(broker, token_endpoint).items():
            kafka = {"bootstrap_servers": servers, "properties": public}
            self.folder.write(f"{way}.yaml", yaml.safe_dump({"kafka": kafka}))
            (directory / way).mkdir(mode=0o700)
            for name, value in secret.items():
                self.folder.write(f"{way}/kafka.properties.{name}", value + "\n")
        self._connect_by_function(broker.with_token)

    def _connect_by_function(self, servers: str) -> None:
        """Make the way `function`: tokens of 15 s from a module next to the topology."""
        self.folder.write("tokens.py", TOKENS)
        properties = {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "OAUTHBEARER"}
        kafka = {
            "bootstrap_servers": servers,
            "oauth_cb": "tokens:get",
            "properties": {**properties, "sasl.oauthbearer.config": f"sub={MACHINE}"},
        }
        self.folder.write("function.yaml", yaml.safe_dump({"kafka": kafka}))
        (self.directory / "function").mkdir(mode=0o700)

    def token_calls(self) -> list[str]:
        """The calls of the token function so far, each by the id of its process."""
        calls = self.directory / "calls"
        return calls.read_text().split() if calls.exists() else []

    def run(
        self, *arguments: str, way: str = "password", own: Mapping[str, str] | None = None
    ) -> Finished:
        """Run a command as the principal that connects this way."""
        environment = self.environment(way) | dict(own or {})
        return self.folder.run(*arguments, "--config", f"{way}.yaml", environment=environment)

    def environment(self, way: str = "password") -> dict[str, str]:
        return {"EOS_SECRETS_DIR": str(self.directory / way)}

    def allow(self, principal: str, *wanted: Right) -> None:
        acls = [right.binding(principal) for right in wanted]
        for future in self.cluster.admin.create_acls(acls).values():
            future.result(60)
        self._wait(principal, wanted, there=True)

    def take_away(self, principal: str, *wanted: Right) -> None:
        filters = [right.binding(principal, AclBindingFilter) for right in wanted]
        for future in self.cluster.admin.delete_acls(filters).values():
            assert len(future.result(60)) == 1
        self._wait(principal, wanted, there=False)

    def _wait(self, principal: str, wanted: Sequence[Right], *, there: bool) -> None:
        """Return once the broker goes by what its controller has accepted."""
        for right in wanted:
            sought = right.binding(principal, AclBindingFilter)
            wait_until(
                lambda: bool(self.cluster.admin.describe_acls(sought).result(60)) == there,  # noqa: B023
                f"{right} is {'there' if there else 'gone'}",
            )


def _ways(
    broker: SecuredKafka, token_endpoint: str | None
) -> dict[str, tuple[str, dict[str, str], dict[str, str]]]:
    """By name: where to connect, with what, and with what that is secret."""
    authority = {"ssl.ca.location": str(broker.directory / "ca.pem")}
    password = {
        **authority,
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": USER,
    }
    certificate = {
        **authority,
        "security.protocol": "ssl",
        "ssl.certificate.location": str(broker.directory / "client.pem"),
        "ssl.key.location": str(broker.directory / "client.key"),
    }
    token = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": token_endpoint or "",
        "sasl.oauthbearer.client.id": CLIENT,
    }
    ways = {
        "password": (broker.with_password, password, {"sasl.password": PASSWORD}),
        "certificate": (broker.with_certificate, certificate, {"ssl.key.password": KEY_PASSWORD}),
    }
    if token_endpoint is not None:
        secret = {"sasl.oauthbearer.client.secret": CLIENT_SECRET}
        ways["token"] = (broker.with_token, token, secret)
    return ways


@contextmanager
def token_endpoint() -> Generator[str]:
    """Give tokens that nobody signed to the one client that knows its secret."""
    expected = base64.b64encode(f"{CLIENT}:{CLIENT_SECRET}".encode()).decode()

    class Endpoint(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            known = self.headers["Authorization"] == f"Basic {expected}"
            token = {"access_token": _token(), "expires_in": 3600, "token_type": "Bearer"}
            answer = json.dumps(token if known else {"error": "invalid_client"}).encode()
            self.send_response(200 if known else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/token"
        finally:
            server.shutdown()


def _token() -> str:
    now = time.time()
    claims = {"sub": CLIENT, "iat": int(now), "exp": int(now) + 3600}
    parts = ({"alg": "none", "typ": "JWT"}, claims)
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts)
    return ".".join(part.rstrip("=") for part in encoded) + "."
