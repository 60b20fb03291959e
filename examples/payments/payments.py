"""The functions of the topology: plain Python."""

from __future__ import annotations

from typing import Any

from eosframework import WindowResult

LIMIT_CENTS = 100_000
"""The most that a card may pay in ten minutes."""

TRIES = 3
"""Declined payments, each within five minutes of another, that look like guesses."""

Payment = dict[str, Any]


def paid_at(payment: Payment) -> int:
    return payment["at"]


def payment_id(payment: Payment) -> str:
    return payment["id"]


def is_approved(payment: Payment) -> bool:
    if payment["amount_cents"] <= 0:
        raise ValueError(f"payment {payment['id']} has the amount {payment['amount_cents']} cents")
    return payment["approved"]


def nothing_paid() -> dict[str, Any]:
    return {"payments": 0, "cents": 0}


def add(total: dict[str, Any], payment: Payment) -> dict[str, Any]:
    return {
        "payments": total["payments"] + 1,
        "cents": total["cents"] + payment["amount_cents"],
    }


def add_totals(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {name: one[name] + other[name] for name in one}


def is_too_much(spent: WindowResult) -> bool:
    return spent.value["cents"] > LIMIT_CENTS


def are_guesses(declined: WindowResult) -> bool:
    return declined.value["payments"] >= TRIES


def spent_too_much(spent: WindowResult) -> dict[str, Any]:
    return {"reason": "spent too much", "from": spent.start, "to": spent.end} | spent.value


def guessed(declined: WindowResult) -> dict[str, Any]:
    return {"reason": "declined often", "from": declined.start, "to": declined.end} | declined.value
