"""Settings: declared once in `settings`, read by `loading`.

Owns every name, unit, default and purpose, and the sources of values. Refuses values that would
break the guarantee, by name, and keeps secrets out of every message.

Internal: no module here is public.
"""

from __future__ import annotations

from eosframework.config.loading import load_settings
from eosframework.config.sections import ConsoleSettings, RegistrySettings, SubjectNames
from eosframework.config.settings import (
    FORBIDDEN_PROPERTIES,
    BackfillSettings,
    DatabaseSettings,
    ForeignPartitioner,
    Guarantee,
    Ids,
    KafkaSettings,
    LogFormat,
    LogSettings,
    OutboxRefusal,
    OutboxSettings,
    OutboxSourceKind,
    PropertyValue,
    Settings,
    Start,
    StateBackendKind,
    StateSettings,
    TopicSettings,
    TracingSettings,
    WorkerSettings,
)

__all__ = [
    "FORBIDDEN_PROPERTIES",
    "BackfillSettings",
    "ConsoleSettings",
    "DatabaseSettings",
    "ForeignPartitioner",
    "Guarantee",
    "Ids",
    "KafkaSettings",
    "LogFormat",
    "LogSettings",
    "OutboxRefusal",
    "OutboxSettings",
    "OutboxSourceKind",
    "PropertyValue",
    "RegistrySettings",
    "Settings",
    "Start",
    "StateBackendKind",
    "StateSettings",
    "SubjectNames",
    "TopicSettings",
    "TracingSettings",
    "WorkerSettings",
    "load_settings",
]
