"""librdkafka's properties in the words of Kafka's client of Java."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from eosframework.config import KafkaSettings
from eosframework.errors import ConfigurationError
from eosframework.spark.session.java_properties import java_properties

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----"
SEALED = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIE\n-----END ENCRYPTED PRIVATE KEY-----"
OAUTH = {
    "security.protocol": "sasl_ssl",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": "s",
    "sasl.oauthbearer.scope": "read write",
    "sasl.oauthbearer.extensions": "cluster=c1,pool=p2",
    "sasl.oauthbearer.token.endpoint.url": "https://tokens.example/oauth",
}


def java_of(
    properties: dict[str, str | bool], options: dict[str, str] | None = None
) -> dict[str, str]:
    settings = KafkaSettings(bootstrap_servers="b:9092", properties=dict(properties))
    java = java_properties(settings, options or {})
    assert all(name.startswith("kafka.") for name in java)
    return {name.removeprefix("kafka."): value for name, value in java.items()}


def test_aborted_records_are_never_read_and_tuning_stays_behind() -> None:
    assert java_of({"linger.ms": "5", "debug": "all", "client.rack": "r1"}) == {
        "bootstrap.servers": "b:9092",
        "security.protocol": "PLAINTEXT",
        "client.rack": "r1",
        "isolation.level": "read_committed",
        "allow.auto.create.topics": "false",
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", "scram-sha-256", "SCRAM-SHA-512"])
def test_a_user_and_a_password_are_quoted_as_java_reads_them(mechanism: str) -> None:
    given = {"sasl.username": 'a"b', "sasl.password": "c\\d e;"}
    java = java_of({"security.protocol": "sasl_plaintext", "sasl.mechanism": mechanism, **given})

    assert java["security.protocol"] == "SASL_PLAINTEXT"
    assert java["sasl.mechanism"] == mechanism.upper()
    module, _, rest = java["sasl.jaas.config"].partition(" required ")
    assert module.endswith("PlainLoginModule" if mechanism == "PLAIN" else "ScramLoginModule")
    assert rest == 'username="a\\"b" password="c\\\\d e;";'


def test_tokens_are_asked_for_where_librdkafka_asks_for_them() -> None:
    java = java_of({**OAUTH})

    assert java["sasl.oauthbearer.token.endpoint.url"] == "https://tokens.example/oauth"
    assert java["sasl.login.callback.handler.class"].endswith("OAuthBearerLoginCallbackHandler")
    assert java["sasl.jaas.config"].endswith(
        'clientId="me" clientSecret="s" scope="read write" extension_cluster="c1" '
        'extension_pool="p2";'
    )


def test_certificates_go_along_as_text(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text(f"# a comment\n{CERTIFICATE}\n{CERTIFICATE}\n")
    (tmp_path / "chain").write_text(CERTIFICATE)
    (tmp_path / "key").write_text(f"{SEALED}\n")
    (tmp_path / "key").chmod(stat.S_IRUSR)

    java = java_of(
        {
            "security.protocol": "ssl",
            "ssl.ca.location": str(tmp_path / "ca"),
            "ssl.certificate.location": str(tmp_path / "chain"),
            "ssl.key.location": str(tmp_path / "key"),
            "ssl.key.password": "p",
            "ssl.endpoint.identification.algorithm": "none",
            "enable.ssl.certificate.verification": True,
        }
    )
    assert {name: value for name, value in java.items() if name.startswith("ssl.")} == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": f"{CERTIFICATE}\n{CERTIFICATE}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": CERTIFICATE,
        "ssl.keystore.key": SEALED,
        "ssl.key.password": "p",
        "ssl.endpoint.identification.algorithm": "",
    }


def test_an_open_key_has_no_password_and_a_keystore_of_its_own_stays_a_file() -> None:
    pems = {"ssl.certificate.pem": CERTIFICATE, "ssl.key.pem": KEY, "ssl.key.password": "p"}
    assert "ssl.key.password" not in java_of({"security.protocol": "ssl", **pems})

    store = {"ssl.keystore.location": "/a.p12", "ssl.keystore.password": "p"}
    java = java_of({"security.protocol": "ssl", **store})
    assert java["ssl.keystore.type"] == "PKCS12"
    assert java["ssl.keystore.location"] == "/a.p12"


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        (
            {"security.protocol": "ssl", "ssl.cipher.suites": "X"},
            r"ssl\.cipher\.suites.*kafka\.ssl",
        ),
        (
            {"security.protocol": "ssl", "enable.ssl.certificate.verification": False},
            r"enable\.ssl\.certificate\.verification",
        ),
        ({"security.protocol": "sasl_ssl"}, r"sasl\.mechanism=GSSAPI.*kafka\.sasl\.jaas\.config"),
        (
            {**OAUTH, "sasl.oauthbearer.assertion.file": "/f"},
            r"sasl\.oauthbearer\.assertion\.file",
        ),
        (
            {
                "security.protocol": "ssl",
                "ssl.certificate.pem": CERTIFICATE,
                "ssl.key.pem": KEY.replace("PRIVATE", "RSA PRIVATE"),
            },
            r"is RSA, which.*openssl pkcs8",
        ),
        (
            {
                "security.protocol": "ssl",
                "ssl.certificate.pem": CERTIFICATE,
                "ssl.key.pem": SEALED.replace("MIIE", "MFcGCSqGSIb3DQEFDTBKMCk="),
            },
            r"encrypted with PBES2.*PBE-SHA1-3DES",
        ),
        (
            {"security.protocol": "ssl", "ssl.ca.location": "/nowhere"},
            r"ssl\.ca\.location=/nowhere",
        ),
    ],
)
def test_what_java_cannot_be_told_is_refused_by_name(
    properties: dict[str, str | bool], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        java_of(properties)


def test_what_the_user_says_in_javas_words_comes_first() -> None:
    java = java_of(
        {"security.protocol": "sasl_ssl", "sasl.mechanism": "GSSAPI"},
        {"kafka.sasl.jaas.config": "mine required;", "kafka.fetch.max.bytes": "1", "spark.x": "y"},
    )
    assert java["sasl.jaas.config"] == "mine required;"
    assert java["fetch.max.bytes"] == "1"
    assert "spark.x" not in java


@pytest.mark.parametrize("name", ["isolation.level", "bootstrap.servers", "group.id"])
def test_what_would_break_the_guarantee_is_refused_in_javas_words_too(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"kafka\.{name}=x cannot be used"):
        java_of({}, {f"kafka.{name}": "x"})
