"""The declaration of a `process` step with stores or timers."""

from __future__ import annotations

from pydantic import Field

from eosframework.topology.spec.declared import Declared
from eosframework.topology.spec.durations import Ttl


class ProcessStoreSpec(Declared):
    """A store of a `process` step."""

    value: str = "json"
    """Serde of the values."""

    key: str | None = None
    """Serde of the keys. Default: the serde of the records' keys."""

    version: int = Field(default=1, ge=1, le=255)
    """Version of the format of the values, 1 to 255. Raise it with a change that cannot read older
    values."""

    upgrade: str | None = None
    """module:function that takes the bytes of an older value and its version, and returns the value
    of this version."""

    ttl: Ttl = None
    """Lifetime of a value: it is absent once stream time is more than this past the time of the
    record that put it. Default: forever."""


class ProcessSpec(Declared):
    """Call a function with each record, with its own stores and event-time timers."""

    call: str
    """module:function that takes the whole record and a context, and returns records or None."""

    stores: dict[str, ProcessStoreSpec | None] = Field(default_factory=dict)
    """Stores by the names that the function uses: context.store(NAME)."""

    on_timer: str | None = None
    """module:function that takes key, time and context when a timer is due that the function set
    with context.set_timer(…), and returns records or None."""

    @property
    def declared_stores(self) -> dict[str, ProcessStoreSpec]:
        """The stores; one that was declared without options has the defaults."""
        return {name: store or ProcessStoreSpec() for name, store in self.stores.items()}

    @property
    def functions(self) -> dict[tuple[str, ...], str]:
        """References to all functions of the step, by their path within it."""
        found: dict[tuple[str, ...], str] = {("call",): self.call}
        if self.on_timer is not None:
            found["on_timer",] = self.on_timer
        for name, store in self.declared_stores.items():
            if store.upgrade is not None:
                found["stores", name, "upgrade"] = store.upgrade
        return found
