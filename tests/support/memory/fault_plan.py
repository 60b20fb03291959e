"""Plans of faults: the number of the call of a port that fails, and the kind of its failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from eosframework import errors
from eosframework.errors import DataRejected, RecordTooSlow, TransactionError
from eosframework.transactions.ports import Output

TRANSACTION = (
    "Retriable",
    "TransactionAborted",
    "SchemaRegistryUnavailable",
    "TaskFenced",
    "IdExpired",
    "OutcomeUnknown",
    "TransactionFatal",
)
"""The errors of the calls of a transaction."""

LOG = ("Retriable", "RunError", "InstanceFenced")
STORE = ("StateDamaged", "StateUnwritable")
TAKEN_AGAIN = ("Retriable", "TaskFenced", "IdExpired", "OutcomeUnknown", "TransactionFatal")
SLOW = "slow"
SLOW_SECONDS = 28.0
"""Of the 30 s of a transaction."""

KILL = "kill"
"""The process ends at this call; no later call of its worker has an effect."""

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
    "log.high_watermarks": LOG,
    "log.decided": LOG,
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
    "user": (*STORE, "SchemaRegistryUnavailable", "KeyboardInterrupt", SLOW),
}
"""The kinds of faults of each call; mostly the name of the error that it raises.

`stores.next` is each entry of a scan, `user` each call of a function of the topology.
`output.refused` counts the records to topic `out`: the brokers reject this record and all that are
equal to it, when it is produced or at the commit.

The further words of a commit: `done`, it took effect; `late`, it takes effect when the id is
initialized next; `recycled`, the producer was suspect; `overtaken`, another worker ran for a while
after it; `unreported`, no delivery was reported.
"""


Refused = tuple[str, bytes | None, bytes | None]
"""Topic, key and value of records that the brokers reject."""


class Killed(BaseException):
    """The worker's process is gone."""


@dataclass(frozen=True, slots=True)
class CommitFault:
    """The course of a commit.

    Args:
        error: reported to the worker; None: the commit is confirmed.
        done: the commit takes effect.
        late: the commit takes effect when the id is initialized next.
        reported: the deliveries are reported.
        recycled: the producer was suspect and was replaced.
        overtaken: another worker runs for a while after the commit.
        kills: the worker's process ends, after the effect.
    """

    error: TransactionError | None = None
    done: bool = True
    late: bool = False
    reported: bool = True
    recycled: bool = False
    overtaken: bool = False
    kills: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure of the `number`-th call of a method, from 1 and since the previous fault fired."""

    call: str
    number: int
    kind: str

    def __str__(self) -> str:
        return f"{self.call}#{self.number}:{self.kind}"


class Faults:
    """A plan, with the calls counted so far.

    Args:
        plan: faults in order; the calls of the second one are counted from the first one on.

    Attributes:
        pass_time: lets seconds pass.
    """

    def __init__(self, plan: tuple[Fault, ...] = ()) -> None:
        self.pass_time: Callable[[float], object] = lambda _: None
        self.plan = plan
        self.fired: list[Fault] = []
        self.counts: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()
        self.killed = False
        self.raised: list[BaseException] = []
        self.rejected: dict[Refused, str] = {}

    def hit(self, call: str) -> str | None:
        """Count a call, and return the kind of its fault, or None."""
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

    def refused(self, output: Output, *, at_once: bool) -> DataRejected | None:
        """Return the error of a record that the brokers reject, by `produce` or at the commit."""
        record = output[0], output[2], output[1]
        if at_once and record[0] == "out" and record not in self.rejected:
            kind = self.hit("output.refused")
            if kind is not None:
                self.rejected[record] = kind
        if record not in self.rejected or (at_once and self.rejected[record] != "produce"):
            return None
        return DataRejected(f"{output[0]} rejects {output[2]}: {output[1]}")

    def at_commit(self) -> CommitFault:
        """Return the course of a commit."""
        words = (self.hit("outputs.commit") or "done").split()
        error = None
        if words[0] not in ("done", "late", "overtaken", KILL):
            error = cast("TransactionError", self.error(words[0], "outputs.commit"))
        return CommitFault(
            error,
            done="done" in words,
            late="late" in words,
            reported="unreported" not in words,
            recycled="recycled" in words,
            overtaken="overtaken" in words,
            kills=KILL in words,
        )

    def at_end(self, call: str, transactional_id: str) -> TransactionError | None:
        """Return the error of an abort or a recycling."""
        kind = self.hit(call)
        if kind == KILL:
            raise self.error(kind, call)
        return None if kind is None else cast("TransactionError", self.error(kind, call))

    def check(self, call: str) -> None:
        """Count a call, and raise its error if it fails, or let it take long."""
        match self.hit(call):
            case None:
                return
            case kind if kind == SLOW:
                self.pass_time(SLOW_SECONDS)
            case kind:
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
            case _:
                error = getattr(errors, kind)(f"{kind} out of {call}, as planned")
        self.raised.append(error)
        return error

    def explains(self, error: BaseException) -> bool:
        """Return whether the plan explains that a worker ended with this error."""
        if any(error is raised for raised in self.raised):
            return True
        if isinstance(error, RecordTooSlow):
            return any(fault.kind == SLOW for fault in self.fired)
        return isinstance(error, errors.RunError | errors.InstanceFenced | errors.TransactionError)


CURRENT: list[Faults] = [Faults()]


def function_called() -> None:
    """Count a call of a function of a topology; every function calls it."""
    CURRENT[0].check("user")
