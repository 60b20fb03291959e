"""Every error that eosframework raises, named by its consequence.

EosError
├── UserError                   exit 2: nothing was started; the input or configuration is wrong
│   ├── ConfigurationError
│   ├── TopologyError
│   ├── StartRefused            the cluster's state and the topology do not fit together
│   │   └── ControlTopicDamaged an entry of the control topic cannot be read
│   ├── ClusterUnreachable
│   ├── SchemasUnusable         the schema registry cannot be reached, or lacks what is needed
│   └── DatabaseUnusable        it cannot be connected to, or lacks what is needed
├── RunError                    exit 1: failed while running
│   ├── RecordFailed            a record could not be processed and `on_error` is `fail`
│   ├── RecordTooSlow           a record outlasted the transaction
│   ├── DatabaseRefused         no database transaction can succeed until somebody mends something
│   ├── PositionLost            the next offset to read is gone from the log
│   ├── StateDamaged            files of a store cannot be read; without them it is rebuilt
│   ├── StateUnwritable         the disk does not take what a store has to write
│   ├── SchemasRefused          the schema registry does not let this process go on
│   ├── OutputLost              stdout did not take what a command printed
│   └── ComponentFailed         an embedded server or a child process ended or did not start
├── InstanceFenced              exit 3: another instance took this one's identity over
├── KeyTooHot                   fails a record: it would meet too many others of its key
├── DatabaseFault               what a database reports to the persister or relay that uses it
│   ├── DatabaseAway            it may or may not have committed; claim the position again
│   │   └── DatabaseConflict    it has not, because of another transaction; the same may succeed
│   ├── DataRefused             it refuses a batch because of its data; nothing was written
│   ├── RowRefused              it refuses a row, and would again; nothing was written
│   └── Overtaken               another process claimed the position since; nothing was written
└── TransactionError            what a transactional call reports to the task that made it
    ├── Retriable               nothing is decided; make the same call again
    ├── TransactionAborted      abort, drop the batch's effects, recycle, rewind
    │   ├── DataRejected        the same, and the same data will be rejected again
    │   ├── TransactionTooLong  the same, and the same records would outlast it again
    │   └── SchemasAway         the same: the schema registry cannot answer for a record yet
    ├── TaskFenced              this producer is no longer the owner of its transactional.id
    │   └── IdExpired           the brokers forgot the transactional.id, which was idle for long
    ├── OutcomeUnknown          the transaction may or may not be committed
    └── TransactionFatal        no transaction can succeed here until somebody mends something
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Collection


def raised_by_functions() -> tuple[type[BaseException], ...]:
    """Return what a user's code may raise about what it was given, for an `except` around it.

    `except` evaluates it when something was raised, so it costs nothing before.

    - `sys.exit()` and a KeyboardInterrupt in a function end no process: only a signal asks to stop.
      Where SIGINT is still Python's own to handle (pytest, a notebook), a KeyboardInterrupt is a
      Ctrl-C and passes.
    - A coroutine that was cancelled is a failure of the function that ran it.
    - Other exceptions beside Exception pass: with them test frameworks, and the framework's own
      deadline, end a function.
    """
    found: tuple[type[BaseException], ...] = (Exception, SystemExit, GeneratorExit)
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        found = (*found, KeyboardInterrupt)
    # Whoever raises it has imported it.
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


class ControlTopicDamaged(StartRefused):
    """An entry of the control topic, which the application must remember, cannot be read."""


class ClusterUnreachable(UserError):
    """No broker of the configured cluster answered within the deadline."""


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
    """No transaction in the database can succeed until somebody mends something."""


class PositionLost(RunError):
    """The next offset to read no longer exists in the log."""


class StateDamaged(RunError):
    """Files of a store cannot be read; it is rebuilt from its changelog once they are gone."""


class StateUnwritable(RunError):
    """The disk refused a store's directory or what had to be written there."""


class SchemasRefused(RunError):
    """The schema registry refuses what no record is to blame for, and would again."""


class OutputLost(RunError):
    """The stdout of a command is full, closed or broken."""


class ComponentFailed(RunError):
    """A server or child process that eosframework started did not start or ended."""


class InstanceFenced(EosError):
    """Another instance with the same identity took over; this one must stop."""

    exit_code = 3


class KeyTooHot(EosError):
    """A record would meet more records of its key, or its key have more windows, than allowed.

    The record fails in the step and goes the way of its `on_error`.
    """


class DatabaseFault(EosError):
    """A database transaction did not succeed; the subclass says what follows.

    Args:
        message: names what was being done, and where.
        reason: what the database said, in one line. None: there is no more to say.
        sqlstate: PostgreSQL's code. None: the server did not get to say one.
    """

    def __init__(
        self, message: str, *, reason: str | None = None, sqlstate: str | None = None
    ) -> None:
        super().__init__(message)
        self.reason = reason or message
        self.sqlstate = sqlstate


class DatabaseAway(DatabaseFault):
    """The database did not answer, or gave the transaction up; only a new claim can tell."""


class DatabaseConflict(DatabaseAway):
    """The transaction was undone because of another one, and the connection is still good."""


class DataRefused(DatabaseFault):
    """The transaction was undone because of its data; the same data would be refused again."""


class RowRefused(DatabaseFault):
    """The database refuses a row because of its data.

    Args:
        partition: topic and number of the partition that the row's record is in.
        offset: of that record.
    """

    def __init__(self, message: str, *, partition: tuple[str, int], offset: int) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset


class Overtaken(DatabaseFault):
    """Another process claimed positions after this one did.

    Args:
        partitions: topic and number of each partition.
    """

    def __init__(self, message: str, *, partitions: Collection[tuple[str, int]]) -> None:
        super().__init__(message)
        self.partitions = partitions


class TransactionError(EosError):
    """A transactional call did not succeed; the subclass says what follows."""


class Retriable(TransactionError):
    """Nothing is decided; the same call may be made again."""


class TransactionAborted(TransactionError):
    """Nothing of the transaction is visible once it is aborted; reprocess its input."""


class DataRejected(TransactionAborted):
    """As TransactionAborted, and the same output would be rejected again."""


class TransactionTooLong(TransactionAborted):
    """As TransactionAborted; the same records are processed again, fewer to a transaction."""


class SchemasAway(TransactionAborted):
    """The schema registry cannot answer for now; a record can be neither read nor written yet."""


class TaskFenced(TransactionError):
    """This producer lost its transactional.id, to a successor or to the transaction timeout."""


class IdExpired(TaskFenced):
    """The brokers forgot an idle transactional.id (transactional.id.expiration.ms).

    Somebody may have taken it since, which only a rebalance shows.
    """


class OutcomeUnknown(TransactionError):
    """The commit may have happened; only the stable committed offset can tell."""


class TransactionFatal(TransactionError):
    """No transaction can succeed here until its cause is mended."""
