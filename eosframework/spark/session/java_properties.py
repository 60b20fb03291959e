"""Connection properties of Kafka's Java client, which Spark uses, from librdkafka's.

Security properties are translated; certificates and keys are passed as text, so that executors need
no files. Tuning properties of librdkafka are left out. A security property without a counterpart is
refused by name, unless the user sets a Java property in its place (`kafka.NAME` among Spark's
options).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from pathlib import Path

from eosframework.config import KafkaSettings
from eosframework.config.settings import FORBIDDEN_PROPERTIES
from eosframework.errors import ConfigurationError

PREFIX = "kafka."
"""Of options for the Java client."""

_FIXED = {"isolation.level": "read_committed", "allow.auto.create.topics": "false"}
_UNSECURED = ("client.dns.lookup", "client.id", "client.rack")
_MODULES = "org.apache.kafka.common.security"
_LOGIN_MODULES = {
    "PLAIN": f"{_MODULES}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_MODULES}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_MODULES}.scram.ScramLoginModule",
}
_OAUTH = f"{_MODULES}.oauthbearer"
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.S)
_PBES2 = bytes.fromhex("06092a864886f70d01050d")
"""Object identifier of PBES2 in an encrypted key; the default of OpenSSL 3."""
_SYSTEM_CERTIFICATES = "probe"


def java_properties(settings: KafkaSettings, options: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's options for the connection to the cluster.

    Args:
        settings: the cluster and librdkafka's properties.
        options: those with prefix `kafka.` override the settings.

    Raises:
        ConfigurationError: a property has no counterpart in Java, or its file cannot be read; names
            the property.
    """
    own = {n.removeprefix(PREFIX): v for n, v in options.items() if n.startswith(PREFIX)}
    for name, value in own.items():
        if reason := FORBIDDEN_PROPERTIES.get(name):
            raise ConfigurationError(f"option {PREFIX}{name}={value} cannot be used: {reason}")
    if settings.oauth_cb is not None and "sasl.jaas.config" not in own:
        raise ConfigurationError(
            f"kafka.oauth_cb={settings.oauth_cb} is a Python function, which Spark's Kafka client "
            f"in Java cannot call; give it a class: --spark {PREFIX}sasl.jaas.config=… and --spark "
            f"{PREFIX}sasl.login.callback.handler.class=…"
        )
    theirs = {name: _text(value) for name, value in settings.properties.items()}
    protocol = theirs.pop("security.protocol", "plaintext").upper()
    java = {"bootstrap.servers": settings.bootstrap_servers, "security.protocol": protocol}
    java |= {name: theirs[name] for name in _UNSECURED if name in theirs}
    if protocol.startswith("SASL"):
        java |= _sasl(_family(theirs, "sasl.", "enable.sasl.", "https."), own)
    if protocol.endswith("SSL"):
        java |= _tls(_family(theirs, "ssl.", "enable.ssl."), own)
    return {f"{PREFIX}{name}": value for name, value in {**java, **own, **_FIXED}.items()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _family(properties: Mapping[str, str], *prefixes: str) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name.startswith(prefixes)}


def _refuse(left: Mapping[str, str], own: Mapping[str, str], family: str, instead: str) -> None:
    """Refuse untranslated properties unless the user has set Java properties of the same family."""
    if left and not _family(own, family):
        raise ConfigurationError(
            f"kafka.properties: Spark uses Kafka's Java client, which has no "
            f"counterpart to {', '.join(sorted(left))}; set the Java property in its place, "
            f"for example --spark {PREFIX}{instead}"
        )


def _sasl(left: dict[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the authentication properties; removes the translated ones from `left`."""
    mechanism = left.pop("sasl.mechanisms", left.pop("sasl.mechanism", "GSSAPI")).upper()
    java = {"sasl.mechanism": mechanism}
    if "sasl.jaas.config" in own:
        return java
    if module := _LOGIN_MODULES.get(mechanism):
        username, password = left.pop("sasl.username", ""), left.pop("sasl.password", "")
        java["sasl.jaas.config"] = _jaas(module, {"username": username, "password": password})
        left.clear()
    elif mechanism == "OAUTHBEARER" and left.pop("sasl.oauthbearer.method", "").lower() == "oidc":
        java |= _oidc(left)
    else:
        left.setdefault(f"sasl.mechanism={mechanism}", "")
    _refuse(left, own, "sasl.", "sasl.jaas.config=…")
    return java


def _oidc(left: dict[str, str]) -> dict[str, str]:
    """Return the properties of token requests; removes the translated ones from `left`."""
    own_names = ("client.id", "client.secret")
    credentials = {
        "clientId" if name == "client.id" else "clientSecret": left.pop(f"sasl.oauthbearer.{name}")
        for name in own_names
        if f"sasl.oauthbearer.{name}" in left
    }
    if scope := left.pop("sasl.oauthbearer.scope", ""):
        credentials["scope"] = scope
    for extension in filter(None, left.pop("sasl.oauthbearer.extensions", "").split(",")):
        name, _, value = extension.partition("=")
        credentials[f"extension_{name}"] = value
    if left.get("sasl.oauthbearer.grant.type") == "client_credentials":
        del left["sasl.oauthbearer.grant.type"]
    return {
        "sasl.jaas.config": _jaas(f"{_OAUTH}.OAuthBearerLoginModule", credentials),
        "sasl.login.callback.handler.class": f"{_OAUTH}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": left.pop("sasl.oauthbearer.token.endpoint.url", ""),
    }


def _jaas(module: str, options: Mapping[str, str]) -> str:
    given = " ".join(f"{name}={_quoted(value)}" for name, value in options.items())
    return f"{module} required {given};"


def _quoted(text: str) -> str:
    """Return a text quoted for JAAS."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _tls(left: dict[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the TLS properties; removes the translated ones from `left`."""
    java: dict[str, str] = {}
    if left.get("enable.ssl.certificate.verification") == "true":
        del left["enable.ssl.certificate.verification"]
    if algorithm := left.pop("ssl.endpoint.identification.algorithm", ""):
        java["ssl.endpoint.identification.algorithm"] = algorithm.replace("none", "")
    if left.get("ssl.ca.location") == _SYSTEM_CERTIFICATES:
        del left["ssl.ca.location"]
    if trusted := _content(left, "ssl.ca.pem", "ssl.ca.location"):
        java["ssl.truststore.type"] = "PEM"
        java["ssl.truststore.certificates"] = "\n".join(_CERTIFICATE.findall(trusted))
    java |= _identity(left)
    _refuse(left, own, "ssl.", "ssl.engine.factory.class=…")
    return java


def _identity(left: dict[str, str]) -> dict[str, str]:
    """Return the client certificate's properties; removes the translated ones from `left`."""
    password = left.pop("ssl.key.password", "")
    if location := left.pop("ssl.keystore.location", ""):
        store = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": location}
        return {**store, "ssl.keystore.password": left.pop("ssl.keystore.password", password)}
    chain = _content(left, "ssl.certificate.pem", "ssl.certificate.location")
    key = _content(left, "ssl.key.pem", "ssl.key.location")
    if not chain or not key:
        return {}
    _refuse_key(key)
    java = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "\n".join(_CERTIFICATE.findall(chain)),
        "ssl.keystore.key": key.strip(),
    }
    return {**java, "ssl.key.password": password} if "BEGIN ENCRYPTED" in key else java


def _refuse_key(key: str) -> None:
    """Refuse a private key format that librdkafka supports and Java does not."""
    begin = re.search("-----BEGIN ([A-Z ]*)PRIVATE KEY-----(.*?)-----END", key, re.S)
    form = begin[1].strip() if begin else "not PEM"
    if begin and form == "ENCRYPTED" and _PBES2 in base64.b64decode(begin[2]):
        form = "encrypted with PBES2"
    if form not in ("", "ENCRYPTED"):
        raise ConfigurationError(
            f"kafka.properties: the private key (ssl.key.location or ssl.key.pem) is {form}, which "
            f"Kafka's Java client does not read with Java 17; convert it: openssl pkcs8 -topk8 "
            f"-v1 PBE-SHA1-3DES -in KEY -out NEW_KEY (librdkafka reads that as well)"
        )


def _content(left: dict[str, str], text: str, location: str) -> str:
    """Return the value of one property, or the content of the file or directory in the other."""
    place = left.pop(location, "")
    if text in left or not place:
        return left.pop(text, "")
    path = Path(place)
    try:
        files = filter(Path.is_file, sorted(path.iterdir())) if path.is_dir() else [path]
        return "\n".join(file.read_text(encoding="utf-8") for file in files)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"kafka.properties: {location}={place} cannot be read: {error}; Spark gets its content"
        ) from error
