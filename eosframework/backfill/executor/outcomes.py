"""What an attempt does after a call that did not succeed, and whose progress it finds then."""

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
    """What comes first."""

    ABORT = "abort"
    """Nothing of it is visible once it is aborted; run the records again."""
    RECYCLE = "recycle"
    """It may be committed: take the id again, then the progress tells."""
    WATCH = "watch"
    """The brokers gave it up for its age. Take the id again unless somebody else has it."""
    END = "end"
    """Another attempt has the task."""
    FAIL = "fail"
    """Nothing can succeed until somebody mends the cause."""


def step_after(error: TransactionError, age_seconds: float, timeout_seconds: float) -> Step:
    """Return what follows from an error.

    The brokers report `_FENCED` both of an id that another attempt took and of a transaction that
    outlasted its timeout; one that is younger cannot have.

    Args:
        error: of a call.
        age_seconds: for how long the transaction was open.
        timeout_seconds: after so long the brokers end it.
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
    """Return the progress that an attempt goes on from after it took its id again.

    Args:
        found: in the registry, settled.
        known: last known to be committed: the attempt's own, or what it found at first.
        attempt: which one it is.
        task: for messages.

    Raises:
        InstanceFenced: another attempt committed since.
        RunError: what was committed is gone.
    """
    if found == known or (found is not None and found.attempt == attempt):
        return found
    if found is None:
        raise RunError(
            f"the progress of {task} is gone from the registry: it was emptied or created again, "
            f"so what the task has written cannot be told any more. Use another job name, and an "
            f"application whose topics are empty"
        )
    raise taken_over(task, found)


def taken_over(task: str, found: TaskProgress | None = None) -> InstanceFenced:
    """Return the error of an attempt whose task another one has."""
    by = "" if found is None else f" ({found.attempt})"
    return InstanceFenced(
        f"{task} was taken over by another attempt{by}, which goes on with it; this one ends, and "
        f"nothing of its open transaction counts"
    )
