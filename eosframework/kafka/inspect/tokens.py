"""OAUTHBEARER tokens, obtained as librdkafka does with the same properties.

There are three ways: from a user's function (`kafka.oauth_cb`), from an endpoint with the client's
credentials (`sasl.oauthbearer.method=oidc`), or unsecured, made here, for brokers that are not in
production.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from eosframework.config import KafkaSettings
from eosframework.errors import ConfigurationError
from eosframework.kafka.client.token_function import TokenFunction, token_function
from eosframework.kafka.inspect.vendor import oauth

_METHOD = "sasl.oauthbearer.method"
_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_GRANT = "sasl.oauthbearer.grant.type"
_CLIENT_IDS = ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id")
_SECRETS = ("sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret")
_SCOPE = "sasl.oauthbearer.scope"
_EXTENSIONS = "sasl.oauthbearer.extensions"
_UNSECURED = "enable.sasl.oauthbearer.unsecure.jwt"
_CONFIG = "sasl.oauthbearer.config"
_AUTHORITY_FILE, _AUTHORITY = "https.ca.location", "https.ca.pem"

TOKEN_PROPERTIES = frozenset(
    {
        *(_METHOD, _ENDPOINT, _GRANT, _SCOPE, _EXTENSIONS, _UNSECURED, _CONFIG),
        *(*_CLIENT_IDS, *_SECRETS, _AUTHORITY_FILE, _AUTHORITY),
    }
)
"""The supported properties about the source of tokens."""

ENDPOINT_SECONDS = 10.0

RENEWED_AT = 0.8
"""Fraction of a token's life, as in librdkafka."""


def token_provider(settings: KafkaSettings) -> Any:
    """Return a token provider for kafka-python.

    Raises:
        ConfigurationError: the settings select no supported way to get a token.
    """
    properties = settings.properties
    if function := token_function(settings):
        return FunctionTokens(function, properties.get(_CONFIG))
    if str(properties.get(_METHOD, "default")).lower() == "oidc":
        return EndpointTokens(properties)
    if str(properties.get(_UNSECURED, "false")).lower() == "true":
        return UnsecuredTokens(str(properties.get(_CONFIG, "")))
    raise ConfigurationError(
        f"kafka.properties: sasl.mechanism=OAUTHBEARER needs {_METHOD}=oidc with {_ENDPOINT}, "
        f"{_CLIENT_IDS[0]} and {_SECRETS[0]}, or kafka.oauth_cb; for a test, "
        f"{_UNSECURED}=true with {_CONFIG}"
    )


class FunctionTokens(oauth.AbstractTokenProvider):
    """Takes tokens from a user's function."""

    def __init__(self, function: TokenFunction, config: Any) -> None:
        self._function = function
        self._config = None if config is None else str(config)

    def token(self) -> str:
        """Return a token that is valid for a while.

        Raises:
            ConfigurationError: the function returned none.
        """
        return self._function(self._config)[0]

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions to send with the token."""
        answer = self._function(self._config)
        return answer[3] if len(answer) > 3 else {}


class EndpointTokens(oauth.AbstractTokenProvider):
    """Requests tokens from an endpoint with the client's credentials (RFC 6749, 4.4)."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._endpoint = _required(properties, _ENDPOINT)
        grant = str(properties.get(_GRANT, "client_credentials"))
        if grant != "client_credentials":
            raise ConfigurationError(
                f"kafka.properties: {_GRANT}={grant} cannot be used to inspect transactions; give "
                f"this command other credentials with --config"
            )
        pair = f"{_required(properties, *_CLIENT_IDS)}:{_required(properties, *_SECRETS)}"
        self._credentials = base64.b64encode(pair.encode()).decode()
        self._scope = str(properties.get(_SCOPE, ""))
        self._extensions = _pairs(str(properties.get(_EXTENSIONS, "")), ",")
        self._trust = _trust(properties)
        self._token = ""
        self._renew_at = 0.0

    def token(self) -> str:
        """Return a token that is valid for a while.

        Raises:
            ConfigurationError: the endpoint gave none.
        """
        if time.monotonic() >= self._renew_at:
            answer = self._ask()
            self._token = str(answer["access_token"])
            seconds = float(answer.get("expires_in") or 0)
            self._renew_at = time.monotonic() + seconds * RENEWED_AT
        return self._token

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions to send with the token."""
        return self._extensions

    def _ask(self) -> dict[str, Any]:
        form = {"grant_type": "client_credentials"} | (
            {"scope": self._scope} if self._scope else {}
        )
        request = urllib.request.Request(
            self._endpoint,
            urllib.parse.urlencode(form).encode(),
            {"Authorization": f"Basic {self._credentials}", "Accept": "application/json"},
        )
        try:
            with urllib.request.urlopen(
                request, timeout=ENDPOINT_SECONDS, context=self._trust
            ) as answer:
                found: dict[str, Any] = json.load(answer)
            if "access_token" in found:
                return found
            reason = "its answer has no access_token"
        except (OSError, ValueError, urllib.error.URLError) as error:
            reason = str(error)
        raise ConfigurationError(
            f"kafka.properties: {_ENDPOINT}={self._endpoint} gave no token: {reason}; correct the "
            f"endpoint, {_CLIENT_IDS[0]} or {_SECRETS[0]}"
        )


class UnsecuredTokens(oauth.AbstractTokenProvider):
    """Makes unsigned tokens from the pairs in `sasl.oauthbearer.config`."""

    def __init__(self, config: str) -> None:
        given = _pairs(config, " ")
        if "principal" not in given:
            raise ConfigurationError(f"kafka.properties: {_CONFIG} has no principal=NAME; add it")
        self._claims: dict[str, Any] = {
            given.get("principalClaimName", "sub"): given["principal"],
        }
        if scope := given.get("scope"):
            self._claims[given.get("scopeClaimName", "scope")] = scope.split(",")
        self._life_seconds = int(given.get("lifeSeconds", "3600"))
        self._extensions = {
            name.removeprefix("extension_"): value
            for name, value in given.items()
            if name.startswith("extension_")
        }

    def token(self) -> str:
        """Return a new token."""
        now = time.time()
        claims = {**self._claims, "iat": now, "exp": now + self._life_seconds}
        return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions to send with the token."""
        return self._extensions


def _required(properties: Mapping[str, Any], *names: str) -> str:
    for name in names:
        if name in properties:
            return str(properties[name])
    raise ConfigurationError(f"kafka.properties: {_METHOD}=oidc needs {names[0]}; set it")


def _pairs(text: str, separator: str) -> dict[str, str]:
    parts = (part.strip().partition("=") for part in text.split(separator) if part.strip())
    return {name: value for name, _, value in parts}


def _trust(properties: Mapping[str, Any]) -> ssl.SSLContext:
    file, pem = properties.get(_AUTHORITY_FILE), properties.get(_AUTHORITY)
    try:
        return ssl.create_default_context(
            cafile=None if file in (None, "probe") else str(file),
            cadata=None if pem is None else str(pem),
        )
    except (OSError, ssl.SSLError) as error:
        named = _AUTHORITY if file is None else f"{_AUTHORITY_FILE}={file}"
        raise ConfigurationError(
            f"kafka.properties: {named} cannot be used: {error}; correct it"
        ) from error


def _encoded(part: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
