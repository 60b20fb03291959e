"""The declaration of steps whose calls take effect once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, model_validator

from eosframework.topology.spec.call_spec import CallLimits, CallSpec
from eosframework.topology.spec.keyed_spec import Duration, short
from eosframework.txnid import refuse_bad_name

DEFAULT_KEEP = timedelta(minutes=1)


class OnDoubt(StrEnum):
    """The policy for a call of which it cannot be known whether it took effect."""

    RETRY = "retry"
    LOOK_UP = "look_up"
    DEAD_LETTER = "dead_letter"


def _label(name: str) -> str:
    try:
        refuse_bad_name("step", name)
    except Exception as error:
        raise ValueError(str(error)) from None
    return name


class OnceSpec(CallSpec):
    """Call a function for an effect outside of Kafka that must not repeat.

    The intent is committed before the call and its result after it, so a replay calls nothing.
    """

    call: str
    """module:function, with or without `async`. It takes the value, an Effect with the key and the
    attempt number, and the resources by name. Its result, as JSON, is the new value."""

    on_doubt: OnDoubt
    """If a call has begun and its result is unknown. retry: call again, for a service that honours
    keys. look_up: ask the service first. dead_letter: the record has failed."""

    look_up: str | None = None
    """module:function for on_doubt: look_up. Takes what the function takes, and returns the result
    of the effect, or None if there is none."""

    key: str | None = None
    """module:function that takes the value and returns a text, which is added to the key."""

    name: Annotated[str, AfterValidator(_label)] | None = None
    """Name of the step in keys. Default: the name of the function."""

    keep: Duration = DEFAULT_KEEP
    """Time for which a result is kept after it was written and its input is committed."""

    @model_validator(mode="after")
    def _policy_has_its_function(self) -> Self:
        if self.on_doubt is OnDoubt.LOOK_UP and self.look_up is None:
            raise ValueError(
                "on_doubt: look_up has no function; state look_up, a function that takes the value "
                "and the effect, and returns its result, or None if there is none"
            )
        if self.on_doubt is not OnDoubt.LOOK_UP and self.look_up is not None:
            raise ValueError(
                f"look_up is used with on_doubt: look_up only, and this is on_doubt: "
                f"{self.on_doubt}; leave one of them out"
            )
        if self.on_doubt is OnDoubt.DEAD_LETTER and self.retry:
            raise ValueError(
                "retry repeats a call that failed and may have taken effect, which on_doubt: "
                "dead_letter excludes; leave retry out, or state on_doubt: retry or look_up"
            )
        return self

    @property
    def functions(self) -> dict[tuple[str, ...], str]:
        """References to all functions of the step, by their path within it."""
        more = {"look_up": self.look_up, "key": self.key}
        return super().functions | {(n,): given for n, given in more.items() if given is not None}

    @property
    def limits(self) -> CallLimits:
        """The options in the units of the engine; each attempt has an intent, so none is there."""
        return CallLimits(
            self.concurrency, self.order == "key", self.timeout.total_seconds(), self.rate
        )

    @property
    def options(self) -> dict[str, Any]:
        """The options as texts and numbers, for `describe`."""
        return {
            **super().options,
            "on_doubt": str(self.on_doubt),
            "look_up": self.look_up,
            "key": self.key,
            "name": self.label,
            "keep": short(self.keep),
        }

    @property
    def label(self) -> str:
        """The name of the step in keys."""
        return self.name or self.call.rpartition(":")[2].rpartition(".")[2]

    @property
    def timing(self) -> OnceTiming:
        """The times in the units of the engine."""
        pauses = tuple(wait.total_seconds() for wait in self.retry)
        return OnceTiming(self.keep.total_seconds(), pauses)


@dataclass(frozen=True, slots=True)
class OnceTiming:
    """The times of a step whose calls take effect once.

    Args:
        keep_seconds: for which a result stays.
        retry_seconds: pauses before further attempts.
    """

    keep_seconds: float
    retry_seconds: tuple[float, ...] = ()
