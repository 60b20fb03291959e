"""Readings of backfill jobs: `eosframework backfill status`, with rates between readings."""

from __future__ import annotations

import time
from typing import Any

from eosframework.backfill.job.job_entry import job_states
from eosframework.backfill.job.job_status import StatusTracker
from eosframework.console.application import Application
from eosframework.console.readings import Reading
from eosframework.topology.graph.walk import without_retries


class Backfills:
    """The backfill jobs of an application.

    Args:
        app: of the console.
    """

    def __init__(self, app: Application) -> None:
        self._app = app
        self._trackers: dict[tuple[str, int], StatusTracker] = {}

    def look(self) -> Reading[list[dict[str, Any]]]:
        """Return the jobs with their stages and tasks, by start time."""
        return self._app.read("backfills", self._look, 2.0)

    def _look(self) -> list[dict[str, Any]]:
        context = self._app.kept_context("backfills")
        graph = without_retries(context.graph)
        states = job_states(graph.application, context.settings.kafka, context.admin)
        found = [((s.job.name, s.job.created_at), s) for s in states]
        self._trackers = {key: self._trackers.get(key) or StatusTracker(graph) for key, _ in found}
        now = time.time()
        return [self._trackers[key].look(state, now).as_data() for key, state in found]
