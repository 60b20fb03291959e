"""Files of stores that are cut, changed or gone: a rebuild that says so, never a wrong entry."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from eosframework.errors import StateDamaged
from eosframework.state import manifest
from eosframework.state.store_directories import LOCK
from tests.support.applications.pipeline import wait_until
from tests.support.applications.store_writer import (
    APPLICATION,
    Expected,
    backend,
    open_task,
    write_step,
)
from tests.support.applications.stores import TASK, content

STEPS = 80
STEPS_IN_FILES = 65


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores as a killed process left them: some in files, the rest in the log of writes."""
    root = tmp_path_factory.mktemp("written")
    state = backend(root)
    stores = open_task(state)
    for step in range(STEPS_IN_FILES):
        write_step(stores, step)
    stores.start_flush()
    wait_until(
        lambda: len(files(root, ".log")) == 1 and all(s.disk_bytes for s in stores.stats()),
        "stores in files",
    )
    for step in range(STEPS_IN_FILES, STEPS):
        write_step(stores, step)
    killed = tmp_path_factory.mktemp("killed")
    shutil.copytree(root, killed, dirs_exist_ok=True)
    state.close()
    assert files(killed, ".sst")
    assert sum(file.stat().st_size for file in files(killed, ".log")) > 100_000
    return killed


@pytest.fixture
def copy(written: Path, tmp_path: Path) -> Callable[[], Path]:
    """Copies of these stores, to be damaged."""
    made = iter(range(10_000))

    def make() -> Path:
        root = tmp_path / str(next(made))
        shutil.copytree(written, root)
        return root

    return make


def directory_of(root: Path) -> Path:
    return root / APPLICATION / TASK / "host.0"


def files(root: Path, ending: str) -> list[Path]:
    return sorted(directory_of(root).glob(f"*{ending}"))


def is_whole_at_its_position(root: Path) -> int | None:
    """Open stores, compare them with their position, and return that."""
    state = backend(root)
    stores = open_task(state)
    position = stores.position("counts")
    expected = Expected()
    expected.advance(position or 0)
    assert expected.matches(stores)
    state.close()
    return position


def test_a_log_that_lost_its_end_sets_content_and_position_back_together(
    copy: Callable[[], Path],
) -> None:
    draw = random.Random(1)
    positions: set[int] = set()
    for _ in range(25):
        root = copy()
        log = files(root, ".log")[-1]
        os.truncate(log, draw.randrange(log.stat().st_size))
        with capture_logs() as events:
            position = is_whole_at_its_position(root)
        assert position is not None
        assert not [e for e in events if e["event"] == "state_discarded"]
        positions.add(position)
    assert len(positions) > 10
    assert max(positions) <= STEPS


def test_a_log_that_is_gone_leaves_all_stores_at_one_position(copy: Callable[[], Path]) -> None:
    root = copy()
    for log in files(root, ".log"):
        log.unlink()

    position = is_whole_at_its_position(root)

    assert position is not None
    assert position < STEPS


def test_a_changed_bit_is_never_read_as_an_entry(copy: Callable[[], Path]) -> None:
    draw = random.Random(2)
    outcomes: dict[str, set[str]] = {".sst": set(), ".log": set(), "MANIFEST-*": set()}
    for kind in [kind for kind in outcomes for _ in range(14)]:
        root = copy()
        file = draw.choice([file for file in files(root, kind) if file.stat().st_size])
        change_a_bit(file, draw.randrange(file.stat().st_size))
        outcomes[kind].add(outcome(root))
    assert {result for results in outcomes.values() for result in results} <= {
        "whole",
        "set back",
        "discarded",
        "damaged",
    }
    assert {"discarded", "damaged"} & outcomes[".sst"]
    assert "set back" in outcomes[".log"]


def test_a_manifest_that_ends_within_a_record_is_told_before_it_is_used(
    copy: Callable[[], Path],
) -> None:
    root = copy()
    [path] = files(root, "MANIFEST-*")
    content = path.read_bytes()
    whole: list[int] = []
    for size in range(len(content), 0, -1):
        path.write_bytes(content[:size])
        if manifest.torn(directory_of(root)) is None:
            whole.append(size)
    assert whole[0] == len(content)
    assert len(whole) < len(content) / 10, "only where a record ends"


def outcome(root: Path) -> str:
    """Return what became of damaged stores; anything else is a failure."""
    try:
        with capture_logs() as events:
            position = is_whole_at_its_position(root)
    except StateDamaged as error:
        return "damaged" if str(directory_of(root)) in str(error) else "not named"
    if [event for event in events if event["event"] == "state_discarded"]:
        assert position is None
        return "discarded"
    return "whole" if position == STEPS else "set back"


def change_a_bit(file: Path, offset: int) -> None:
    content = bytearray(file.read_bytes())
    content[offset] ^= 0x10
    file.write_bytes(content)


def test_a_read_that_meets_damage_names_the_directory_and_the_remedy(
    copy: Callable[[], Path],
) -> None:
    root = copy()
    state = backend(root)
    stores = open_task(state)
    for file in files(root, ".sst"):
        file.write_bytes(bytes(file.stat().st_size))

    with pytest.raises(StateDamaged, match=f"{directory_of(root)}.*Remove that directory") as read:
        content(stores.store("counts"))
    assert "rebuilt" in str(read.value)
    with pytest.raises(StateDamaged, match="Remove that directory"):
        [stores.store("counts").get(b"%06d" % n) for n in range(3000)]
    state.close()


def drop(file: Path) -> None:
    file.unlink()


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def scribble(file: Path) -> None:
    file.write_bytes(b"scribble")


def no_bytes(file: Path) -> None:
    file.write_bytes(b"")


@pytest.mark.parametrize("damage", [drop, cut, scribble, no_bytes], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", ["*.sst", "MANIFEST-*", "CURRENT"])
def test_files_that_cannot_be_opened_are_discarded_and_the_store_begins_empty(
    copy: Callable[[], Path], name: str, damage: Callable[[Path], None]
) -> None:
    root = copy()
    for file in directory_of(root).glob(name):
        damage(file)

    with capture_logs() as events:
        state = backend(root)
        stores = open_task(state)

    [event] = [event for event in events if event["event"] == "state_discarded"]
    assert event["log_level"] == "warning"
    assert event["directory"] == str(directory_of(root))
    assert event["store"] == "all"
    assert event["reason"]
    assert stores.position("counts") is None
    assert content(stores.store("counts")) == {}
    write_step(stores, 0)
    state.close()
    assert is_whole_at_its_position(root) == 1
    assert [path.name for path in directory_of(root).parent.iterdir()] == ["host.0"]


@pytest.mark.parametrize(
    "name", ["OPTIONS-*", "IDENTITY", "LOG*", "rocksdict-config.json", LOCK, "LOCK"]
)
def test_files_that_hold_no_data_are_not_needed(copy: Callable[[], Path], name: str) -> None:
    root = copy()
    for file in directory_of(root).glob(name):
        scribble(file)

    assert is_whole_at_its_position(root) == STEPS
