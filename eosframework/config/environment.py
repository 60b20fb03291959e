"""Properties of librdkafka from environment variables.

The variable of a property is `EOS_KAFKA__PROPERTIES__` and the property's name in upper case, with
`_` for a period, `__` for a dash and `___` for an underscore, as in the images of Kafka:
`EOS_KAFKA__PROPERTIES__SSL_CA_LOCATION` is `ssl.ca.location`, and
`EOS_KAFKA__PROPERTIES__SSL___KEY` is `ssl_key`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

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
