"""The documentation site in a browser: every diagram is drawn, and nothing comes from elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.documents.npm_files import NpmFileMissing
from tests.support.documents.site import build_site, stage, stage_mermaid
from tests.support.processes.browser import Browser
from tests.support.processes.waiting import wait_until

pytestmark = pytest.mark.exhaustive

HEIGHTS = (
    "return [...document.querySelectorAll('.mermaid')].map((d) => [d.tagName, d.offsetHeight])"
)
LOADED = "return performance.getEntriesByType('resource').map((entry) => entry.name)"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pages, built = tmp_path_factory.mktemp("pages"), tmp_path_factory.mktemp("site")
    stage(pages)
    try:
        stage_mermaid(pages)
    except NpmFileMissing as error:
        pytest.skip(str(error))
    build_site(pages, built)
    return built


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_every_diagram_is_drawn_and_nothing_is_loaded_from_elsewhere(
    site: Path, address: str, browser: Browser, tmp_path: Path
) -> None:
    drawn = 0
    for page in sorted(site.rglob("index.html")):
        expected = page.read_text("utf-8").count('class="mermaid"')
        if not expected:
            continue
        name = page.parent.relative_to(site)
        browser.look(1200, 1600)
        browser.open(f"{address}/{name}/")

        def is_drawn(wanted: int = expected) -> bool:
            found = browser.run(HEIGHTS)
            return len(found) == wanted and all(t == "DIV" and h > 80 for t, h in found)

        wait_until(is_drawn, f"the diagrams of {name}")
        browser.screenshot(tmp_path / f"{name.name or 'readme'}.png")
        outside = [url for url in browser.run(LOADED) if not url.startswith(address)]
        assert outside == [], name
        drawn += expected
    assert drawn >= 8
    assert [one for one in browser.complaints if "Syntax error" in one or "refused" in one] == []
