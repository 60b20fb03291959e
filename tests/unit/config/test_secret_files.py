"""Secrets come from files of their own, and properties that hold one are never shown."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
from confluent_kafka import Producer

from eosframework.config import KafkaSettings, PropertyValue, load_settings
from eosframework.config.secrets import is_secret
from eosframework.errors import ConfigurationError
from eosframework.kafka.client.properties import Role, client_properties, new_client

SECRET = "p4ss w0rd'"
DSN = "postgresql://user:secret@host/name"


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "secrets"
    place.mkdir(mode=0o700)
    monkeypatch.setenv("EOS_SECRETS_DIR", str(place))
    return place


@pytest.fixture
def open_directory(directory: Path) -> Path:
    directory.chmod(0o755)
    return directory


def write(file: Path, content: str, mode: int) -> Path:
    file.write_text(content)
    file.chmod(mode)
    return file


def test_a_file_goes_by_the_name_of_its_setting(directory: Path, tmp_path: Path) -> None:
    (directory / "database.dsn").write_text(f"{DSN}\n")
    (directory / "kafka.properties.sasl.password").write_text(SECRET)
    (directory / "of_somebody_else").write_text("x")
    (directory / "..data").mkdir()
    config = tmp_path / "config.yaml"
    config.write_text("kafka: {properties: {sasl.username: me, sasl.password: old}}")

    settings = load_settings(config)

    assert settings.kafka.properties == {"sasl.username": "me", "sasl.password": SECRET}
    assert settings.database.dsn is not None
    assert settings.database.dsn.get_secret_value() == DSN


def test_the_environment_comes_before_files_of_secrets(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / "database.dsn").write_text("postgresql://another")
    monkeypatch.setenv("EOS_DATABASE__DSN", DSN)
    dsn = load_settings().database.dsn
    assert dsn is not None
    assert dsn.get_secret_value() == DSN


def test_a_directory_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EOS_SECRETS_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigurationError, match=r"EOS_SECRETS_DIR=.*nowhere.* cannot be read"):
        load_settings()


def test_a_file_that_is_not_text_is_refused_without_what_it_holds(directory: Path) -> None:
    (directory / "database.dsn").write_bytes(b"\xff\xfesecret")
    with pytest.raises(ConfigurationError, match=r"file \S+database\.dsn cannot be read") as raised:
        load_settings()
    shown = "".join(traceback.format_exception(raised.value))
    assert not [each for each in ("xff", "xfe", "secret'") if each in shown]


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o440, 0o640])
def test_a_file_for_its_owner_and_group_is_taken(open_directory: Path, mode: int) -> None:
    write(open_directory / "database.dsn", DSN, mode)
    assert load_settings().database.dsn is not None


@pytest.mark.parametrize("mode", [0o644, 0o444, 0o604, 0o602, 0o660, 0o666])
@pytest.mark.parametrize("name", ["database.dsn", "kafka.properties.sasl.password"])
def test_a_file_that_others_may_read_or_change_is_refused_by_name_and_mode(
    open_directory: Path, name: str, mode: int
) -> None:
    write(open_directory / name, SECRET, mode)
    with pytest.raises(
        ConfigurationError, match=rf"file \S+{name} .*mode {mode:04o}.*chmod"
    ) as raised:
        load_settings()
    assert SECRET not in str(raised.value)


def test_a_directory_for_its_owner_alone_protects_its_files(directory: Path) -> None:
    write(directory / "database.dsn", DSN, 0o644)
    assert load_settings().database.dsn is not None


def test_a_file_of_another_name_may_be_open(open_directory: Path) -> None:
    write(open_directory / "ca.pem", "x", 0o644)
    assert load_settings().database.dsn is None


def test_a_secret_is_read_as_kubernetes_mounts_it(open_directory: Path) -> None:
    written = open_directory / "..2026_11_22"
    written.mkdir(mode=0o755)
    (open_directory / "..data").symlink_to(written.name)
    (open_directory / "database.dsn").symlink_to("..data/database.dsn")
    write(written / "database.dsn", DSN, 0o440)
    dsn = load_settings().database.dsn
    assert dsn is not None
    assert dsn.get_secret_value() == DSN

    (written / "database.dsn").chmod(0o644)
    with pytest.raises(ConfigurationError, match="defaultMode"):
        load_settings()


def test_a_name_that_is_wrong_is_told_with_its_file(directory: Path) -> None:
    (directory / "database.dns").write_text(SECRET)
    with pytest.raises(ConfigurationError, match=r"file \S+database\.dns: .*no such") as raised:
        load_settings()
    assert SECRET not in str(raised.value)


def test_a_property_that_is_not_known_is_told_without_its_value() -> None:
    settings = KafkaSettings(properties={"sasl.pasword": SECRET})
    with pytest.raises(ConfigurationError, match=r"did you mean sasl\.password") as raised:
        new_client(Producer, client_properties(settings, Role.PRODUCER))
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "content",
    [
        f"kafka: {{properties: {{sasl.password: [{SECRET}]}}}}".replace("'", ""),
        "kafka: {properties: p4ss}",
        "kafka: p4ss",
        "kafka: {properties: {sasl.password: !p4ss}}",
        "kafka: {properties: {sasl.password: *p4ss}}",
    ],
)
def test_a_mistake_around_a_secret_property_does_not_show_it(content: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(content)
    with pytest.raises(ConfigurationError) as raised:
        load_settings(file)
    assert "p4ss" not in str(raised.value)


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.assertion.private.key.passphrase",
    ],
)
def test_settings_are_shown_without_secret_properties(name: str) -> None:
    assert is_secret(name)
    settings = KafkaSettings(properties={name: SECRET, "linger.ms": 3})
    assert SECRET not in repr(settings)
    assert "linger.ms" in repr(settings)


def test_a_url_that_is_refused_is_shown_without_who_asks() -> None:
    with pytest.raises(ConfigurationError, match=r"//…@host") as raised:
        load_settings(assignments=["schema_registry.url=https://user:p4ss@host:8081"])
    assert "p4ss" not in str(raised.value)


def test_what_librdkafka_refuses_is_told_without_the_secret() -> None:
    secrets: dict[str, PropertyValue] = {"ssl.key.pem": SECRET, "security.protocol": "ssl"}
    settings = KafkaSettings(properties=secrets)
    with pytest.raises(ConfigurationError) as raised:
        new_client(Producer, client_properties(settings, Role.PRODUCER))
    assert "ssl.key.pem" in str(raised.value)
    assert SECRET not in str(raised.value)
