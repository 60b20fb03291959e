"""The map of the tasks: a cell for each, chosen, ordered and grouped by sub-topology.

Internal: no module here is public.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from markupsafe import Markup

from eosframework.application.composition.application_status import ApplicationStatus, TaskStatus

RUNNING = "running"
NO_OWNER = "no owner"
STOPPED = "stopped at a record"
HELD = "held"
OWNED = "owned"
"""The state of a task whose owner was not asked."""

STATES = ("running", "not running", HELD, STOPPED, NO_OWNER)
"""States that can be chosen, with their names for people."""

SORTS = ("number", "worst", "lag", "owner")
"""Orders that can be chosen."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A task on the map.

    Args:
        status: from Kafka.
        state: as its owner reports it, or a state of this module.
        lag: of all its source partitions.
        style: name of its class in the style sheet: the state if it is no good one, else the lag.
        is_held: upstream tasks hold its stream time, or a transaction holds its input back.
    """

    status: TaskStatus
    state: str
    lag: int
    style: str
    is_held: bool = False

    @classmethod
    def make(cls, status: TaskStatus, state: str, *, waits: bool = False) -> Self:
        """Return the cell of a task in a state."""
        lag = status.lag
        style = _STYLES.get(state, "w") if state not in (RUNNING, OWNED) else f"l{lag_level(lag)}"
        return cls(status, state, lag, style, waits or bool(status.held_back))

    @property
    def task(self) -> str:
        """Name of the task."""
        return self.status.task

    @property
    def part(self) -> str:
        """Its sub-topology, or the topic of a table writer's task."""
        return self.task.rpartition("[")[0]

    @property
    def number(self) -> str:
        """Its partition, in digits."""
        return self.task.rpartition("[")[2].rstrip("]")

    @property
    def mark(self) -> str:
        """Its element on the page: numbers and names of classes only."""
        lag = f' data-l="{self.lag}"' if self.lag else ""
        return f'<i class="{self.style}" data-n="{self.number}"{lag}></i>'

    @property
    def badness(self) -> tuple[int, int]:
        """Order by state, then by lag."""
        return _BADNESS.get(self.style, 0), self.lag


_STYLES = {STOPPED: "x", NO_OWNER: "n"}
_BADNESS = {"x": 3, "n": 2, "w": 1}


def lag_level(lag: int) -> int:
    """Return the level of a lag, for its colour: 0 to 3."""
    return 0 if not lag else 1 if lag <= 1000 else 2 if lag <= 10_000 else 3


def cells_of(status: ApplicationStatus, answers: Mapping[str, Mapping[str, Any]]) -> list[Cell]:
    """Return the cells of all tasks.

    Args:
        status: from Kafka.
        answers: of the processes that answer now, by address; only the owner's word counts.
    """
    told = {
        (answer["process"], answer.get("instance"), task["task"]): task
        for answer in answers.values()
        for task in answer.get("tasks", ())
    }
    stopped = {failure.task for failure in status.failures}
    return [_cell(task, told, stopped) for task in status.tasks]


def _cell(
    task: TaskStatus,
    told: Mapping[tuple[str, str | None, str], Mapping[str, Any]],
    stopped: set[str],
) -> Cell:
    if task.task in stopped:
        return Cell.make(task, STOPPED)
    if task.owner is None:
        return Cell.make(task, NO_OWNER)
    found = told.get((task.process, task.owner, task.task))
    if found is None:
        return Cell.make(task, OWNED)
    return Cell.make(task, str(found["state"]), waits=bool(found.get("waits_for")))


@dataclass(frozen=True, slots=True)
class TaskChoice:
    """Criteria for tasks; an empty one chooses all.

    Args:
        part: sub-topology.
        state: of `STATES`.
        text: a part of the task's name or of its owner's.
        task: name of the one task.
        sort: of `SORTS`.
    """

    part: str = ""
    state: str = ""
    text: str = ""
    task: str = ""
    sort: str = SORTS[0]

    @classmethod
    def parse(cls, fields: Mapping[str, str]) -> Self:
        """Return the choice of a page's address; an unknown order is the first one."""
        sort = fields.get("sort", SORTS[0])
        return cls(
            fields.get("part", ""),
            fields.get("state", ""),
            fields.get("text", "").strip(),
            fields.get("task", ""),
            sort if sort in SORTS else SORTS[0],
        )

    def applied(self, cells: Iterable[Cell]) -> list[Cell]:
        """Return the chosen cells in order."""
        chosen = [cell for cell in cells if self._takes(cell)]
        match self.sort:
            case "number":
                return chosen
            case "lag":
                return sorted(chosen, key=lambda cell: -cell.lag)
            case "owner":
                return sorted(chosen, key=lambda cell: cell.status.owner or "")
            case _:
                return worst(chosen)

    def _takes(self, cell: Cell) -> bool:
        return (
            (not self.part or cell.part == self.part)
            and (not self.task or cell.task == self.task)
            and (not self.text or self.text in cell.task or self.text in (cell.status.owner or ""))
            and (not self.state or _has_state(cell, self.state))
        )


def _has_state(cell: Cell, state: str) -> bool:
    match state:
        case "held":
            return cell.is_held
        case "not running":
            return cell.style in ("x", "n", "w")
        case "running":
            return cell.style.startswith("l")
        case _:
            return cell.state == state


def worst(cells: Iterable[Cell]) -> list[Cell]:
    """Return cells with the worst first."""
    return sorted(cells, key=lambda cell: cell.badness, reverse=True)


@dataclass(frozen=True, slots=True)
class Group:
    """The chosen tasks of a sub-topology."""

    part: str
    cells: Sequence[Cell]

    @property
    def marks(self) -> Markup:
        """The elements of the cells; 10,000 of them take too long in a template."""
        return Markup("".join([cell.mark for cell in self.cells]))

    @property
    def lag(self) -> int:
        """Lag of all of them."""
        return sum(cell.lag for cell in self.cells)

    @property
    def summary(self) -> str:
        """Numbers of tasks by state, for people."""
        counts = Counter(cell.style for cell in self.cells)
        names = {"x": STOPPED, "n": NO_OWNER, "w": "not running"}
        bad = [f"{counts[style]:,} {name}" for style, name in names.items() if counts[style]]
        return ", ".join([f"{len(self.cells):,} task{'s' * (len(self.cells) != 1)}", *bad])


def groups_of(cells: Iterable[Cell]) -> list[Group]:
    """Return the groups of cells, by name; the order within each stays."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.part, []).append(cell)
    return [Group(part, found[part]) for part in sorted(found)]
