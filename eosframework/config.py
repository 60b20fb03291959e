"""Every setting, declared once: purpose, unit, default, special value.

A value comes from a command-line flag or `--set`, then from an `EOS_…` environment variable
(`EOS_WORKER__COMMIT_INTERVAL_SECONDS`), then from the config file, then from the default here.
The command line, the documentation and the JSON Schema derive from these models.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from eosframework.errors import ConfigurationError
from eosframework.references import closest

PropertyValue = str | int | float | bool

_ONE_CLUSTER = (
    "a transaction cannot span clusters, so all topics of an application are on the one that "
    "kafka.bootstrap_servers names"
)

FORBIDDEN_PROPERTIES: dict[str, str] = {
    "transactional.id": "it is derived from application, sub-topology and partition",
    "enable.idempotence": "a transactional producer is always idempotent",
    "isolation.level": "inputs are read read_committed, or aborted records would be processed",
    "enable.auto.commit": "offsets are committed inside the transaction",
    "enable.auto.offset.store": "offsets are committed inside the transaction",
    "auto.offset.reset": "set worker.start; where progress exists a lost position is an error",
    "acks": "transactions need acks=all",
    "max.in.flight": "the idempotent producer needs its own value",
    "max.in.flight.requests.per.connection": "the idempotent producer needs its own value",
    "group.id": "it is the application's name",
    "group.instance.id": "set worker.instance",
    "group.protocol": "the protocol was chosen by measurement (docs/adr/0003)",
    "partition.assignment.strategy": "source topics of a task must be assigned together",
    "transaction.timeout.ms": "set worker.transaction_timeout_seconds",
    "enable.partition.eof": "the worker needs it to know when an input is read to its end",
    "partitioner": "keys must land where Java's producers put them: murmur2_random",
    "statistics.interval.ms": "the straggler protection needs its own value",
    "bootstrap.servers": _ONE_CLUSTER,
    "metadata.broker.list": _ONE_CLUSTER,
    "test.mock.num.brokers": "the mock broker shows aborted records and does not fence",
    "dr_cb": "delivery failures are reported by the commit",
    "dr_msg_cb": "delivery failures are reported by the commit",
    "delivery.report.only.error": "delivery failures are reported by the commit",
}
"""librdkafka properties that would break the guarantee, each with the reason."""


class Guarantee(StrEnum):
    """What holds for each input record."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


class Start(StrEnum):
    """Where a partition starts that this application has never committed."""

    EARLIEST = "earliest"
    LATEST = "latest"


class _Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, coerce_numbers_to_str=True
    )


class KafkaSettings(_Section):
    """How to reach the cluster."""

    bootstrap_servers: str = Field(default="127.0.0.1:9092", min_length=1)
    """Brokers to ask first, as host:port, separated by commas."""

    properties: dict[str, PropertyValue] = Field(default_factory=dict)
    """librdkafka properties passed through to every client (security.protocol, sasl.…, …).
    Those that would break the guarantee are refused by name."""

    assume_transaction_verification: bool = False
    """Start although the brokers' transaction.partition.verification.enable cannot be read.
    Only set it when you know that it is on: without it a delayed frame can tear a transaction."""

    request_timeout_seconds: float = Field(default=10.0, gt=0)
    """Seconds after which an unanswered call to a broker counts as failed."""

    @model_validator(mode="after")
    def _refuse_what_breaks_the_guarantee(self) -> Self:
        for name, value in self.properties.items():
            if reason := FORBIDDEN_PROPERTIES.get(name):
                raise ValueError(
                    f"property {name}={value!r} would break the guarantee: {reason}. Remove it"
                )
        return self


class WorkerSettings(_Section):
    """How a worker processes."""

    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    """exactly_once, or at_least_once for comparison."""

    commit_interval_seconds: float = Field(default=0.1, gt=0)
    """Seconds between rounds of commits. A round that takes long stretches it."""

    transaction_timeout_seconds: float = Field(default=30.0, gt=0)
    """Seconds after which the broker aborts a transaction that was not finished.
    A single record must take less. At most the brokers' transaction.max.timeout.ms."""

    session_timeout_seconds: float = Field(default=45.0, gt=0)
    """Seconds without a heartbeat after which a worker that does not come back loses its
    partitions. A restarted worker with the same instance name takes them back at once."""

    heartbeat_interval_seconds: float = Field(default=1.0, ge=0.3)
    """Seconds between heartbeats; a rebalance is noticed at the next one. A fenced worker waits
    for two of them, which has to be longer than librdkafka repeats a request (500 ms)."""

    instance: str | None = Field(default=None, pattern="^[A-Za-z0-9_.-]+$")
    """Name of this worker, stable across restarts, unique within the application.
    None: the host's name and the lowest slot that no other worker on this host has."""

    start: Start = Start.EARLIEST
    """Where a partition starts that was never committed: earliest or latest."""

    receipts: bool = False
    """Give every output and dead letter a header, eos.receipt, that tells which input record it
    comes from, so that `eosframework audit` needs no functions. Downstream keeps the header."""

    batch_records: int = Field(default=2000, gt=0)
    """Records taken from the consumer at once, at most."""

    leave_on_stop: bool = True
    """On a graceful stop give the partitions to other workers at once. False: keep them for
    this instance's restart until the session times out."""

    stop_deadline_seconds: float = Field(default=20.0, gt=0)
    """Seconds a graceful stop or a revoked partition may take to finish its transaction."""

    @model_validator(mode="after")
    def _intervals_fit(self) -> Self:
        if self.commit_interval_seconds * 3 > self.transaction_timeout_seconds:
            raise ValueError(
                f"commit_interval_seconds={self.commit_interval_seconds:g} leaves a transaction "
                f"no reserve within transaction_timeout_seconds="
                f"{self.transaction_timeout_seconds:g}; set it to a third of that or less"
            )
        if self.heartbeat_interval_seconds * 3 > self.session_timeout_seconds:
            raise ValueError(
                f"heartbeat_interval_seconds={self.heartbeat_interval_seconds:g} must be a third "
                f"of session_timeout_seconds={self.session_timeout_seconds:g} or less"
            )
        return self


class TopicSettings(_Section):
    """How `apply` creates topics that are missing."""

    partitions: int = Field(default=4, gt=0)
    """Partitions of an output or dead-letter topic that `apply` creates."""

    replication_factor: int | None = Field(default=None, gt=0)
    """Replicas of a topic that `apply` creates. None: the cluster's default."""


class LogFormat(StrEnum):
    """How log events are written to stderr."""

    AUTO = "auto"
    CONSOLE = "console"
    JSON = "json"


class LogSettings(_Section):
    """What is logged."""

    level: str = Field(default="info", pattern="^(debug|info|warning|error)$")
    """Lowest level written: debug, info, warning or error."""

    format: LogFormat = LogFormat.AUTO
    """auto: for people on a terminal, JSON elsewhere."""


class Settings(BaseSettings):
    """All settings of a worker."""

    model_config = SettingsConfigDict(
        env_prefix="EOS_", env_nested_delimiter="__", extra="forbid", frozen=True
    )

    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    worker: WorkerSettings = Field(default_factory=WorkerSettings)
    topics: TopicSettings = Field(default_factory=TopicSettings)
    log: LogSettings = Field(default_factory=LogSettings)

    def with_instance(self, instance: str) -> Settings:
        """Return the same settings for a worker of this name."""
        worker = self.worker.model_copy(update={"instance": instance})
        return self.model_copy(update={"worker": worker})

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags come before the environment; the file comes last (see `load_settings`)."""
        return (init_settings, env_settings, _FileSource(settings_cls))


class _FileSource(PydanticBaseSettingsSource):
    """The values of the config file named in `load_settings`."""

    values: dict[str, Any] = {}  # noqa: RUF012 - set for the length of one load

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return self.values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return self.values


def load_settings(file: Path | None = None, assignments: list[str] | None = None) -> Settings:
    """Settings from `--set` assignments, the environment and a YAML file, in this order.

    Args:
        file: a YAML file with the sections of `Settings`, or None.
        assignments: `section.name=value` strings; the value is read as YAML.

    Raises:
        ConfigurationError: names the setting, its value and what was expected.
    """
    _refuse_unknown_variables()
    _FileSource.values = _read_file(file) if file else {}
    assigned = _parse_assignments(assignments or [])
    try:
        return Settings(**assigned)
    except ValidationError as error:
        findings = [_explain(detail, assigned, file) for detail in error.errors()]
        raise ConfigurationError("; ".join(findings)) from error
    except SettingsError as error:
        raise ConfigurationError(
            f"an environment variable for a whole section is not JSON ({error.__cause__}); set "
            f"one setting with each variable, for example EOS_WORKER__COMMIT_INTERVAL_SECONDS=0.2"
        ) from error
    finally:
        _FileSource.values = {}


def _refuse_unknown_variables() -> None:
    """Raise for a variable that means a setting and names none: it would be ignored.

    Other EOS_ variables are let be; inside a section pydantic finds the unknown ones.
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
        raise ConfigurationError(
            f"environment variable {variable}={os.environ[variable]!r} is no setting; {hint}"
        )


def _fields(model: Any) -> list[str]:
    return list(model.model_fields)


def _read_file(file: Path) -> dict[str, Any]:
    try:
        content: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"config file {file} cannot be read ({error.strerror}); check --config"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"config file {file} is not UTF-8 text ({error.reason}); expected YAML"
        ) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise ConfigurationError(
            f"config file {file}{place} is not valid YAML: {problem}"
        ) from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigurationError(
            f"config file {file} holds a {type(content).__name__}; expected the sections "
            f"{', '.join(Settings.model_fields)}"
        )
    return content  # pyright: ignore[reportUnknownVariableType]


def _parse_assignments(assignments: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        section, dot, setting = name.strip().partition(".")
        if not equals or not dot:
            raise ConfigurationError(
                f"--set {assignment!r} is not SECTION.NAME=VALUE, "
                f"for example worker.commit_interval_seconds=0.2"
            )
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            value = text
        if setting.startswith("properties."):
            values.setdefault(section, {}).setdefault("properties", {})[
                setting.removeprefix("properties.")
            ] = value
        else:
            values.setdefault(section, {})[setting] = value
    return values


_EXPECTED = {
    "model_type": "settings by name",
    "string_type": "text",
    "string_too_short": "text",
    "dict_type": "properties by name",
}
"""What pydantic says in terms of classes."""


def _explain(detail: ErrorDetails, assigned: Mapping[str, Any], file: Path | None) -> str:
    """Return one finding: where the value came from, its name, the value and what is wrong."""
    parts = [str(part) for part in detail["loc"]]
    name = f"{_origin(parts, assigned, file)}{'.'.join(parts)}"
    if detail["type"] == "extra_forbidden":
        section, *inner = parts
        declared = Settings.model_fields.get(section)
        known = _fields(declared.annotation) if declared and inner else list(Settings.model_fields)
        hint = closest(parts[-1], known)
        return f"{name}: there is no such setting{hint or '; see `eosframework settings`'}"
    if detail["type"] == "value_error":
        return f"{name}: {detail['ctx']['error']}"  # pyright: ignore[reportTypedDictNotRequiredAccess]
    expected = _EXPECTED.get(detail["type"]) or detail["msg"].removeprefix("Input should be ")
    if detail["type"] == "string_pattern_mismatch":
        expected = f"text that matches {detail['ctx']['pattern']}"  # pyright: ignore[reportTypedDictNotRequiredAccess]
    return f"{name}={detail['input']!r}: expected {expected}; see `eosframework settings`"


def _origin(parts: list[str], assigned: Mapping[str, Any], file: Path | None) -> str:
    section, *inner = parts
    if inner and inner[0] in assigned.get(section, {}):
        return "--set "
    variable = f"EOS_{'__'.join(parts)}".upper()
    if variable in (name.upper() for name in os.environ):
        return f"environment variable {variable}, "
    if file is not None and section in _FileSource.values:
        return f"config file {file}: "
    return ""
