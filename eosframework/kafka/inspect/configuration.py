"""Translation of librdkafka properties to kafka-python's configuration."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eosframework.config import KafkaSettings
from eosframework.errors import ConfigurationError
from eosframework.kafka.client.properties import CLIENT_ID
from eosframework.kafka.inspect.tokens import TOKEN_PROPERTIES, token_provider

_SAME_MEANING = {
    "client.id": "client_id",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "client.dns.lookup": "client_dns_lookup",
}

_TRANSLATED = {
    "enable.ssl.certificate.verification",
    "security.protocol",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.cipher.suites",
    "ssl.crl.location",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.location",
    "ssl.key.password",
}

_DECIDES_WHO_IS_REACHED = ("sasl.", "ssl.", "ssl_", "oauthbearer", "enable.sasl.", "https.ca.")
"""Prefixes of properties that decide which cluster is reached, and as which principal. One of them
without an equivalent is refused; other properties only tune."""

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")


def client_configuration(settings: KafkaSettings) -> dict[str, Any]:
    """Return a kafka-python configuration for the same cluster and principal.

    Args:
        settings: how librdkafka reaches the cluster.

    Raises:
        ConfigurationError: names the property that has no equivalent or cannot be used.
    """
    properties = settings.properties
    _refuse_untranslatable(properties)
    configuration: dict[str, Any] = {
        "bootstrap_servers": [_address(part) for part in settings.bootstrap_servers.split(",")],
        "client_id": f"{CLIENT_ID}-txn",
    }
    for name, theirs in _SAME_MEANING.items():
        if name in properties:
            configuration[theirs] = str(properties[name])
    protocol = configuration["security_protocol"] = _protocol(properties)
    if "SASL" in protocol:
        mechanism = configuration["sasl_mechanism"] = _mechanism(properties)
        if mechanism == "OAUTHBEARER":
            configuration["sasl_oauth_token_provider"] = token_provider(settings)
    if "SSL" in protocol:
        configuration["ssl_context"] = _ssl_context(properties)
    return configuration


def _refuse_untranslatable(properties: Mapping[str, Any]) -> None:
    for name in properties:
        if name in _SAME_MEANING or name in _TRANSLATED or name in TOKEN_PROPERTIES:
            continue
        if name.startswith(_DECIDES_WHO_IS_REACHED):
            raise ConfigurationError(
                f"kafka.properties: {name} has no equivalent in kafka-python, through which "
                f"transactions are inspected; give this command other credentials with --config, "
                f"for example SCRAM, or a certificate in files"
            )


def _protocol(properties: Mapping[str, Any]) -> str:
    given = properties.get("security.protocol", "plaintext")
    protocol = str(given).upper()
    if protocol not in _PROTOCOLS:
        raise ConfigurationError(
            f"kafka.properties: security.protocol={given!r} is not one of "
            f"{', '.join(_PROTOCOLS).lower()}; correct it"
        )
    return protocol


def _mechanism(properties: Mapping[str, Any]) -> str:
    given = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "GSSAPI"))
    mechanism = str(given).upper()
    if mechanism not in _MECHANISMS:
        raise ConfigurationError(
            f"kafka.properties: sasl.mechanism={given!r} cannot be used to inspect transactions; "
            f"give this command credentials for one of {', '.join(_MECHANISMS)} with --config"
        )
    return mechanism


def _address(server: str) -> str:
    """Return host:port of an entry; librdkafka also accepts it with a protocol in front."""
    return server.strip().rpartition("://")[2]


def _ssl_context(properties: Mapping[str, Any]) -> ssl.SSLContext:
    """Return a context as strict as librdkafka's with the same properties."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    algorithm = str(properties.get("ssl.endpoint.identification.algorithm", "https"))
    context.check_hostname = algorithm.lower() != "none"
    if str(properties.get("enable.ssl.certificate.verification", "true")).lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        _load_files(context, properties)
    except (OSError, ssl.SSLError) as error:
        names = [name for name in properties if name.startswith("ssl.")]
        raise ConfigurationError(
            f"kafka.properties: {', '.join(names)} cannot be used: {error}; correct the files"
        ) from error
    return context


def _load_files(context: ssl.SSLContext, properties: Mapping[str, Any]) -> None:
    authorities = str(properties.get("ssl.ca.location", "probe"))
    if pem := properties.get("ssl.ca.pem"):
        context.load_verify_locations(cadata=str(pem))
    elif authorities == "probe":
        context.load_default_certs()
    elif Path(authorities).is_dir():
        context.load_verify_locations(capath=authorities)
    else:
        context.load_verify_locations(cafile=authorities)
    if certificate := properties.get("ssl.certificate.location"):
        key, password = properties.get("ssl.key.location"), properties.get("ssl.key.password")
        context.load_cert_chain(
            str(certificate),
            str(key) if key else None,
            # Without a password OpenSSL would prompt for one on the terminal.
            str(password or ""),
        )
    if crl := properties.get("ssl.crl.location"):
        context.load_verify_locations(cafile=str(crl))
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    if ciphers := properties.get("ssl.cipher.suites"):
        context.set_ciphers(str(ciphers))
