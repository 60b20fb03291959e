"""The transform that every Python contestant runs, and the environment of a program."""

from __future__ import annotations

import itertools
import os
from typing import Any

BOOTSTRAP_SERVERS = os.environ.get("FAULTS_BOOTSTRAP_SERVERS", "")
INPUT = os.environ.get("FAULTS_INPUT", "")
OUTPUTS = (os.environ.get("FAULTS_OUTPUT", ""), os.environ.get("FAULTS_SECOND_OUTPUT", ""))
GROUP = os.environ.get("FAULTS_GROUP", "")
TRANSACTIONAL_ID = os.environ.get("FAULTS_TRANSACTIONAL_ID", "")
COMMIT_SECONDS = float(os.environ.get("FAULTS_COMMIT_SECONDS", "0.5"))
SESSION_TIMEOUT_MS = int(os.environ.get("FAULTS_SESSION_TIMEOUT_MS", "45000"))
TRANSACTION_TIMEOUT_MS = int(os.environ.get("FAULTS_TRANSACTION_TIMEOUT_MS", "60000"))
REPLICAS = int(os.environ.get("FAULTS_REPLICAS", "1"))
DIRECTORY = os.environ.get("FAULTS_DIRECTORY", "")
RAISE = os.environ.get("FAULTS_RAISE", "")

_calls = itertools.count()


class TransientError(Exception):
    """The failure that the transform has once when it is asked to."""


def stamp(record: dict[str, Any]) -> dict[str, Any]:
    """Return the output of an input: its number, and which call of which process made it.

    Raises:
        TransientError: the file FAULTS_RAISE was there; it is removed.
    """
    try:
        os.unlink(RAISE)
    except OSError:
        return {"n": record["n"], "by": f"{os.getpid()}-{next(_calls)}"}
    raise TransientError("the transform fails once, as it was asked to")


def counted(record: dict[str, Any], before: int) -> dict[str, Any]:
    """Return the output of an input with its place among the records of its key."""
    return {**stamp(record), "count": before + 1}
