"""Which call of which port fails, and how: plans of faults, and what counts the calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from eosframework import errors
from eosframework.errors import RecordTooSlow
from eosframework.processing.transaction.overtime import Overtime

TRANSACTION = (
    "Retriable",
    "TransactionAborted",
    "SchemaRegistryUnavailable",
    "TaskFenced",
    "IdExpired",
    "OutcomeUnknown",
    "TransactionFatal",
)
"""What calls of a transaction end with."""

LOG = ("Retriable", "RunError", "InstanceFenced")
STORE = ("StateDamaged", "StateUnwritable")
TAKEN_AGAIN = ("Retriable", "TaskFenced", "IdExpired", "OutcomeUnknown", "TransactionFatal")
KILL = "kill"
"""The process ends where it is: of this worker nothing has an effect from here on."""

KINDS: Mapping[str, tuple[str, ...]] = {
    "outputs.open": (*TAKEN_AGAIN, "StartRefused", KILL),
    "outputs.abort": (*TAKEN_AGAIN, KILL),
    "outputs.recycle": (*TAKEN_AGAIN, KILL),
    "outputs.close": (KILL,),
    "output.begin": (*TRANSACTION, KILL),
    "output.produce": (*TRANSACTION, "BufferError", "KeyboardInterrupt", KILL),
    "output.refused": ("commit", "produce"),
    "output.poll": (*TRANSACTION, "KeyboardInterrupt", KILL),
    "output.deliver": (*TRANSACTION, KILL),
    "outputs.commit": (
        *TRANSACTION,
        "OutcomeUnknown done",
        "OutcomeUnknown late",
        "OutcomeUnknown recycled",
        "OutcomeUnknown done recycled",
        "Retriable done",
        "TaskFenced done",
        "done recycled",
        "done overtaken",
        "done overtaken recycled",
        "OutcomeUnknown overtaken",
        "OutcomeUnknown done overtaken",
        "TransactionAborted overtaken",
        "done unreported",
        "done kill",
        "late kill",
        KILL,
    ),
    "log.subscribe": LOG,
    "log.fetch": (*LOG, "PositionLost", "TransactionFatal", "revoke", "lose", "overtake", KILL),
    "log.committed": (*LOG, "TransactionFatal", KILL),
    "log.seek": ("RunError", "InstanceFenced"),
    "log.pause": ("RunError",),
    "log.resume": ("RunError",),
    "log.end_offsets": LOG,
    "log.partitions": LOG,
    "ledger.starting_positions": ("StartRefused", "Retriable"),
    "ledger.confirm_ids": ("RunError", "Retriable"),
    "ledger.confirm_start": ("RunError", "Retriable"),
    "changelogs.bounds": ("ClusterUnreachable", "RunError"),
    "changelogs.written_ends": ("ClusterUnreachable", "RunError"),
    "changelogs.open": ("ClusterUnreachable", "RunError"),
    "reading.read": ("PositionLost", "RunError", KILL),
    "state.open": STORE,
    "stores.get": (*STORE, KILL),
    "stores.scan": (*STORE, KILL),
    "stores.next": STORE,
    "stores.write": (*STORE, KILL),
    "stores.clear": STORE,
    "user": (*STORE, "SchemaRegistryUnavailable", "KeyboardInterrupt", "Overtime"),
}
"""By call, what is raised there.

`stores.next` is each entry of a scan, `user` each call of a function of the topology. With
`output.refused`, each record to topic `out`, the brokers refuse from then on every record like it,
when it is produced or at the commit.

Of a commit is said besides: `done`, it took effect; `late`, it does when the id is taken next;
`recycled`, the producer was suspect; `overtaken`, another worker came and ran for a while;
`unreported`, no delivery was told.
"""


Refused = tuple[str, bytes | None, bytes | None]
"""Topic, key and value of records that the brokers do not take."""


class Killed(BaseException):
    """The worker's process is gone."""


class Misuse(BaseException):
    """A port was used as its protocol forbids."""


@dataclass(frozen=True, slots=True)
class Fault:
    """The `number`-th call of a method, from 1 and since the fault before it fired, fails."""

    call: str
    number: int
    kind: str

    def __str__(self) -> str:
        return f"{self.call}#{self.number}:{self.kind}"


class Faults:
    """Counts calls and says which of them fail.

    Args:
        plan: one after the other; the second one counts from when the first one fired.
    """

    def __init__(self, plan: tuple[Fault, ...] = ()) -> None:
        self.plan = plan
        self.fired: list[Fault] = []
        self.counts: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()
        self.killed = False
        self.raised: list[BaseException] = []
        self.refused: dict[Refused, str] = {}

    def hit(self, call: str) -> str | None:
        """Return the kind of fault of this call; None: it is in order."""
        if self.killed:
            raise Killed
        self.counts[call] += 1
        self.totals[call] += 1
        if len(self.fired) == len(self.plan):
            return None
        fault = self.plan[len(self.fired)]
        if fault.call != call or fault.number != self.counts[call]:
            return None
        self.fired.append(fault)
        self.counts.clear()
        return fault.kind

    def refuses(self, record: Refused) -> str | None:
        """Return at which call a record is refused, if it is."""
        if record[0] == "out" and record not in self.refused:
            kind = self.hit("output.refused")
            if kind is not None:
                self.refused[record] = kind
        return self.refused.get(record)

    def check(self, call: str) -> None:
        """Raise what is planned for this call."""
        if (kind := self.hit(call)) is not None:
            raise self.error(kind, call)

    def error(self, kind: str, call: str) -> BaseException:
        """Return the exception of a kind."""
        error: BaseException
        match kind:
            case "kill":
                self.killed = True
                error = Killed(call)
            case "BufferError":
                error = BufferError("queue full")
            case "KeyboardInterrupt":
                error = KeyboardInterrupt()
            case "Overtime":
                error = Overtime()
            case _:
                error = getattr(errors, kind)(f"{kind} out of {call}, as planned")
        self.raised.append(error)
        return error

    def explains(self, error: BaseException) -> bool:
        """Tell whether a worker may have ended with this error because of the plan."""
        if any(error is raised for raised in self.raised):
            return True
        if isinstance(error, RecordTooSlow):
            return any(isinstance(raised, Overtime) for raised in self.raised)
        return isinstance(error, errors.RunError | errors.InstanceFenced | errors.TransactionError)


CURRENT: list[Faults] = [Faults()]


def function_called() -> None:
    """Called by every function of a topology."""
    CURRENT[0].check("user")
