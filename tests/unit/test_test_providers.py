"""Where servers for tests come from is decided by the option, then variables, then the default."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework.errors import ConfigurationError
from eosframework.testing.containers import Containers, broker_variable
from eosframework.testing.providers import Embedded, External, Provider, choose_provider

SOMEWHERE = {"EOS_TEST_BOOTSTRAP": "somewhere:9092"}


def chosen(name: str | None, environment: dict[str, str]) -> Provider:
    return choose_provider("kafka", name, environment, Path)


def test_servers_are_embedded_unless_something_else_is_said() -> None:
    assert isinstance(chosen(None, {}), Embedded)


def test_a_server_that_is_named_is_used() -> None:
    assert isinstance(chosen(None, SOMEWHERE), External)
    assert isinstance(choose_provider("postgres", None, SOMEWHERE, Path), Embedded)
    with chosen(None, SOMEWHERE).kafka({}) as bootstrap_servers:
        assert bootstrap_servers == "somewhere:9092"


def test_the_option_goes_before_the_variable_and_that_before_a_server_that_is_named() -> None:
    variables = SOMEWHERE | {"EOS_TEST_PROVIDER": "embedded"}
    assert isinstance(chosen(None, variables), Embedded)
    assert isinstance(chosen("external", variables), External)


def test_images_are_the_official_ones_unless_others_are_named() -> None:
    mine = {"EOS_TEST_KAFKA_IMAGE": "mirror.example/kafka:4.0.2"}
    provider = chosen("containers", mine)
    assert isinstance(provider, Containers)
    assert provider.images == {"kafka": "mirror.example/kafka:4.0.2", "postgres": "postgres:18"}


def test_embedded_brokers_are_of_the_version_that_is_named() -> None:
    assert chosen(None, {"EOS_TEST_KAFKA_VERSION": "4.0.2"}) == Embedded(Path, "4.0.2")


def test_a_provider_that_there_is_not_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="'podman'; expected embedded, containers"):
        chosen("podman", {})


def test_an_external_server_that_nobody_named_is_asked_for() -> None:
    with (
        pytest.raises(ConfigurationError, match="EOS_TEST_BOOTSTRAP does not say where; set it"),
        chosen("external", {}).kafka({}),
    ):
        pass


@given(st.from_regex(r"[a-z]+([.-][a-z]+|_[a-z]+)*", fullmatch=True))
def test_a_property_comes_out_of_its_variable_as_it_went_in(name: str) -> None:
    """As KafkaDockerWrapper reads them: `___` is `-`, `__` is `_`, and `_` is a dot."""
    variable = broker_variable(name).removeprefix("KAFKA_").lower()
    read = variable.replace("_", ".").replace("...", "-").replace("..", "_")
    assert read == name
