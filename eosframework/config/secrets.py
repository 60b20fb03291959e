"""Secrets: settings from separate files, and the properties that are never shown.

Properties of librdkafka from environment variables.
The variable of a property is `EOS_KAFKA__PROPERTIES__` and the property's name in upper case, with
`_` for a period, `__` for a dash and `___` for an underscore, as in the images of Kafka:
`EOS_KAFKA__PROPERTIES__SSL_CA_LOCATION` is `ssl.ca.location`, and
`EOS_KAFKA__PROPERTIES__SSL___KEY` is `ssl_key`.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eosframework.errors import ConfigurationError

PREFIX = "EOS_KAFKA__PROPERTIES__"

_NAME = re.compile(r"[A-Z0-9.-]+(_{1,3}[A-Z0-9.-]+)*")
_SEPARATORS = {"_": ".", "__": "-", "___": "_"}


def kafka_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that the variables of an environment set, by name.

    Raises:
        ConfigurationError: names a variable that does not follow the rule.
    """
    return {
        _property(variable): value
        for variable, value in sorted(environment.items())
        if variable.upper().startswith(PREFIX)
    }


def _property(variable: str) -> str:
    name = variable.upper().removeprefix(PREFIX)
    if _NAME.fullmatch(name) is None:
        raise ConfigurationError(
            f"environment variable {variable} names no property of librdkafka; expected "
            f"{PREFIX} and a name with _ for a period, __ for a dash and ___ for an underscore, "
            f"for example {PREFIX}SSL_CA_LOCATION"
        )
    return re.sub("_+", lambda match: _SEPARATORS[match[0]], name).lower()


_SECRETS_DIRECTORY = "EOS_SECRETS_DIR"
"""Environment variable with the directory of secret files, as Kubernetes and Docker mount them."""

_OPEN = stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH
"""Permissions that a secret file must not have."""

_SECRET = re.compile(r"password|passphrase|secret|jaas|\.pem$|oauthbearer\.config|_key$|token$")


def is_secret(name: str) -> bool:
    """Return True if the value of a Kafka client's property must not be shown."""
    return _SECRET.search(name) is not None


def secrets_directory() -> Path | None:
    """Return the directory of secret files, if the environment names one."""
    place = os.environ.get(_SECRETS_DIRECTORY)
    return Path(place) if place else None


def read_secrets(directory: Path, sections: list[str]) -> dict[str, Any]:
    """Return the settings from the files of a directory, by section.

    A file has the name of its setting, `database.dsn` or `kafka.properties.sasl.password`, and
    contains its value; a line break at its end is removed. Files with other names are ignored.

    Args:
        directory: of the files.
        sections: of the settings.

    Raises:
        ConfigurationError: the directory or a file cannot be read, or other users of the machine
            may read or change a file; names the file, not its content.
    """
    values: dict[str, Any] = {}
    try:
        files = sorted(path for path in directory.iterdir() if path.is_file())
        for file in files:
            section, dot, name = file.name.partition(".")
            if dot and section in sections:
                text = _read_secret(file).removesuffix("\n").removesuffix("\r")
                put(values, section, name, text)
    except OSError as error:
        raise ConfigurationError(
            f"{_SECRETS_DIRECTORY}={directory}: {error.filename} cannot be read "
            f"({error.strerror}); expected a directory with a file for each secret, for example "
            f"database.dsn"
        ) from error
    return values


def _read_secret(file: Path) -> str:
    _refuse_open(file)
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        # Not chained: the error shows the bytes.
        raise ConfigurationError(
            f"file {file} cannot be read as UTF-8 text; expected the value of the setting "
            f"{file.name} alone"
        ) from None


def _refuse_open(file: Path) -> None:
    """Raise if users outside the file's group may read it, or others than its owner may change it.

    A directory that only its owner may enter protects its files. Symbolic links are followed:
    Kubernetes mounts a Secret as links into a directory that it replaces.
    """
    target = file.resolve()
    mode = stat.S_IMODE(target.stat().st_mode)
    is_enterable = target.parent.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH)
    if mode & _OPEN and is_enterable:
        raise ConfigurationError(
            f"file {file} holds a secret, and its mode {mode:04o} lets other users read or change "
            f"it; run `chmod 600 {file}`, or mount it with mode 0440 (Kubernetes: defaultMode and "
            f"fsGroup; Docker: uid, gid and mode of the secret)"
        )


def put(values: dict[str, Any], section: str, setting: str, value: Any) -> None:
    """Add the value of a setting, or of one of the properties in a setting of that name."""
    inside = values.setdefault(section, {})
    if setting.startswith("properties."):
        inside.setdefault("properties", {})[setting.removeprefix("properties.")] = value
    else:
        inside[setting] = value


def over(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return `second` with the values of `first` in their place, section by section."""
    both = dict(second)
    for name, value in first.items():
        there: Any = both.get(name)
        nested = all(type(one) is dict for one in (value, there))
        both[name] = over(value, there) if nested else value
    return both
