"""Secrets: settings from files of their own, and which properties are never shown."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eosframework.errors import ConfigurationError

SECRETS_DIRECTORY = "EOS_SECRETS_DIR"
"""Names a directory with a file for each secret, as Kubernetes and Docker mount them."""

_SECRET = re.compile(r"password|passphrase|secret|jaas|\.pem$|oauthbearer\.config|_key$|token$")


def is_secret(name: str) -> bool:
    """Tell whether the value of a Kafka client's property must not be shown."""
    return _SECRET.search(name) is not None


def secrets_directory() -> Path | None:
    """Return where secrets are, if the environment says so."""
    place = os.environ.get(SECRETS_DIRECTORY)
    return Path(place) if place else None


def read_secrets(directory: Path, sections: list[str]) -> dict[str, Any]:
    """Return what the files of a directory say, by section.

    A file goes by the name of its setting, `database.dsn` or `kafka.properties.sasl.password`, and
    holds its value; a line break at its end does not count. Other files are somebody else's.

    Args:
        directory: with the files.
        sections: of the settings.

    Raises:
        ConfigurationError: the directory or a file cannot be read.
    """
    values: dict[str, Any] = {}
    try:
        files = sorted(path for path in directory.iterdir() if path.is_file())
        for file in files:
            section, dot, name = file.name.partition(".")
            if dot and section in sections:
                _take(values.setdefault(section, {}), name, file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error.reason
        named = error.filename if isinstance(error, OSError) else "a file in it"
        raise ConfigurationError(
            f"{SECRETS_DIRECTORY}={directory}: {named} cannot be read ({reason}); expected a "
            f"directory with a file for each secret, for example database.dsn"
        ) from error
    return values


def _take(section: dict[str, Any], name: str, text: str) -> None:
    value = text.removesuffix("\n").removesuffix("\r")
    if name.startswith("properties."):
        section.setdefault("properties", {})[name.removeprefix("properties.")] = value
    else:
        section[name] = value


def over(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return `second` with what `first` says in its place, section by section."""
    both = dict(second)
    for name, value in first.items():
        there: Any = both.get(name)
        nested = all(type(one) is dict for one in (value, there))
        both[name] = over(value, there) if nested else value
    return both
