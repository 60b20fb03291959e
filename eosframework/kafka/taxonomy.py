"""The one classifier of Kafka errors: the meaning of each error of each call.

The table is data (`failures.yaml`); `eosframework explain errors` and docs/errors.md print it.
librdkafka's flags alone do not decide: `_FENCED` is reported as fatal, `_FATAL` as not fatal,
and a commit that timed out as retriable although it may have been done.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any, NoReturn

from confluent_kafka import KafkaError, KafkaException

from eosframework import errors
from eosframework.serialization.yaml_text import named_rows, read_table


class Category(StrEnum):
    """KIP-1050's categories and two of our own."""

    RETRIABLE = "retriable"
    ABORTABLE = "abortable"
    APPLICATION_RECOVERABLE = "application_recoverable"
    INVALID_CONFIGURATION = "invalid_configuration"
    FATAL = "fatal"
    COMMIT_OUTCOME_UNKNOWN = "commit_outcome_unknown"
    SUSPECT_PRODUCER = "suspect_producer"


class Call(StrEnum):
    """Sources of errors. `produce` includes delivery reports and flush."""

    INIT = "init"
    BEGIN = "begin"
    PRODUCE = "produce"
    SEND_OFFSETS = "send_offsets"
    COMMIT = "commit"
    ABORT = "abort"
    CONSUME = "consume"
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True)
class Action:
    """The worker's reaction to an error.

    Args:
        worker: a description of the reaction.
        data: the same output would be rejected again.
        raises: name of the class in `eosframework.errors`; None: the call succeeded.
    """

    name: str
    category: Category
    worker: str
    raises: str | None
    data: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """One code of the table: its meaning, and the action for each call."""

    name: str
    meaning: str
    source: str
    actions: Mapping[Call, Action]
    aliases: tuple[str, ...] = ()
    fix: str | None = None
    raised: frozenset[Call] = frozenset()
    """Calls for which a test made a real broker raise it."""

    @property
    def number(self) -> int:
        """The code's number in librdkafka."""
        return int(getattr(KafkaError, self.name))


@dataclass(frozen=True, slots=True)
class Table:
    """All failures, and the actions for codes that are not among them."""

    actions: Mapping[str, Action]
    failures: Mapping[int, Failure]
    others: Mapping[str, Mapping[Call, Action]]
    """By the flag librdkafka set: fatal, requires_abort, retriable, none."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The meaning of one error of one call for the task.

    Args:
        action: a description of the worker's reaction.
        raises: name of the class in `eosframework.errors`; None: the call succeeded.
    """

    category: Category
    code: int
    name: str
    data: bool
    action: str
    meaning: str
    raises: str | None
    fix: str | None = None


@cache
def table() -> Table:
    """Return the table as it is shipped."""
    content = read_table("eosframework.kafka", "failures.yaml", dict[str, Any])
    actions = named_rows(content["actions"], Action)
    rows = {
        name: {**row, "actions": _by_call(row["calls"], actions)}
        for name, row in content["codes"].items()
    }
    failures = {failure.number: failure for failure in named_rows(rows, Failure).values()}
    others = {flag: _by_call(calls, actions) for flag, calls in content["others"].items()}
    return Table(actions, failures, others)


def _by_call(calls: Mapping[str, str], actions: Mapping[str, Action]) -> dict[Call, Action]:
    """Return exactly one action for each call: its own, or that of `*`."""
    if unknown := set(calls) - set(Call) - {"*"}:
        raise ValueError(f"failures.yaml names calls that do not exist: {sorted(unknown)}")
    return {call: actions[calls[call] if call in calls else calls["*"]] for call in Call}


_LOCAL_EXCEPTIONS: tuple[tuple[type[BaseException], int], ...] = (
    (BufferError, KafkaError._QUEUE_FULL),  # noqa: SLF001
    (SystemError, KafkaError._FATAL),  # noqa: SLF001
    (RuntimeError, KafkaError._STATE),  # noqa: SLF001
)
"""Exceptions that confluent_kafka raises in place of a KafkaError, with their code."""


def kafka_error(error: BaseException | KafkaError) -> KafkaError:
    """Return the KafkaError of an exception, or the one that a local exception stands for."""
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return error.args[0]
    for kind, code in _LOCAL_EXCEPTIONS:
        if isinstance(error, kind):
            return KafkaError(code, f"{type(error).__name__}: {error}")
    application = KafkaError._APPLICATION  # noqa: SLF001
    return KafkaError(application, f"{type(error).__name__}: {error}")


def classify(error: BaseException | KafkaError, call: Call) -> Verdict:
    """Return the meaning of `error` out of `call`, by its code and, where that is open, its flags.

    A code's row decides. Two flags correct a row that says `retriable`, because librdkafka itself
    has given up then: requires_abort and fatal. A row that says the commit's outcome is unknown
    overrides every flag: librdkafka returns an abortable and a fatal error also after the broker
    has done the commit (txnmgr.c, handle_EndTxn).
    """
    kafka = kafka_error(error)
    failure = table().failures.get(_cause(kafka))
    if failure is None:
        action = table().others[_flag(kafka)][call]
        return _verdict(kafka, action, kafka.str() or "unknown error", None)
    action = failure.actions[call]
    if action.category is Category.RETRIABLE and _flag(kafka) in ("requires_abort", "fatal"):
        action = table().others[_flag(kafka)][call]
    return _verdict(kafka, action, failure.meaning, failure.fix)


def _cause(error: KafkaError) -> int:
    """Return the code itself, or the one that the text of a consumer's `_FATAL` quotes.

    A consumer reports its fatal error as `_FATAL` and has no call that would return the cause.
    """
    if error.code() != KafkaError._FATAL:  # noqa: SLF001
        return error.code()
    reason = error.str() or ""
    for code in table().failures:
        if code not in (KafkaError._FATAL, KafkaError.NO_ERROR):  # noqa: SLF001
            text = KafkaError(code).str()
            if text and text in reason:
                return code
    return error.code()


def _flag(error: KafkaError) -> str:
    if error.fatal():
        return "fatal"
    if error.txn_requires_abort():
        return "requires_abort"
    return "retriable" if error.retriable() else "none"


def _verdict(error: KafkaError, action: Action, meaning: str, fix: str | None) -> Verdict:
    return Verdict(
        category=action.category,
        code=error.code(),
        name=error.name(),
        data=action.data,
        action=action.worker,
        meaning=meaning,
        raises=action.raises,
        fix=fix,
    )


_REJECTED_BY = re.compile(r"ProduceRequest for (\S+) \[\d+\] ")
"""The beginning of librdkafka's reason (rd_kafka_handle_Produce_error), with the topic."""

_TOO_LARGE = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_MSG_SIZE,
)


class CallFailed(KafkaException):
    """Base of all exceptions of `raise_for`: `args[0]` is the KafkaError, as from librdkafka.

    Args:
        error: librdkafka's error, with its flags.
        verdict: its meaning.
        message: the one message for people.
    """

    def __init__(self, error: KafkaError, verdict: Verdict, message: str) -> None:
        super().__init__(error)
        self.error = error
        self.verdict = verdict
        self.message = message

    def __str__(self) -> str:
        return self.message


class CallRetriable(CallFailed, errors.Retriable):
    """Nothing is decided; the same call may be made again."""


class QueueFull(CallRetriable, BufferError):
    """The producer's queue is full; poll, then produce again."""


class CallAborted(CallFailed, errors.TransactionAborted):
    """Nothing of the transaction is visible once it is aborted."""


class OutputRejected(CallFailed, errors.DataRejected):
    """As CallAborted, and the same output would be rejected again."""

    def __init__(self, error: KafkaError, verdict: Verdict, message: str) -> None:
        super().__init__(error, verdict, message)
        named = _REJECTED_BY.match(error.str() or "")
        self.topic = None if named is None else named[1]
        self.is_too_large = error.code() in _TOO_LARGE


class ProducerFenced(CallFailed, errors.TaskFenced):
    """This producer, or the membership its batch was polled under, is no longer current."""


class ProducerForgotten(CallFailed, errors.IdExpired):
    """The coordinator no longer knows this producer's transactional.id."""


class CommitUnknown(CallFailed, errors.OutcomeUnknown):
    """The commit may have happened."""


class CallFatal(CallFailed, errors.TransactionFatal):
    """No transaction can succeed here until the cause is fixed."""


class InstanceReplaced(CallFailed, errors.InstanceFenced):
    """Another member uses this instance's name."""


class PositionGone(CallFailed, errors.PositionLost):
    """The next offset to read is no longer in the log."""


_EXCEPTIONS: dict[str, type[CallFailed]] = {
    "Retriable": CallRetriable,
    "TransactionAborted": CallAborted,
    "DataRejected": OutputRejected,
    "TaskFenced": ProducerFenced,
    "IdExpired": ProducerForgotten,
    "OutcomeUnknown": CommitUnknown,
    "TransactionFatal": CallFatal,
    "InstanceFenced": InstanceReplaced,
    "PositionLost": PositionGone,
}


def raise_for(
    error: BaseException | KafkaError,
    call: Call,
    *,
    transactional_id: str | None,
    detail: str = "",
) -> NoReturn:
    """Raise `error` by its meaning: a KafkaException and a class of `eosframework.errors`.

    Args:
        error: confluent_kafka's exception or reported error.
        call: the source of the error.
        transactional_id: of the producer; None for a consumer.
        detail: further facts for the message: a topic, figures.

    Raises:
        TransactionError: the subclass says what follows.
        InstanceFenced: another member has this instance's name.
        PositionLost: the next offset to read is gone.
    """
    raised = exception_for(error, call, transactional_id=transactional_id, detail=detail)
    raise raised from (error if isinstance(error, BaseException) else None)


def exception_for(
    error: BaseException | KafkaError,
    call: Call,
    *,
    transactional_id: str | None,
    detail: str = "",
) -> CallFailed:
    """Return the exception of `raise_for`, for a caller that passes it on instead."""
    kafka = kafka_error(error)
    verdict = classify(kafka, call)
    if verdict.raises is None:
        raise ValueError(f"{verdict.name} out of {call} is no failure, so nothing can be raised")
    kind = _EXCEPTIONS[verdict.raises]
    verdict = replace(
        verdict,
        meaning=verdict.meaning.replace("{transactional_id}", transactional_id or ""),
        fix=verdict.fix and verdict.fix.replace("{transactional_id}", transactional_id or ""),
    )
    if kafka.code() == KafkaError._QUEUE_FULL and kind is CallRetriable:  # noqa: SLF001
        kind = QueueFull
    return kind(kafka, verdict, _message(kafka, verdict, call, transactional_id, detail))


def as_transaction_error(failed: CallFailed) -> errors.TransactionError:
    """Return an error out of a producer's call as the TransactionError that it is."""
    if isinstance(failed, errors.TransactionError):
        return failed
    raise failed  # only a consumer's calls have other errors


def _message(
    error: KafkaError, verdict: Verdict, call: Call, transactional_id: str | None, detail: str
) -> str:
    who = f"transactional.id {transactional_id}" if transactional_id else "consumer"
    parts = [f"{who}: {call} failed with {verdict.name}: {verdict.meaning}"]
    if detail:
        parts.append(f" ({detail})")
    if (reason := error.str()) and reason != verdict.meaning:
        parts.append(f" [{reason}]")
    if verdict.fix:
        parts.append(f". To fix it: {verdict.fix}")
    parts.append(f". The worker {verdict.action}")
    return "".join(parts)
