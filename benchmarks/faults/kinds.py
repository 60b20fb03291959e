"""The faults by name."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """The faults that strike a contestant; the value is what a user gives for `--only`."""

    KILL = "kill"
    SESSION = "stop-past-session"
    TRANSACTION = "stop-past-transaction"
    REBALANCE = "rebalance-in-commit"
    BOUNCE = "broker-bounce"
    COORDINATOR = "coordinator-move"
    LATE_COMMIT = "late-commit"
    LATE_ABORT = "late-abort"
    LATE_PARTITIONS = "late-partitions"
    LATE_OFFSETS = "late-offsets"
    LATE_RECORD = "late-record"


TITLES = {
    Kind.KILL: "`kill -9` in a transaction",
    Kind.SESSION: "SIGSTOP past the session timeout, with a successor",
    Kind.TRANSACTION: "SIGSTOP past the transaction timeout",
    Kind.REBALANCE: "a rebalance in the middle of a commit",
    Kind.BOUNCE: "an output's leader is killed and started again, of three",
    Kind.COORDINATOR: "the coordinator's broker is killed, of three",
    Kind.LATE_COMMIT: "a late EndTxn that commits",
    Kind.LATE_ABORT: "a late EndTxn that aborts",
    Kind.LATE_PARTITIONS: "a late AddPartitionsToTxn",
    Kind.LATE_OFFSETS: "a late TxnOffsetCommit, then `kill -9`",
    Kind.LATE_RECORD: "a late Produce, after an abort",
}
