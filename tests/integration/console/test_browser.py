"""The console in a real browser: live pages, keyboard, screen reader, narrow screens, dark mode.

Chromium is Debian's; tests/support/processes/browser.py installs it where it is missing.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.integration.console.test_console import REPLAYED, STORE, TOKEN, console_of, started
from tests.support.applications.pipeline import Pipeline, wait_until
from tests.support.applications.totals import Totals
from tests.support.processes.browser import PROGRAMS, Browser
from tests.support.verifiers.asked import wait_until_ready

PAGES = (
    "overview",
    "topology",
    "tasks",
    "transactions",
    "state",
    "dead-letters",
    "backfills",
    "positions",
    "why",
)

SCREENSHOTS = "EOS_TEST_SCREENSHOTS"
"""Variable with a directory for the screenshots of docs/howto/console.md; unset: they are lost."""

SMALLEST_CONTRAST = 4.5
"""Of WCAG 2.1, level AA."""

CONTRAST = """
const light = (color) => {
  const [r, g, b] = color.match(/[\\d.]+/g).map((v) => {
    const c = Number(v) / 255;
    return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = (element) => {
  for (let e = element; e; e = e.parentElement) {
    const c = getComputedStyle(e).backgroundColor;
    if (c !== "rgba(0, 0, 0, 0)") return c;
  }
  return "rgb(255, 255, 255)";
};
return [...document.querySelectorAll("a, p, th, td, li, h1, h2, h3, label, button, dt, dd")]
  .filter((e) => !e.closest("svg") && e.offsetParent !== null && e.innerText.trim())
  .map((e) => {
    const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), e.innerText.slice(0, 40)];
  });
"""


@pytest.fixture
def screenshots(tmp_path: Path) -> Path:
    chosen = os.environ.get(SCREENSHOTS)
    return Path(chosen) if chosen else tmp_path


@pytest.mark.skipif(
    any(shutil.which(program) is None for program in PROGRAMS),
    reason="no Chromium here; `apt-get install chromium chromium-driver` brings one, and "
    "`make test-all` installs it",
)
def test_a_live_page_draws_the_topology_and_follows_the_cluster(
    make_pipeline: Callable[..., Totals], browser: Browser
) -> None:
    totals = make_pipeline(Totals, partitions=1)
    with console_of(totals) as console:
        browser.open(f"http://{console.address}/")
        browser.wait_for("Not well: no process runs transforms")
        browser.open(f"http://{console.address}/topology")
        browser.wait_for("0 members, 3 tasks, lag 0")
        totals.feed(10)
        browser.wait_for("lag 10")
        nodes = "return document.querySelectorAll('#graph .node').length"
        wait_until(lambda: browser.run(nodes) >= 8, "the graph is laid out and drawn")
        console.process.kill()
        console.process.wait()
        browser.wait_for("The console does not answer")


def test_the_page_of_an_output_shows_its_input_and_runs_its_functions_again(
    make_pipeline: Callable[..., Pipeline], browser: Browser
) -> None:
    pipeline = make_pipeline(partitions=1)
    pipeline.feed(20)
    worker = pipeline.start_worker(until_caught_up=True, settings=["worker.receipts=true"])
    assert worker.wait() == 0
    place = f"{next(iter(pipeline.outputs))}[0]@5"
    with console_of(pipeline, "--allow-changes", token=TOKEN) as console:
        browser.open(f"http://{console.address}/why")
        browser.wait_for("Sign in")
        for character in TOKEN:
            browser.press(character)
        browser.press("Enter")
        browser.wait_for("Where an output came from")
        for width in (1400, 400):
            browser.look(width, 800)
            browser.open(f"http://{console.address}/why")
            browser.run("document.getElementById('place').focus()")
            browser.run("document.getElementById('place').value = arguments[0]", place)
            browser.press("Enter")
            browser.wait_for(f"{pipeline.name}.in[0]@")
            assert browser.run("return document.documentElement.scrollWidth") <= width
        browser.run("[...document.querySelectorAll('button')].at(-1).click()")
        browser.wait_for("The functions give this record again, byte for byte.")
        browser.open(f"http://{console.address}/why?place=nothing")
        browser.wait_for("is not the place of a record")


def require_usable(browser: Browser, width: int, page: str) -> None:
    """Fail unless a page fits its width, can be read, and names what a screen reader meets."""
    assert browser.run("return document.documentElement.scrollWidth") <= width, page
    poor = [c for c in browser.run(CONTRAST) if c[0] < SMALLEST_CONTRAST]
    assert not poor, (page, poor)
    told = browser.accessible
    roles = {role for role, _ in told}
    assert {"banner", "navigation", "main", "contentinfo", "heading"} <= roles, page
    nameless = [
        role
        for role, name in told
        if role in ("link", "button", "textbox", "combobox", "img") and not name
    ]
    assert not nameless, (page, nameless)


def press_until(browser: Browser, key: str, focused: str) -> None:
    """Press a key until the element whose text or id is `focused` has the focus."""
    shown = "const e = document.activeElement; return [e.id, e.innerText]"
    for _ in range(60):
        browser.press(key)
        if focused in browser.run(shown):
            return
    raise AssertionError(f"{focused!r} is not reached with {key}")


@pytest.mark.exhaustive
@pytest.mark.parametrize(("width", "dark"), [(400, True), (1400, False)])
def test_changes_are_made_by_keyboard_on_narrow_and_wide_screens(
    make_pipeline: Callable[..., Pipeline], browser: Browser, width: int, dark: bool
) -> None:
    pipeline = make_pipeline(topology=REPLAYED, partitions=1, outputs={"doubled": 2})
    pipeline.apply()
    producer = Producer({"bootstrap.servers": pipeline.bootstrap_servers})
    producer.produce(pipeline.source, b"no JSON", b"1", 0)
    assert producer.flush(60) == 0
    pipeline.feed(1)
    pipeline.finish()
    with console_of(pipeline, "--allow-changes", token=TOKEN) as console:
        browser.look(width, 800, dark=dark)
        browser.open(f"http://{console.address}/dead-letters")
        browser.wait_for("Sign in")
        require_usable(browser, width, "sign-in")
        for character in "some other token":
            browser.press(character)
        browser.press("Enter")
        browser.wait_for("is not the console's token")
        require_usable(browser, width, "sign-in, refused")
        for character in TOKEN:
            browser.press(character)
        browser.press("Enter")
        browser.wait_for("Plan a replay of all")
        press_until(browser, "Tab", "Plan a replay of all")
        browser.press("Enter")
        browser.wait_for("1 dead letters would be replayed")
        require_usable(browser, width, "change")
        press_until(browser, "Tab", "Do this")
        browser.press("Enter")
        browser.wait_for("1 replayed")
        assert "/jobs/" in browser.run("return location.pathname")
        require_usable(browser, width, "job")
        browser.open(f"http://{console.address}/audit")
        browser.wait_for("An audit checks")
        require_usable(browser, width, "audit")
        press_until(browser, "Tab", "outputs")
        browser.press(" ")
        press_until(browser, "Tab", "Plan a reset of the stopped application")
        browser.press("Enter")
        browser.wait_for("delete all records of topic")
        require_usable(browser, width, "reset")
        press_until(browser, "Tab", "Do this")
        browser.press("Enter")
        browser.wait_for("done; create its topics again")
        require_usable(browser, width, "job of a reset")


@pytest.mark.exhaustive
def test_pages_work_by_keyboard_for_screen_readers_narrow_dark_and_through_a_kill(
    make_pipeline: Callable[..., Totals], browser: Browser, screenshots: Path
) -> None:
    totals = make_pipeline(Totals, partitions=2)
    totals.feed(500)
    worker, address = started(totals, "one")
    _, other = started(totals, "two")
    wait_until_ready(address)
    wait_until(lambda: totals.committed() >= 500, "all input committed")
    with console_of(totals, "--ask", address, "--ask", other) as console:
        console.wait_for("/tasks", "running")
        base = f"http://{console.address}"
        for page, (width, dark) in itertools.product(PAGES, ((1400, False), (390, True))):
            browser.look(width, 900, dark=dark)
            browser.open(f"{base}/{page}")
            browser.wait_for("Times are UTC")
            require_usable(browser, width, page)
        browser.look(1400, 460)
        browser.open(f"{base}/topology")
        browser.wait_for("2 members, 6 tasks")

        browser.press("Tab")
        assert browser.run("return document.activeElement.className") == "skip"
        for _ in range(4):
            browser.press("Tab")
        assert browser.run("return document.activeElement.innerText") == "Tasks"
        browser.press("Enter")
        browser.wait_for("Takeovers")

        linked = "const a = document.querySelector('tbody a'); a.focus(); return a.innerText"
        focused = browser.run(linked)
        worker.signal(signal.SIGKILL)
        worker.wait()
        browser.wait_for("no process of eosframework answers there")
        browser.wait_for(f"→ {totals.name}.two")
        assert browser.run("return document.activeElement.innerText") == focused, "focus stays"
        browser.run("document.querySelector('tbody td a').focus()")
        browser.press("Enter")
        browser.wait_for("Committed, began")
        browser.screenshot(screenshots / "console-trace.png")
        browser.look(1400, 900, dark=True)
        browser.open(f"{base}/state?store={STORE}&scan=1&source=changelog")
        browser.wait_for('"count"')
        browser.screenshot(screenshots / "console-state-dark.png")
        complaints = [one for one in browser.complaints if base in one]
        assert not complaints, "no script fails, and the content policy refuses nothing"
