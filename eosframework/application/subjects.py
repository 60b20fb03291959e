"""Subjects of an application in the schema registry: planned as data, registered if missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from eosframework.config import RegistrySettings
from eosframework.kafka.schema_registry.schema_codecs import SchemaRegistry
from eosframework.serialization.schemas import Codec


class SubjectState(StrEnum):
    """States of a schema in the schema registry."""

    REGISTERED = "registered"
    TO_REGISTER = "to register"
    INCOMPATIBLE = "incompatible"


@dataclass(frozen=True, slots=True)
class PlannedSubject:
    """A schema that the application writes with, and its state in the schema registry."""

    subject: str
    serde: str
    state: SubjectState

    def as_data(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return asdict(self)

    @property
    def problem(self) -> str | None:
        """Instructions if the schema registry would reject the schema; None: it would not."""
        if self.state is not SubjectState.INCOMPATIBLE:
            return None
        return (
            f"subject {self.subject!r}: the schema registry rejects the schema of "
            f"{self.serde}, which is not compatible with the registered ones. Give new fields a "
            f"default and keep the others, write to a new topic, or change the subject's "
            f"compatibility"
        )


def plan_subjects(codecs: Sequence[Codec], settings: RegistrySettings) -> list[PlannedSubject]:
    """Return the schemas that an application writes with. Changes nothing.

    Raises:
        ConfigurationError: there are no settings for a schema registry.
        SchemasUnusable: it cannot be reached, or gives no usable answer.
    """
    registry = SchemaRegistry(settings)
    planned: list[PlannedSubject] = []
    for subject in registry.subjects(codecs):
        if registry.is_registered(subject):
            state = SubjectState.REGISTERED
        elif registry.fits(subject):
            state = SubjectState.TO_REGISTER
        else:
            state = SubjectState.INCOMPATIBLE
        planned.append(PlannedSubject(subject.name, str(subject.codec.declared), state))
    return planned


def apply_subjects(
    codecs: Sequence[Codec], settings: RegistrySettings, planned: Sequence[PlannedSubject]
) -> list[str]:
    """Register the missing schemas, and return their subjects.

    Args:
        codecs: of the application.
        settings: where the schema registry is.
        planned: of the same; nothing in it is incompatible.

    Raises:
        SchemasUnusable: it cannot be reached, or rejects a schema.
    """
    registry = SchemaRegistry(settings)
    missing = {p.subject for p in planned if p.state is SubjectState.TO_REGISTER}
    for subject in registry.subjects(codecs):
        if subject.name in missing:
            registry.register(subject)
    return [f"schema of subject {name}" for name in sorted(missing)]
