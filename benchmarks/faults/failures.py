"""Failures of the suite itself, as opposed to those of a contestant."""

from __future__ import annotations


class FaultFailed(Exception):
    """A fault did not fire, so that its trial shows nothing."""


class NothingProduced(Exception):
    """A contestant wrote nothing before any fault."""
