"""What RocksDB's errors mean: it reports every one as an Exception with a text."""

from __future__ import annotations

from pathlib import Path

from eosframework.errors import RunError, StateDamaged, StateUnwritable

_MISSING = "No such file or directory"

_REFUSED = ("IO error", "os error")
"""How errors of the system are told from RocksDB's findings."""

_LONGEST_REASON = 300


def is_damage(error: Exception) -> bool:
    """Tell whether files are missing or wrong, rather than refused by the system."""
    text = str(error)
    refused = any(sign in text for sign in _REFUSED) and _MISSING not in text
    return type(error) is Exception and not refused


def reading(directory: Path, error: Exception) -> RunError:
    """Return what a read that failed means."""
    _require_rocksdb(error)
    return StateDamaged(
        f"the stores in {directory} cannot be read: {reason(error)}. Remove that directory and "
        f"start again: they are rebuilt from their changelogs"
    )


def writing(directory: Path, error: Exception) -> RunError:
    """Return what a write that failed means."""
    _require_rocksdb(error)
    if is_damage(error):
        return reading(directory, error)
    return StateUnwritable(
        f"the stores in {directory} cannot be written: {reason(error)}. Make room there or mend "
        f"what the system refuses, or set state.directory to another local disk; then start again"
    )


def reason(error: Exception) -> str:
    """Return what RocksDB said, in one line."""
    text = " ".join(str(error).split())
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"


def _require_rocksdb(error: Exception) -> None:
    if type(error) is not Exception:
        raise error
