"""A Kafka client's properties: in a `.properties` file, and one by one in the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from eosframework.config import load_settings
from eosframework.errors import ConfigurationError


def write(folder: Path, text: str) -> Path:
    file = folder / "client.properties"
    file.write_text(text)
    return file


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ConfigurationError) as refused:
        load_settings(write(folder, text))
    return str(refused.value).replace(f"{folder}/", "")


def test_a_file_of_kafkas_tools_is_a_config_file(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "# of the operations team\n! the same\n\n"
        "bootstrap.servers = a:9092,b:9092  \n"
        "security.protocol=SASL_SSL\r\n"
        "sasl.username: me\n"
        "  sasl.password=p\\u00e4ss\\\\\\=\\ \n"
        "ssl.ca.location=/etc/\\\n    kafka/ca.pem\n"
        "sasl.kerberos.principal=\n",
    )
    kafka = load_settings(file).kafka
    assert kafka.bootstrap_servers == "a:9092,b:9092"
    assert kafka.properties == {
        "security.protocol": "SASL_SSL",
        "sasl.username": "me",
        "sasl.password": "päss\\=",
        "ssl.ca.location": "/etc/kafka/ca.pem",
        "sasl.kerberos.principal": "",
    }


def test_settings_of_the_framework_have_a_prefix_in_it(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "eosframework.worker.commit_interval_seconds=0.2\n"
        "eosframework.kafka.properties.client.id=me\n",
    )
    settings = load_settings(file)
    assert settings.worker.commit_interval_seconds == 0.2
    assert settings.kafka.properties == {"client.id": "me"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("acks.is=1\nsecret word\n", "config file client.properties:2: malformed line; expected"),
        ("a=1\n\n=secret\n", "config file client.properties:3: malformed line; expected NAME="),
        ("a=\\u12\n", r"config file client.properties:1: \u without four hexadecimal digits"),
        (
            "a.b=1\nc=2\na.b=secret\n",
            "config file client.properties:3: property a.b is also given at client.properties:1",
        ),
        ("eosframework.worker=1\n", "client.properties:1: eosframework.worker names no setting"),
        ("eosframework.worker.nope=1\n", "worker.nope: there is no such setting"),
        ("isolation.level=read_uncommitted\n", "isolation.level='read_uncommitted' would break"),
    ],
)
def test_what_is_wrong_is_one_message_with_its_line_and_without_its_value(
    tmp_path: Path, text: str, expected: str
) -> None:
    message = refusal(tmp_path, text)
    assert expected in message
    assert "secret" not in message


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(b"a=\xff")
    with pytest.raises(ConfigurationError, match=r"is not UTF-8 text .*; expected properties"):
        load_settings(file)


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("SSL_CA_LOCATION", "ssl.ca.location"),
        ("LINGER_MS", "linger.ms"),
        ("SSL___KEY", "ssl_key"),
        ("A__B_C", "a-b.c"),
        ("ssl.ca.location", "ssl.ca.location"),
    ],
)
def test_a_variable_names_a_property(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, name: str
) -> None:
    monkeypatch.setenv(f"EOS_KAFKA__PROPERTIES__{variable}", "of the environment")
    file = write(tmp_path, f"{name}=of the file\nclient.id=me\n")
    assert load_settings(file).kafka.properties == {name: "of the environment", "client.id": "me"}
    assigned = load_settings(file, [f"kafka.properties.{name}=of the flag"])
    assert assigned.kafka.properties[name] == "of the flag"


def test_variables_of_properties_and_of_all_of_them_go_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EOS_KAFKA__PROPERTIES", '{"debug": "broker", "linger.ms": 1}')
    monkeypatch.setenv("EOS_KAFKA__PROPERTIES__LINGER_MS", "7")
    assert load_settings().kafka.properties == {"debug": "broker", "linger.ms": "7"}


@pytest.mark.parametrize("variable", ["", "_A", "A_", "A____B"])
def test_a_variable_that_names_no_property_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(f"EOS_KAFKA__PROPERTIES__{variable}", "secret")
    with pytest.raises(ConfigurationError, match="names no property of librdkafka") as refused:
        load_settings()
    assert f"EOS_KAFKA__PROPERTIES__{variable} " in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_variable_cannot_break_the_guarantee_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EOS_KAFKA__PROPERTIES__ENABLE_IDEMPOTENCE", "false")
    with pytest.raises(ConfigurationError, match=r"enable\.idempotence='false' would break"):
        load_settings()
