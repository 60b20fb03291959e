"""Every error that eosframework raises, named by its consequence.

EosError
├── UserError                   exit 2: nothing was started; the input or configuration is wrong
│   ├── ConfigurationError
│   ├── TopologyError
│   ├── StartRefused            the cluster's state and the topology do not fit together
│   │   ├── MatchedTopicGone    a topic that a pattern matches was deleted during the checks
│   │   └── ControlTopicDamaged an entry of the control topic cannot be read
│   ├── ClusterUnreachable
│   ├── SchemasUnusable         the schema registry cannot be reached, or lacks what is needed
│   └── DatabaseUnusable        it cannot be connected to, or lacks what is needed
├── RunError                    exit 1: failed while running
│   ├── RecordFailed            a record could not be processed and `on_error` is `fail`
│   ├── RecordTooSlow           a record outlasted the transaction
│   ├── DatabaseRefused         no database transaction can succeed until its cause is fixed
│   ├── PositionLost            the next offset to read is gone from the log
│   ├── IdentityChanged         a topic or committed offsets are not those of the application
│   ├── StateDamaged            files of a store cannot be read; without them it is rebuilt
│   ├── StateUnwritable         a store cannot write its files
│   ├── EntryDamaged            an entry of a store or a global table cannot be decoded
│   ├── SchemasRefused          the schema registry refuses requests that this process needs
│   ├── OutputLost              the output of a command could not be written to stdout
│   └── ComponentFailed         an embedded server or a child process ended or did not start
├── MatchedTopicsChanged        topics that a pattern matches came or went; the worker starts again
├── InstanceFenced              exit 3: another instance took this one's identity over
├── KeyTooHot                   fails a record: it would match too many others of its key
├── DatabaseFault               reported by a database to the table writer or relay that uses it
│   ├── DatabaseUnavailable            unavailable; it may have committed; claim the position again
│   │   └── DatabaseConflict    not committed because of another transaction; repeat it
│   ├── DataRefused             a batch is refused because of its data; nothing was written
│   ├── RowRefused              a row is refused, and would be again; nothing was written
│   └── Superseded               a successor has claimed the position; nothing was written
└── TransactionError            reported by a transactional call to the task that made it
    ├── Retriable               nothing is decided; make the same call again
    ├── TransactionAborted      abort, drop the batch's effects, recycle, rewind
    │   ├── DataRejected        the same, and the same data will be rejected again
    │   ├── TransactionTooLong  the same, and the same records would outlast it again
    │   ├── TransactionThrottled  the same: brokers throttle the client for too long
    │   └── SchemaRegistryUnavailable         the same: the schema registry is unavailable
    ├── TaskFenced              this producer is no longer the owner of its transactional.id
    │   └── IdExpired           the brokers removed the transactional.id, which was idle too long
    ├── OutcomeUnknown          the transaction may or may not be committed
    └── TransactionFatal        no transaction can succeed here until its cause is fixed
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Collection, Sequence
from typing import Any, TypeVar


def raised_by_functions() -> tuple[type[BaseException], ...]:
    """Return the exceptions that mean that a user's function failed, for an `except` around it.

    `except` evaluates the call only after an exception, so it costs nothing otherwise.

    - `sys.exit()` and a KeyboardInterrupt in a function do not end the process: only a signal stops
      it. If SIGINT has Python's own handler (pytest, a notebook), a KeyboardInterrupt is a Ctrl-C
      and propagates.
    - A cancelled coroutine is a failure of the function that ran it.
    - Other BaseExceptions propagate: test frameworks, and the framework's own deadline, use them to
      end a function.
    """
    found: tuple[type[BaseException], ...] = (Exception, SystemExit, GeneratorExit)
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        found = (*found, KeyboardInterrupt)
    # Code that raises CancelledError has imported its module.
    if (coroutines := sys.modules.get("asyncio.exceptions")) is not None:
        found = (*found, coroutines.CancelledError)
    return found


class EosError(Exception):
    """The root of all errors raised by eosframework."""

    exit_code = 1


class UserError(EosError):
    """The user's input or configuration is wrong; nothing was started."""

    exit_code = 2


class ConfigurationError(UserError):
    """A setting, a flag or a file given by the user cannot be used."""


class TopologyError(UserError):
    """A topology cannot be loaded or does not hold together."""


class StartRefused(UserError):
    """Starting would break the guarantee, so nothing was started."""


class MatchedTopicGone(StartRefused):
    """A topic that a pattern matched was deleted since; the checks begin again without it."""


class ControlTopicDamaged(StartRefused):
    """An entry of the control topic that the application needs cannot be read."""


class ClusterUnreachable(UserError):
    """No broker of the configured cluster answered within the deadline."""


class ConnectionRefused(ClusterUnreachable):
    """The brokers refused the connection: credentials or TLS settings do not match."""


class DatabaseUnusable(UserError):
    """The configured database cannot be connected to, or lacks what is needed."""


class SchemasUnusable(UserError):
    """The configured schema registry cannot be reached, or lacks what is needed."""


class RunError(EosError):
    """Something failed while running; what was complete is committed."""


class RecordFailed(RunError):
    """A record could not be processed and its policy is to fail.

    Args:
        offset: the record's offset; everything before it is complete.
    """

    def __init__(self, message: str, *, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class RecordTooSlow(RunError):
    """A single record was still being processed when its transaction expired."""


class DatabaseRefused(RunError):
    """No transaction in the database can succeed until its cause is fixed."""


class PositionLost(RunError):
    """The next offset to read no longer exists in the log."""


class IdentityChanged(RunError):
    """A topic was created again, or another consumer committed; nothing more is committed."""


class StateDamaged(RunError):
    """Files of a store cannot be read; it is rebuilt from its changelog once they are gone."""


class StateUnwritable(RunError):
    """The directory or the files of a store cannot be written."""


class EntryDamaged(RunError):
    """An entry of a store or of a global table cannot be decoded; no record is to blame.

    Args:
        holder: names the store or the global table.
        topic: the topic that the entry came from; None: unknown.
        partition: of that topic; None: any.
        part: the bytes that cannot be decoded: an entry's key or value, or a part of its value.
    """

    def __init__(
        self,
        message: str,
        *,
        holder: str = "",
        topic: str | None = None,
        partition: int | None = None,
        part: bytes = b"",
    ) -> None:
        super().__init__(message)
        self.holder, self.topic, self.partition, self.part = holder, topic, partition, part


class SchemasRefused(RunError):
    """The schema registry refuses a request for a reason that lies in no record; it would again."""


class OutputLost(RunError):
    """The stdout of a command is full, closed or broken."""


class StoreNotReady(EosError):
    """A store is brought up to date, or its partition moves; ask again."""


class KeyElsewhere(EosError):
    """A key's partition of a store belongs to another worker.

    Args:
        message: for people.
        partition: the number of the partition; None: it is unknown.
    """

    def __init__(self, message: str, *, partition: int | None) -> None:
        super().__init__(message)
        self.partition = partition


class ComponentFailed(RunError):
    """A server or child process that eosframework started did not start or ended."""


class InstanceFenced(EosError):
    """Another instance with the same identity took over; this one must stop."""

    exit_code = 3


class KeyTooHot(EosError):
    """A record's key would have more matches, windows or distinct values than allowed.

    The record fails in the step, and the step's `on_error` applies.
    """


class EffectInDoubt(EosError):
    """It cannot be known whether an effect outside of Kafka took place.

    The record fails in the step, and the step's `on_error` applies.
    """


class EffectUnusable(EosError):
    """An effect outside of Kafka took place, and its result cannot be kept.

    The record fails in the step each time, and the step's `on_error` applies; nothing is called.
    """


class DatabaseFault(EosError):
    """A database transaction did not succeed; the subclass states the consequence.

    Args:
        message: names the attempted operation and its target.
        reason: the database's message, in one line. None: there is no more than `message`.
        sqlstate: PostgreSQL's code. None: the server sent none.
    """

    def __init__(
        self, message: str, *, reason: str | None = None, sqlstate: str | None = None
    ) -> None:
        super().__init__(message)
        self.reason = reason or message
        self.sqlstate = sqlstate


class DatabaseUnavailable(DatabaseFault):
    """The database is unavailable or ended the transaction; only a new claim shows its outcome."""


class DatabaseConflict(DatabaseUnavailable):
    """The transaction was rolled back because of another one; the connection is still usable."""


class DataRefused(DatabaseFault):
    """The transaction was rolled back because of its data, which would be refused again."""


class RowRefused(DatabaseFault):
    """The database refuses a row because of its data.

    Args:
        partition: topic and number of the partition of the row's record.
        offset: of that record.
    """

    def __init__(self, message: str, *, partition: tuple[str, int], offset: int) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset


class Superseded(DatabaseFault):
    """A successor has claimed positions of this process.

    Args:
        partitions: topic and number of each partition.
    """

    def __init__(self, message: str, *, partitions: Collection[tuple[str, int]]) -> None:
        super().__init__(message)
        self.partitions = partitions


class MatchedTopicsChanged(EosError):
    """The topics that a pattern matches are others; what was complete is committed."""


class AssignmentLapsed(EosError):
    """The group assigns these partitions no longer; another assignment follows."""


class TransactionError(EosError):
    """A transactional call did not succeed; the subclass states the consequence."""


class Retriable(TransactionError):
    """Nothing is decided; the same call may be made again."""


class TransactionAborted(TransactionError):
    """Nothing of the transaction is visible once it is aborted; reprocess its input."""


class DataRejected(TransactionAborted):
    """As TransactionAborted, and the same output would be rejected again.

    Attributes:
        topic: the topic that rejects it; None: unknown.
        is_too_large: a smaller output would be accepted.
        is_of_dead_letter: the dead letter that this error caused was rejected as well.
    """

    topic: str | None = None
    is_too_large: bool = True
    is_of_dead_letter: bool = False


class RowsRefused(DataRejected):
    """As DataRejected, by a database that decides the transaction.

    Args:
        refused: the consumed message that each refused row comes from, and the reason.
    """

    is_too_large = False

    def __init__(self, message: str, *, refused: Sequence[tuple[Any, RowRefused]]) -> None:
        super().__init__(message)
        self.refused = refused


class TransactionTooLong(TransactionAborted):
    """As TransactionAborted; the same records are processed again, fewer to a transaction."""


class TransactionThrottled(TransactionAborted):
    """As TransactionAborted: a quota of the brokers leaves it too little time.

    Args:
        seconds: for which the brokers read nothing more from the client.
    """

    def __init__(self, message: str, *, seconds: float = 0.0) -> None:
        super().__init__(message)
        self.seconds = seconds


class SchemaRegistryUnavailable(TransactionAborted):
    """The schema registry is unavailable; a record can be neither read nor written yet."""


class TaskFenced(TransactionError):
    """This producer lost its transactional.id, to a successor or to the transaction timeout."""


class IdExpired(TaskFenced):
    """The brokers removed an idle transactional.id (transactional.id.expiration.ms).

    A successor may have taken it since, which only a rebalance shows.
    """


class OutcomeUnknown(TransactionError):
    """The commit may have happened; only the stable committed offset shows it."""


class TransactionFatal(TransactionError):
    """No transaction can succeed here until its cause is fixed."""


_MILDEST_FIRST: tuple[tuple[type[BaseException], ...], ...] = (
    (ClusterUnreachable, Retriable, OutcomeUnknown),
    (TransactionAborted,),
    (TaskFenced,),
    (InstanceFenced,),
    (EosError,),
)
"""Errors by their consequence: it passes, or ends a transaction, task, instance or process."""


_Failure = TypeVar("_Failure", bound=BaseException)


def worst(failures: Sequence[_Failure]) -> _Failure:
    """Return the failure that decides: the one with the gravest consequence, of equals the first.

    A failure that passes must not hide one that stays until its cause is fixed. An exception that
    is not of this module is a bug, and the worst.
    """

    def weight(error: _Failure) -> int:
        weights = range(len(_MILDEST_FIRST))
        return next((n for n in weights if isinstance(error, _MILDEST_FIRST[n])), len(weights))

    return max(failures, key=weight)
