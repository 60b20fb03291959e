"""Loading of settings from the command line, the environment and files, with errors by name."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import SettingsError

from eosframework.config.properties_file import Property, read_properties
from eosframework.config.secrets import is_secret, over, put, read_secrets, secrets_directory
from eosframework.config.settings import FileSource, Settings
from eosframework.errors import ConfigurationError
from eosframework.serialization.references import closest
from eosframework.serialization.yaml_text import read_plain

_loading = threading.Lock()
"""`FileSource.values` belongs to one call at a time; a program's threads may all start workers."""


def load_settings(
    file: Path | None = None,
    assignments: list[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Settings:
    """Return settings from arguments, the environment, secret files and a file, in this order.

    Args:
        file: a YAML file with the sections of `Settings`, a `.properties` file, or None.
        assignments: `section.name=value` strings of `--set`; the value is read as YAML.
        overrides: values by `section.name`, for a program; instead of assignments.

    Raises:
        ConfigurationError: names the setting, its value and what was expected.
    """
    _refuse_unknown_variables()
    written = _read_file(file) if file else {}
    directory = secrets_directory()
    secrets = read_secrets(directory, list(Settings.model_fields)) if directory else {}
    given = _by_section(overrides or {})
    assigned = given or _parse_assignments(assignments or [])
    origin = "overrides: " if given else "--set "
    with _loading:
        return _validated(over(secrets, written), assigned, origin, file)


def _validated(
    values: dict[str, Any], assigned: dict[str, Any], origin: str, file: Path | None
) -> Settings:
    FileSource.values = values
    try:
        return Settings(**assigned)
    except ValidationError as error:
        findings = [_explain(detail, assigned, origin, file) for detail in error.errors()]
        # Not chained: pydantic's error shows values, and so secrets, in every traceback.
        raise ConfigurationError("; ".join(findings)) from None
    except SettingsError as error:
        raise ConfigurationError(
            f"an environment variable for a whole section is not JSON ({error.__cause__}); set "
            f"one setting with each variable, for example EOS_WORKER__COMMIT_INTERVAL_SECONDS=0.2"
        ) from None
    finally:
        FileSource.values = {}


def _refuse_unknown_variables() -> None:
    """Raise for a variable that looks like a setting and is none: it would be ignored.

    Other EOS_ variables are accepted; pydantic reports unknown ones inside a section.
    """
    sections = [f"EOS_{section}".upper() for section in Settings.model_fields]
    known = [
        f"EOS_{section}__{name}".upper()
        for section, field in Settings.model_fields.items()
        for name in _fields(field.annotation)
    ]
    flat = {name.replace("__", "_"): name for name in known}
    for variable in sorted(name for name in os.environ if name.startswith("EOS_")):
        section, separator, _ = variable.partition("__")
        meant = flat.get(variable.upper())
        if separator and section.upper() not in sections:
            hint = f"expected one that begins with {', '.join(f'{name}__' for name in sections)}"
        elif not separator and meant is not None:
            hint = f"did you mean {meant}, with two underscores after the section?"
        else:
            continue
        raise ConfigurationError(f"environment variable {variable} is no setting; {hint}")


def _holds_secrets(section: str, name: str | None = None, inner: str | None = None) -> bool:
    """Return True if a setting, a section or a property may contain a secret."""
    if section == "kafka" and name in (None, "properties"):
        return inner is None or is_secret(inner)
    declared = Settings.model_fields.get(section)
    model: Any = declared.annotation if declared else BaseModel
    fields: dict[str, FieldInfo] = model.model_fields
    return any(
        SecretStr in get_args(field.annotation)
        for own, field in fields.items()
        if name in (None, own)
    )


def _fields(model: Any) -> list[str]:
    return list(model.model_fields)


def _read_file(file: Path) -> dict[str, Any]:
    is_properties = file.suffix == ".properties"
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"config file {file} cannot be read ({error.strerror}); check --config"
        ) from error
    except UnicodeDecodeError as error:
        expected = "properties" if is_properties else "YAML"
        raise ConfigurationError(
            f"config file {file} is not UTF-8 text ({error.reason}); expected {expected}"
        ) from error
    return _of_properties(read_properties(text, file)) if is_properties else _of_yaml(text, file)


def _of_yaml(text: str, file: Path) -> dict[str, Any]:
    try:
        content: Any = read_plain(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        said = getattr(error, "problem", None) or " ".join(str(error).split())
        # PyYAML quotes a value that begins with ! or * as a tag or an alias; it may be a secret.
        problem = _QUOTED.sub("'…'", said)
        raise ConfigurationError(
            f"config file {file}{place} is not valid YAML: {problem}"
        ) from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigurationError(
            f"config file {file} holds a {type(content).__name__}; expected the sections "
            f"{', '.join(Settings.model_fields)}"
        )
    return content  # pyright: ignore[reportUnknownVariableType]


def _of_properties(properties: list[Property]) -> dict[str, Any]:
    """Return settings: a Kafka client's properties, and `eosframework.SECTION.NAME`.

    Values are trimmed, as by Kafka's clients.
    """
    values: dict[str, Any] = {}
    for one in properties:
        value = one.value.strip()
        prefix, _, own = one.name.partition(".")
        section, dot, setting = own.partition(".")
        if prefix != "eosframework":
            is_servers = one.name == "bootstrap.servers"
            name = "bootstrap_servers" if is_servers else f"properties.{one.name}"
            put(values, "kafka", name, value)
        elif dot:
            put(values, section, setting, _read_value(value))
        else:
            raise ConfigurationError(
                f"config file {one.place}: {one.name} names no setting; expected "
                f"eosframework.SECTION.NAME, for example "
                f"eosframework.worker.commit_interval_seconds=0.2"
            )
    return values


def _parse_assignments(assignments: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        section, dot, setting = name.strip().partition(".")
        if not equals or not dot:
            raise ConfigurationError(
                f"--set {_NOT_PLAIN.sub('…', name)!r} is not SECTION.NAME=VALUE, "
                f"for example worker.commit_interval_seconds=0.2"
            )
        put(values, section, setting, _read_value(text))
    return values


def _read_value(text: str) -> Any:
    try:
        return read_plain(text)
    except yaml.YAMLError:
        return text


def _by_section(overrides: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in overrides.items():
        section, dot, setting = name.partition(".")
        if not dot:
            raise ConfigurationError(
                f"overrides has {name!r}, which is not SECTION.NAME, for example "
                f"worker.commit_interval_seconds"
            )
        put(values, section, setting, value)
    return values


_NOT_PLAIN = re.compile(r"[^\w.-].*", re.DOTALL)
"""From the first such character on, the text may be a value, and so a secret."""

_QUOTED = re.compile(r"'[^']{2,}'")
_USER = re.compile(r"//[^/@\s]+@")
"""User information before a host, often with a password."""

_EXPECTED = {
    "model_type": "settings by name",
    "string_type": "text",
    "string_too_short": "text",
    "dict_type": "properties by name",
}
"""Replacements for pydantic's messages about classes."""


def _explain(
    detail: ErrorDetails, assigned: Mapping[str, Any], origin: str, file: Path | None
) -> str:
    """Return one finding: the source of the value, its name, the value and the problem."""
    parts = [str(part) for part in detail["loc"]]
    name = f"{_origin(parts, assigned, origin, file)}{'.'.join(parts)}"
    if detail["type"] == "extra_forbidden":
        section, *inner = parts
        declared = Settings.model_fields.get(section)
        known = _fields(declared.annotation) if declared and inner else list(Settings.model_fields)
        hint = closest(parts[-1], known)
        return f"{name}: there is no such setting{hint or '; see `eosframework explain settings`'}"
    if detail["type"] == "value_error":
        return f"{name}: {detail['ctx']['error']}"  # pyright: ignore[reportTypedDictNotRequiredAccess]
    expected = _EXPECTED.get(detail["type"]) or detail["msg"].removeprefix("Input should be ")
    if detail["type"] == "string_pattern_mismatch":
        expected = f"text that matches {detail['ctx']['pattern']}"  # pyright: ignore[reportTypedDictNotRequiredAccess]
    given = "…" if _holds_secrets(*parts[:3]) else _USER.sub("//…@", repr(detail["input"]))
    return f"{name}={given}: expected {expected}; see `eosframework explain settings`"


def _origin(parts: list[str], assigned: Mapping[str, Any], origin: str, file: Path | None) -> str:
    section, *inner = parts
    if inner and inner[0] in assigned.get(section, {}):
        return origin
    variable = f"EOS_{'__'.join(parts)}".upper()
    if variable in (name.upper() for name in os.environ):
        return f"environment variable {variable}, "
    directory = secrets_directory()
    if directory and (secret := directory / ".".join(parts)).is_file():
        return f"file {secret}: "
    if file is not None and section in FileSource.values:
        return f"config file {file}: "
    return ""
