"""The pages of dead letters: by error, and one with its content."""

from __future__ import annotations

from eosframework.console.pages.page import Console, Fields, Page


def dead_letters_page(console: Console, fields: Fields) -> Page:
    """Return the page of the groups of dead letters."""
    reading = console.app.dead_letters()
    return Page("dead_letters.html", "Dead letters", {"reading": reading})


def dead_letter_page(console: Console, fields: Fields) -> Page:
    """Return the page of one dead letter."""
    place = fields.get("place", "")
    values = {"reading": console.app.dead_letter(place), "place": place}
    return Page("dead_letter.html", f"Dead letter {place}", values, is_live=False)
