"""The next step of an attempt after a failed call, and the progress that it may then trust."""

from __future__ import annotations

from enum import StrEnum

from eosframework.backfill.job.job_entry import TaskProgress
from eosframework.errors import (
    IdExpired,
    InstanceFenced,
    RunError,
    TaskFenced,
    TransactionAborted,
    TransactionError,
    TransactionFatal,
)


class Step(StrEnum):
    """The first action after a failed call."""

    ABORT = "abort"
    """Abort: nothing becomes visible; then run the records again."""
    RECYCLE = "recycle"
    """The outcome is unknown: init the id again; the progress then shows it."""
    WATCH = "watch"
    """The transaction exceeded its timeout. Init the id again unless another attempt has it."""
    END = "end"
    """Another attempt has the task."""
    FAIL = "fail"
    """No attempt can succeed until the cause is fixed."""


def step_after(error: TransactionError, age_seconds: float, timeout_seconds: float) -> Step:
    """Return the step after an error.

    The brokers report `_FENCED` both for an id that another attempt initialized and for a
    transaction that exceeded its timeout; a younger one cannot have.

    Args:
        error: of a call.
        age_seconds: age of the transaction.
        timeout_seconds: the transaction timeout.
    """
    match error:
        case TransactionFatal():
            return Step.FAIL
        case IdExpired():
            return Step.WATCH
        case TaskFenced():
            return Step.WATCH if age_seconds >= timeout_seconds else Step.END
        case TransactionAborted():
            return Step.ABORT
        case _:
            return Step.RECYCLE


def own_progress(
    found: TaskProgress | None, known: TaskProgress | None, attempt: str, task: str
) -> TaskProgress | None:
    """Return the progress from which an attempt resumes after it initialized its id again.

    Args:
        found: in the control topic, with no transaction undecided.
        known: last progress known to be committed: the attempt's own, or the first one found.
        attempt: name of the attempt.
        task: for messages.

    Raises:
        InstanceFenced: another attempt committed since.
        RunError: committed progress was deleted.
    """
    if found == known or (found is not None and found.attempt == attempt):
        return found
    if found is None:
        raise RunError(
            f"the progress of {task} is missing in the control topic, which was emptied or created "
            f"again, so the task's committed output is unknown. Use another job name, and an "
            f"application whose topics are empty"
        )
    raise taken_over(task, found)


def taken_over(task: str, found: TaskProgress | None = None) -> InstanceFenced:
    """Return the error of an attempt whose task another one has."""
    by = "" if found is None else f" ({found.attempt})"
    return InstanceFenced(
        f"{task} was taken over by another attempt{by}, which continues it; this one ends, and its "
        f"open transaction is aborted"
    )
