"""The examiner: compares the books of both banks all the time, on its own thread."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import cycle

from eosframework.demo.background import Background
from eosframework.demo.banks.bank import Reader
from eosframework.demo.banks.bank_books import Books, Sample, examine
from eosframework.errors import DatabaseUnavailable

SHARE = 0.2
"""Share of time at work; the rest is left to the banks."""

SHORTEST_PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 0.2
AWAY_SECONDS = 0.1
KEPT_FINDINGS = 20


class Examiner(Background):
    """Takes the books of the banks in turns; three consecutive ones make a sample.

    Args:
        banks: two readers for this thread only.
        start: opening total of both banks.
    """

    def __init__(self, banks: Sequence[Reader], start: int) -> None:
        super().__init__("eos-examiner", [self._look])
        self.samples = 0
        self.wrong = 0
        self.findings: list[str] = []
        self.latest: Sample | None = None
        self._banks = banks
        self._opening_total = start

    def _look(self) -> None:
        taken: deque[Books] = deque(maxlen=3)
        with ExitStack() as opened:
            for bank in self._banks:
                opened.callback(bank.close)
            for bank in cycle(self._banks):
                if (books := self._books(bank)) is None:
                    return
                began = time.monotonic()
                taken.append(books)
                if len(taken) == 3:
                    first, between, last = taken
                    self._judge(examine(first, between, last, self._opening_total))
                self._rest_from(time.monotonic() - began)

    def _books(self, bank: Reader) -> Books | None:
        """Return a bank's books once its database is available; None: asked to stop."""
        while not self.stopping.is_set():
            began = time.monotonic()
            try:
                books = bank.books()
            except DatabaseUnavailable:
                self.stopping.wait(AWAY_SECONDS)
                continue
            self._rest_from(time.monotonic() - began)
            return books
        return None

    def _rest_from(self, worked_seconds: float) -> None:
        wanted_seconds = worked_seconds * (1 / SHARE - 1)
        self.stopping.wait(min(max(wanted_seconds, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS))

    def _judge(self, sample: Sample) -> None:
        self.samples += 1
        self.wrong += bool(sample.findings)
        self.findings += sample.findings[: KEPT_FINDINGS - len(self.findings)]
        self.latest = sample
