from __future__ import annotations

import base64
import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import ValidationError

from eosframework.config import KafkaSettings
from eosframework.errors import ConfigurationError
from eosframework.kafka.client.properties import client_properties, new_client
from eosframework.kafka.client.token_function import TokenFunction, token_function
from eosframework.kafka.inspect.configuration import client_configuration
from eosframework.process.client_log import CLIENT_LOGGER
from eosframework.spark.session.java_properties import java_properties

OAUTH: dict[str, Any] = {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "OAUTHBEARER"}


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Tokens:
    """A user's function: tokens of 100 s, or what it is given to return or to raise."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.calls: list[Any] = []
        self.instead: Any = None

    def __call__(self, config: Any) -> Any:
        self.calls.append(config)
        if isinstance(self.instead, BaseException):
            raise self.instead
        return self.instead or (f"token {len(self.calls)}", self.clock.now + 100, "robot")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(clock: Clock) -> Tokens:
    return Tokens(clock)


@pytest.fixture
def function(tokens: Tokens, clock: Clock) -> TokenFunction:
    return TokenFunction("shop:tokens", tokens, clock)


def test_clients_share_a_token_until_half_of_its_life(
    function: TokenFunction, tokens: Tokens, clock: Clock
) -> None:
    assert [function("a=b")[0] for _ in range(3)] == ["token 1"] * 3
    clock.now += 49
    assert function("a=b") == ("token 1", 1_100.0, "robot")
    clock.now += 2  # librdkafka asks again at 80
    assert function("a=b")[0] == "token 2"
    assert tokens.calls == ["a=b", "a=b"]


@pytest.fixture
def of_clients() -> Iterator[None]:
    """Show librdkafka's records as commands do: only errors."""
    logger = logging.getLogger(CLIENT_LOGGER)
    before = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(before)


@pytest.mark.usefixtures("of_clients")
def test_a_valid_token_stands_in_for_a_function_that_fails(
    function: TokenFunction, tokens: Tokens, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    function()
    tokens.instead = OSError("no route to the metadata server")
    clock.now += 80
    with caplog.at_level(logging.WARNING):
        assert function()[0] == "token 1"
    assert "shop:tokens raised OSError: no route to the metadata server" in caplog.text
    clock.now += 16
    with pytest.raises(ConfigurationError, match=r"kafka\.oauth_cb=shop:tokens raised OSError"):
        function()
    tokens.instead = None
    assert function()[0] == "token 4"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("secret", "returned a str; expected (token, expiry in seconds since 1970"),
        (("secret",), "returned a tuple; expected"),
        (("secret", "3600"), "returned (str, str); expected"),
        ((b"secret", 5_000.0), "returned (bytes, float); expected"),
        (("secret", 900), "returned a token that expired at 900; expected a later time"),
        (SystemExit("secret ends"), "raised SystemExit"),
    ],
)
def test_what_is_no_token_is_named_and_not_shown(
    function: TokenFunction, tokens: Tokens, answer: Any, reason: str
) -> None:
    tokens.instead = answer
    with pytest.raises(ConfigurationError) as refused:
        function()
    assert reason in str(refused.value)
    assert "secret" not in str(refused.value) or isinstance(answer, SystemExit)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], KafkaSettings]:
    """Settings whose `kafka.oauth_cb` names a function."""

    def make(given: Any) -> KafkaSettings:
        name = f"tokens_{id(given)}"
        made = ModuleType(name)
        made.__dict__["get"] = given
        monkeypatch.setitem(sys.modules, name, made)
        return KafkaSettings(oauth_cb=f"{name}:get", properties=OAUTH)

    return make


def jwt(_config: Any) -> tuple[str, float]:
    claims = base64.urlsafe_b64encode(json.dumps({"sub": "robot"}).encode()).decode().rstrip("=")
    return f"e30.{claims}.", 4e9


@pytest.mark.parametrize("role", ["producer", "consumer", "admin"])
def test_every_client_of_librdkafka_gets_the_function(
    module: Callable[[Any], KafkaSettings], role: str
) -> None:
    settings = module(jwt)
    assert client_properties(settings, role)["oauth_cb"] is token_function(settings)
    assert "oauth_cb" not in client_properties(KafkaSettings(), role)


def test_kafka_python_gets_the_same_token_and_its_extensions(
    module: Callable[[Any], KafkaSettings],
) -> None:
    settings = module(lambda config: (f"token of {config}", 4e9, "", {"logicalCluster": "x"}))
    provider = client_configuration(settings)["sasl_oauth_token_provider"]
    assert (provider.token(), provider.extensions()) == ("token of None", {"logicalCluster": "x"})


def test_a_function_that_fails_is_reported_before_a_client_waits_for_it(
    module: Callable[[Any], KafkaSettings],
) -> None:
    def refuse(_config: Any) -> Any:
        raise PermissionError("no role is attached")

    made: list[Any] = []
    properties = client_properties(module(refuse), "admin")
    with pytest.raises(ConfigurationError, match="raised PermissionError: no role is attached"):
        new_client(made.append, properties)
    assert made == []


def test_sparks_java_client_is_refused_unless_it_has_its_own_login(
    module: Callable[[Any], KafkaSettings],
) -> None:
    settings = module(jwt)
    with pytest.raises(ConfigurationError, match="cannot call; give it a class: --spark kafka"):
        java_properties(settings, {})
    own = {"kafka.sasl.jaas.config": "x required;"}
    assert java_properties(settings, own)["kafka.sasl.jaas.config"] == "x required;"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "needs the property sasl.mechanisms=OAUTHBEARER, but it is GSSAPI"),
        ({"sasl.mechanisms": "PLAIN"}, "but it is PLAIN"),
        ({**OAUTH, "sasl.oauthbearer.method": "oidc"}, "two sources of tokens"),
        ({**OAUTH, "enable.sasl.oauthbearer.unsecure.jwt": True}, "two sources of tokens"),
    ],
)
def test_settings_that_contradict_the_function_are_refused(
    given: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValidationError, match=reason):
        KafkaSettings(oauth_cb="shop:tokens", properties=given)


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("no_such_module_here:get", "there is no module 'no_such_module_here'"),
        ("json:lods", "has no attribute 'lods'; did you mean 'loads'"),
        ("json:__doc__", "is a str; expected a function"),
    ],
)
def test_a_reference_to_no_function_is_named(
    reference: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    settings = KafkaSettings(oauth_cb=reference, properties=OAUTH)
    with pytest.raises(ConfigurationError) as refused:
        client_properties(settings, "producer")
    assert str(refused.value).startswith("kafka.oauth_cb")
    assert reason in str(refused.value)
