"""Settings of the console and of the schema registry, and the base of all sections."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator


class Section(BaseModel):
    """A section of settings; an unknown name is an error."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        coerce_numbers_to_str=True,
        hide_input_in_errors=True,
    )


class ConsoleSettings(Section):
    """The pages of `eosframework console`."""

    token: SecretStr | None = Field(default=None, min_length=16)
    """Token that a browser must show, at least 16 characters; it belongs in a file console.token in
    EOS_SECRETS_DIR. None: no token is asked for, so the console listens on this machine only and
    changes nothing."""

    hosts: tuple[str, ...] = ()
    """Host names with a dot under which browsers may open the console, for example
    console.shop.example.com; see worker.http_hosts."""

    refresh_seconds: float = Field(default=2.0, ge=0.5)
    """Seconds between two readings of the cluster and of the workers' HTTP addresses, however many
    browsers are open."""


class SubjectNames(StrEnum):
    """The subjects under which schemas are registered."""

    TOPIC = "topic"
    RECORD = "record"
    TOPIC_RECORD = "topic_record"


class RegistrySettings(Section):
    """The connection to the schema registry, for serdes that use one."""

    url: str | None = Field(default=None, pattern=r"^https?://[^\s@]+$")
    """URL of the registry, as http://host:port or https://…; several, separated by commas, are
    tried in turn. None: there is no registry."""

    user: str | None = None
    """User name for basic authentication. None: without authentication."""

    password: SecretStr | None = None
    """Password for basic authentication."""

    ca_file: Path | None = None
    """PEM file with the certificate authorities that may have signed the registry's certificate.
    None: the authorities of certifi."""

    certificate_file: Path | None = None
    """PEM file with a client certificate, if the registry requires one. None: without."""

    key_file: Path | None = None
    """PEM file with the certificate's key. None: it is in certificate_file."""

    key_password: SecretStr | None = None
    """Password of the key. None: it has none."""

    subject_names: SubjectNames = SubjectNames.TOPIC
    """Subject of a schema. topic: TOPIC-key or TOPIC-value. record: the record's full name.
    topic_record: TOPIC-RECORD. A serde's own subject takes precedence."""

    auto_register: bool = False
    """Register missing schemas when a worker starts. Otherwise `eosframework apply` registers them,
    and a worker whose schema is missing refuses to start."""

    use_latest_version: bool = False
    """Write with the latest schema of the subject instead of the topology's schema."""

    request_timeout_seconds: float = Field(default=5.0, gt=0)
    """Seconds after which an unanswered request to the registry counts as failed."""

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if (self.user is None) != (self.password is None):
            raise ValueError(
                "schema_registry.user and schema_registry.password go together; set both or none"
            )
        if self.certificate_file is None and (self.key_file or self.key_password):
            raise ValueError(
                "schema_registry.key_file and key_password need schema_registry.certificate_file"
            )
        if self.auto_register and self.use_latest_version:
            raise ValueError(
                "schema_registry.auto_register registers the topology's schemas, and "
                "schema_registry.use_latest_version writes with others; set one of them"
            )
        return self
