"""librdkafka's properties for kafka-python: the same meaning, or a clear no."""

from __future__ import annotations

import base64
import json
import ssl
from typing import Any

import pytest

from eosframework.config import KafkaSettings
from eosframework.errors import ConfigurationError
from eosframework.kafka.inspect.configuration import client_configuration
from eosframework.kafka.inspect.tokens import EndpointTokens


def configured(servers: str = "one:9092", **properties: Any) -> dict[str, Any]:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return client_configuration(KafkaSettings(bootstrap_servers=servers, properties=named))


def test_the_same_brokers_are_asked() -> None:
    servers = configured("one:9092, SASL_SSL://two:9093")["bootstrap_servers"]
    assert servers == ["one:9092", "two:9093"]


def test_sasl_keeps_its_meaning() -> None:
    configuration = configured(
        security_protocol="sasl_plaintext",
        sasl_mechanisms="scram-sha-256",
        sasl_username="me",
        sasl_password="secret",
    )
    assert (
        configuration.items()
        >= {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_plain_username": "me",
            "sasl_plain_password": "secret",
        }.items()
    )


def test_certificates_and_host_names_are_checked_unless_switched_off() -> None:
    strict: ssl.SSLContext = configured(security_protocol="SSL")["ssl_context"]
    assert (strict.verify_mode, strict.check_hostname) == (ssl.CERT_REQUIRED, True)
    by_name: ssl.SSLContext = configured(
        security_protocol="ssl", ssl_endpoint_identification_algorithm="none"
    )["ssl_context"]
    assert (by_name.verify_mode, by_name.check_hostname) == (ssl.CERT_REQUIRED, False)
    off: ssl.SSLContext = configured(
        security_protocol="ssl", enable_ssl_certificate_verification=False
    )["ssl_context"]
    assert (off.verify_mode, off.check_hostname) == (ssl.CERT_NONE, False)


def test_properties_that_only_tune_librdkafka_are_left_out() -> None:
    configuration = configured(socket_keepalive_enable=True, linger_ms=3)
    assert set(configuration) == {"bootstrap_servers", "client_id", "security_protocol"}


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        (
            {"sasl_oauthbearer_assertion_file": "x"},
            r"sasl\.oauthbearer\.assertion\.file has no equivalent",
        ),
        ({"ssl_keystore_location": "x"}, r"ssl\.keystore\.location has no equivalent"),
        ({"sasl_kerberos_keytab": "x"}, r"sasl\.kerberos\.keytab has no equivalent"),
        (
            {"security_protocol": "sasl_ssl", "sasl_mechanism": "OAUTHBEARER"},
            r"OAUTHBEARER needs sasl\.oauthbearer\.method=oidc",
        ),
        ({"security_protocol": "tls"}, r"security\.protocol='tls' is not one of"),
        (
            {"security_protocol": "ssl", "ssl_ca_location": "nowhere.pem"},
            r"ssl\.ca\.location cannot be used: .*correct the files",
        ),
    ],
)
def test_a_property_that_would_change_who_is_reached_is_refused_by_name(
    properties: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        configured(**properties)


def test_an_unsecured_token_says_what_librdkafkas_would() -> None:
    config = "principal=admin principalClaimName=azp lifeSeconds=60 scope=a,b extension_x=y"
    tokens = configured(
        security_protocol="sasl_plaintext",
        sasl_mechanisms="OAUTHBEARER",
        enable_sasl_oauthbearer_unsecure_jwt=True,
        sasl_oauthbearer_config=config,
    )["sasl_oauth_token_provider"]
    header, claims, signature = tokens.token().split(".")
    assert (decoded(header), signature) == ({"alg": "none"}, "")
    said = decoded(claims)
    assert (said["azp"], said["scope"]) == ("admin", ["a", "b"])
    assert said["exp"] - said["iat"] == 60
    assert tokens.extensions() == {"x": "y"}


def test_a_token_is_kept_until_most_of_its_life_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    oidc = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "http://nowhere/token",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "secret",
    }
    tokens = EndpointTokens(oidc)
    answers = [{"access_token": "first", "expires_in": 3600}, {"access_token": "second"}]
    monkeypatch.setattr(tokens, "_ask", lambda: answers.pop(0))
    assert [tokens.token(), tokens.token()] == ["first", "first"]
    monkeypatch.setattr(tokens, "_renew_at", 0.0)
    assert tokens.token() == "second"


def decoded(part: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
