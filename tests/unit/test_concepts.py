"""The pages of concepts: what they say of an example is what the code does."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

from eosframework.testing import TopologyTestDriver

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "concepts"


def at(time: str) -> datetime:
    return datetime.fromisoformat(f"2026-03-01T{time}:00+00:00")


def test_the_windows_of_the_page_close_as_its_table_says() -> None:
    text = (FOLDER / "windows.md").read_text(encoding="utf-8")
    [program] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    rows = re.findall(r"^\| (\w) \| (\S+) \| (\S+) \| (.*) \|$", text, re.MULTILINE)
    assert [row[0] for row in rows] == ["a", "b", "c", "d", "e"]
    names: dict[str, Any] = {}
    exec(program, names)
    driver = TopologyTestDriver(names["app"])
    latest = at("00:00")
    for name, time, stream_time, effect in rows:
        driver.send("clicks", {"page": "/", "name": name}, timestamp=at(time))
        driver.run()
        latest = max(latest, at(time))
        assert latest == at(stream_time)
        closed = [record.value for record in driver.read("clicks.hourly")]
        late = [record.value for record in driver.read("clicks.late")]
        assert bool(closed) == ("closes" in effect), name
        assert len(late) == ("too late" in effect), name
        for window in closed:
            assert (window["start"], window["value"]) == (at("10:00").timestamp() * 1000, 2)


def test_every_page_has_a_picture_and_says_where_the_tests_or_details_are() -> None:
    pages = sorted(FOLDER.glob("*.md"))
    assert len(pages) == 8
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert "```mermaid\n" in text, page
        assert re.search(r"\]\(\.\./", text), page


def test_the_code_logs_every_event_of_the_page() -> None:
    root = FOLDER.parents[1]
    page = (root / "docs" / "reference" / "events.md").read_text(encoding="utf-8")
    events = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert len(events) > 10
    code = "".join(
        file.read_text(encoding="utf-8") for file in (root / "eosframework").rglob("*.py")
    )
    assert not [event for event in events if f'"{event}"' not in code]
