"""Classification of RocksDB's errors, which rocksdict raises as Exception with a text."""

from __future__ import annotations

from pathlib import Path

from eosframework.errors import RunError, StateDamaged, StateUnwritable

_MISSING = "No such file or directory"

_REFUSED = ("IO error", "os error")
"""Texts in errors of the operating system, as opposed to damage that RocksDB found."""

_LONGEST_REASON = 300


def is_damage(error: Exception) -> bool:
    """Return whether files are missing or damaged, rather than refused by the system."""
    text = str(error)
    refused = any(sign in text for sign in _REFUSED) and _MISSING not in text
    return type(error) is Exception and not refused


def reading(directory: Path, error: Exception) -> RunError:
    """Return the error for a failed read."""
    _require_rocksdb(error)
    return StateDamaged(
        f"the stores in {directory} cannot be read: {reason(error)}. Remove that directory and "
        f"start again: they are rebuilt from their changelogs"
    )


def writing(directory: Path, error: Exception) -> RunError:
    """Return the error for a failed write."""
    _require_rocksdb(error)
    if is_damage(error):
        return reading(directory, error)
    return StateUnwritable(
        f"the stores in {directory} cannot be written: {reason(error)}. Free disk space, fix the "
        f"cause, or set state.directory to another local disk; then start again"
    )


def reason(error: Exception) -> str:
    """Return RocksDB's message in one line."""
    text = " ".join(str(error).split())
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"


def _require_rocksdb(error: Exception) -> None:
    if type(error) is not Exception:
        raise error
