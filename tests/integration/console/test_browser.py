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

from tests.integration.console.test_console import STORE, TOKEN, console_of, started
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
            assert browser.run("return document.documentElement.scrollWidth") <= width, page
            poor = [c for c in browser.run(CONTRAST) if c[0] < SMALLEST_CONTRAST]
            assert not poor, (page, dark, poor)
            told = browser.accessible
            roles = {role for role, _ in told}
            assert {"banner", "navigation", "main", "contentinfo", "heading"} <= roles, page
            nameless = [
                role
                for role, name in told
                if role in ("link", "button", "textbox", "combobox", "img") and not name
            ]
            assert not nameless, (page, nameless)
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
