"""A real broker that asks who connects: a password over TLS, a certificate, or a token."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient

from eosframework.embedded import start_kafka
from eosframework.embedded.data_directory import free_ports
from tests.support.servers.kafka_admin import (
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.support.servers.topics import answered, create_topics

USER, PASSWORD = "alice", "pa\"ss\\word 'x"
KEY_PASSWORD = "sealed key"

GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}
"""The test itself and the broker are ANONYMOUS, since neither says who it is."""


@dataclass(frozen=True)
class SecuredKafka:
    """Where it listens, and what its clients need.

    Args:
        plain: for the test itself: nothing is asked there.
        with_password: SASL over TLS.
        with_certificate: TLS on both sides.
        with_token: OAUTHBEARER, unsecured tokens, without TLS.
        directory: has ca.pem, client.pem and client.key, which is sealed.
    """

    plain: str
    with_password: str
    with_certificate: str
    with_token: str
    directory: Path


@contextmanager
def secured_kafka(directory: Path, topic: str, *, guarded: bool = False) -> Iterator[SecuredKafka]:
    """Start one with a topic of one partition, and kill it after the block.

    Args:
        guarded: nobody may do anything without an ACL but who connects to `plain`.
    """
    directory.mkdir(parents=True)
    make_certificates(directory)
    ports = free_ports(3)
    properties = _properties(directory, *ports)
    cluster = start_kafka(
        directory / "data",
        fast_start=True,
        properties=properties | (GUARDED if guarded else {}),
    )
    try:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        create_topics(admin, [NewTopic(topic, 1, 1)])
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        upsertion = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
        answered(lambda: admin.alter_user_scram_credentials([upsertion]))
        password, certificate, token = (f"127.0.0.1:{port}" for port in ports)
        yield SecuredKafka(cluster.bootstrap_servers, password, certificate, token, directory)
    finally:
        cluster.kill()


def _properties(directory: Path, *ports: int) -> dict[str, str]:
    names = ("PASSWORD", "CERTIFICATE", "TOKEN")
    listeners = ",".join(
        f"{name}://127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)
    )
    plain = "PLAINTEXT://127.0.0.1:{port}"
    module = "org.apache.kafka.common.security"
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    return {
        "listeners": f"{plain},CONTROLLER://127.0.0.1:{{controller_port}},{listeners}",
        "advertised.listeners": f"{plain},{listeners}",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PASSWORD:SASL_SSL,CERTIFICATE:SSL,"
            "TOKEN:SASL_PLAINTEXT"
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "broker.both"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "listener.name.certificate.ssl.client.auth": "required",
        "listener.name.password.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.password.plain.sasl.jaas.config": (
            f'{module}.plain.PlainLoginModule required user_{USER}="{quoted}";'
        ),
        "listener.name.token.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.token.oauthbearer.sasl.jaas.config": (
            f"{module}.oauthbearer.OAuthBearerLoginModule required;"
        ),
        "listener.name.password.scram-sha-512.sasl.jaas.config": (
            f"{module}.scram.ScramLoginModule required;"
        ),
    }


def make_certificates(directory: Path) -> None:
    """Make an authority, and what it signs for a broker and for a client."""
    ca = directory / "ca.pem", directory / "ca.key"
    _openssl("req", "-x509", "-nodes", *_new_key(ca[1]), "-out", ca[0], "-subj", "/CN=authority")
    addresses = directory / "addresses"
    addresses.write_text("subjectAltName=IP:127.0.0.1")
    for name in ("broker", "client"):
        key, request = directory / f"{name}.open", directory / f"{name}.csr"
        _openssl("req", "-nodes", *_new_key(key), "-out", request, "-subj", f"/CN={name}")
        signing = ("-CA", ca[0], "-CAkey", ca[1], "-CAcreateserial", "-extfile", addresses)
        _openssl("x509", "-req", "-in", request, *signing, "-out", directory / f"{name}.pem")
    both = [(directory / f"broker.{kind}").read_text() for kind in ("open", "pem")]
    (directory / "broker.both").write_text("".join(both))
    sealing = (
        "-topk8",
        "-v1",
        "PBE-SHA1-3DES",
        "-passout",
        f"pass:{KEY_PASSWORD}",
        "-out",
        directory / "client.key",
    )
    _openssl("pkcs8", "-in", directory / "client.open", *sealing)


def _new_key(place: Path) -> tuple[str | Path, ...]:
    return "-newkey", "rsa:2048", "-keyout", place


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
