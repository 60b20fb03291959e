"""Named points of the protocol at which a test may wait, crash or be notified.

In production every point is a no-op: one look-up in an empty dictionary.
Only `eosframework.testing` arms them.
"""

from __future__ import annotations

from collections.abc import Callable

Action = Callable[[str], None]
"""Called with the point's name when the protocol reaches it."""

POINTS = frozenset(
    {
        "takeover.before_init",
        "takeover.after_init",
        "takeover.after_assign",
        "ownership.before_entry",
        "ownership.after_entry",
        "ownership.after_read",
        "ownership.after_fence",
        "transaction.after_begin",
        "transaction.after_produce",
        "transaction.after_send_offsets",
        "transaction.before_commit",
        "transaction.after_commit",
        "effects.before_write",
        "effects.after_write",
        "effects.before_call",
        "effects.after_call",
        "decision.before_begin",
        "decision.before_commit",
        "decision.after_commit",
        "settlement.after_take",
        "settlement.before_commit",
        "state.before_write",
        "state.after_write",
        "state.during_restore",
        "revoke.before_commit",
        "revoke.after_commit",
        "table_writer.after_claim",
        "table_writer.before_commit",
        "table_writer.after_commit",
        "table_writer.before_revoke",
        "cutover.after_join",
        "cutover.after_init",
        "relay.after_hold",
        "relay.after_turn",
        "relay.after_read",
        "relay.after_refusals",
        "relay.before_set_aside",
        "relay.after_set_aside",
        "relay.after_position",
        "relay.before_clean",
        "relay.after_clean",
        "backfill.after_complete",
        "reset.after_mark",
        "reset.after_fence",
        "reset.after_groups",
        "reset.after_topics",
        "reset.after_positions",
        "release.after_mark",
        "topics.changed",
    }
)

_armed: dict[str, Action] = {}


def hit(point: str) -> None:
    """Run the action armed at `point`, if any."""
    if _armed and (action := _armed.get(point)) is not None:
        action(point)


def arm(point: str, action: Action) -> None:
    """Run `action` whenever `point` is reached, until `disarm`.

    Raises:
        ValueError: there is no such point.
    """
    if point not in POINTS:
        raise ValueError(f"there is no failpoint {point!r}; there are {', '.join(sorted(POINTS))}")
    _armed[point] = action


def disarm(point: str) -> None:
    """Make `point` a no-op again."""
    _armed.pop(point, None)
