"""The pages of transactions: open and hanging ones, and the life of one id."""

from __future__ import annotations

from eosframework.console.drawing.timelines import transaction_timeline
from eosframework.console.pages.page import Console, Fields, Page


def transactions_page(console: Console, fields: Fields) -> Page:
    """Return the page of open and hanging transactions, and of the application's ids."""
    app = console.app
    values = {"reading": app.open_transactions(), "ids": app.transactional_ids()}
    return Page("transactions.html", "Transactions", values)


def trace_page(console: Console, fields: Fields) -> Page:
    """Return the page of one id's last transactions."""
    wanted = fields.get("id", "")
    reading = console.app.trace(wanted)
    found = [] if reading.value is None else list(reversed(reading.value["transactions"]))
    drawn = [(transaction, transaction_timeline(transaction)) for transaction in found]
    values = {"reading": reading, "transactional_id": wanted, "transactions": drawn}
    return Page("trace.html", f"Transactions of {wanted}", values)
