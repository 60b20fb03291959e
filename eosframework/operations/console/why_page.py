"""The page about one output: where it came from, and a job that runs its functions again.

Internal: no module here is public.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from eosframework.kafka.inspect.written_record import RecordPlace
from eosframework.operations.console.access import Refused
from eosframework.operations.console.application import Application
from eosframework.operations.console.jobs import Done, Job, Progress
from eosframework.operations.console.pages import Console, Fields, Page
from eosframework.operations.why import cause_of
from eosframework.process.steps import StepText

_WHY = "Why"
"""Title of the page, and of the job."""


def why_page(console: Console, fields: Fields) -> Page:
    """Return the page with a form for a record, and its input, transaction and steps.

    Raises:
        ConfigurationError: the text is no place of a record.
    """
    given = fields.get("place", "").strip()
    reading = console.app.why(RecordPlace.parse(given)) if given else None
    title = f"{_WHY} {given}" if given else _WHY
    return Page("why.html", title, {"reading": reading, "place": given}, is_live=False)


def start_why(console: Console, form: Fields) -> Job:
    """Start a job that runs the functions of a record again: `eosframework why`.

    Raises:
        Refused: another job is running, or changes are not allowed.
        EosError: the text is no place of a record, or the topology does not resolve.
    """
    if not console.allow_changes:
        raise Refused(
            HTTPStatus.FORBIDDEN,
            "the topology's functions would run again, with their side effects; start the console "
            "with --allow-changes, or use the command `eosframework why`",
        )
    place = RecordPlace.parse(form.get("place", ""))
    job = console.jobs.start(f"{_WHY} {place}", [], _search(console.app, place))
    if job is None:
        raise Refused(
            HTTPStatus.CONFLICT,
            "another job of this console is running, so nothing was started; wait for its end",
        )
    return job


def _search(app: Application, place: RecordPlace) -> Callable[[Progress], Done]:
    graph = app.graph()

    def work(show: Progress) -> Done:
        text = StepText()

        def progress(what: str, done: int, total: int) -> None:
            show(text.of(what, done, total))

        found = cause_of(place, app.settings, graph, progress).found
        return Done([], {"why": found.as_data()})

    return work
