from __future__ import annotations

import traceback
from pathlib import Path

import orjson
import pytest
from pydantic import ValidationError

from eosframework.cli.explain import list_settings
from eosframework.config import Settings, load_settings
from eosframework.errors import ConfigurationError

SECRET = "p4ssw0rd"
DSN = f"postgresql://user:{SECRET}@host/name?sslmode=require"


def test_a_dsn_is_taken_and_never_shown() -> None:
    settings = load_settings(assignments=[f"database.dsn={DSN}"])

    assert settings.database.dsn is not None
    assert settings.database.dsn.get_secret_value() == DSN
    shown = (repr(settings), str(settings.database), settings.model_dump_json())
    assert not any(SECRET in text for text in shown)
    assert SECRET not in orjson.dumps(list_settings()).decode()


@pytest.mark.parametrize(
    "assignment",
    [
        DSN,
        f"dsn={DSN}",
        f"database={DSN}",
        f"database.dns={DSN}",
        f"database.dsn=[{SECRET}]",
        f"database.dsn={{a: {SECRET}}}",
    ],
)
def test_a_mistake_with_the_dsn_on_the_command_line_does_not_show_it(assignment: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_settings(assignments=[assignment])

    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "variable",
    ["EOS_DATABASE", "EOS_DATABASE_DSN", "EOS_DATABASE__DNS", "EOS_DATABSE__DSN", "EOS_DB__DSN"],
)
def test_a_mistake_with_the_dsn_in_the_environment_does_not_show_it(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, DSN)

    with pytest.raises(ConfigurationError) as raised:
        load_settings()

    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "content",
    [f"database: {SECRET}", f"database: {{dsn: [{SECRET}]}}", f"database: {{dns: {SECRET}}}"],
)
def test_a_mistake_with_the_dsn_in_a_file_does_not_show_it(content: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(content)

    with pytest.raises(ConfigurationError) as raised:
        load_settings(file)

    assert SECRET not in str(raised.value)


def test_there_is_no_database_unless_it_is_named() -> None:
    assert Settings().database.dsn is None


@pytest.mark.parametrize(
    "content",
    [
        f"database: {{dsn: [{SECRET}]}}",
        f"registry: {{url: 'http://127.0.0.1:8081', user: u, password: [{SECRET}]}}",
        f"kafka: {{properties: {{sasl.password: [{SECRET}]}}}}",
        f"database: {{dsn: !{SECRET} x}}",
        f"database: {{dsn: *{SECRET}}}",
        f"database: {{dsn: {SECRET}",
    ],
)
def test_a_traceback_of_a_mistake_does_not_show_it(content: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(content)

    with pytest.raises(ConfigurationError) as raised:
        load_settings(file)

    assert SECRET not in "".join(traceback.format_exception(raised.value))


def test_pydantic_itself_does_not_show_it() -> None:
    with pytest.raises(ValidationError) as raised:
        Settings.model_validate({"database": {"dsn": [SECRET]}})

    assert SECRET not in str(raised.value)
