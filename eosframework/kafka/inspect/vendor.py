"""The parts of kafka-python that are used here, untyped: its published stubs are of version 2."""

from __future__ import annotations

from typing import Any

import kafka.admin as _admin
import kafka.errors as _errors
import kafka.net.compat as _compat  # pyright: ignore[reportMissingTypeStubs]
import kafka.net.inet as _inet  # pyright: ignore[reportMissingTypeStubs]
import kafka.net.manager as _manager  # pyright: ignore[reportMissingTypeStubs]
import kafka.net.sasl.oauth as _oauth  # pyright: ignore[reportMissingTypeStubs]
import kafka.net.selector as _selector  # pyright: ignore[reportMissingTypeStubs]
import kafka.protocol.admin as _admin_protocol
import kafka.protocol.consumer as _consumer_protocol  # pyright: ignore[reportMissingTypeStubs]
import kafka.protocol.metadata as _metadata_protocol
import kafka.protocol.producer as _producer_protocol  # pyright: ignore[reportMissingTypeStubs]
import kafka.record.memory_records as _records
import kafka.structs as _structs

admin: Any = _admin
errors: Any = _errors
compat: Any = _compat
inet: Any = _inet
manager: Any = _manager
oauth: Any = _oauth
selector: Any = _selector
structs: Any = _structs
records: Any = _records
admin_protocol: Any = _admin_protocol
consumer_protocol: Any = _consumer_protocol
metadata_protocol: Any = _metadata_protocol
producer_protocol: Any = _producer_protocol
