"""Debian's Chromium, driven over W3C WebDriver: JSON over HTTP, for which a client is few lines.

Packages `chromium` and `chromium-driver` are installed where they are missing and this process is
root's (servers/debian_packages.py).
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.support.processes.waiting import wait_until
from tests.support.servers.debian_packages import require_programs

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
PROGRAMS = {"chromium": "chromium", "chromedriver": "chromium-driver"}
KEYS = {
    "Tab": "\ue004",
    "Enter": "\ue007",
    "Escape": "\ue00c",
    "ArrowRight": "\ue014",
    "ArrowDown": "\ue015",
}


class Browser:
    """A browser window.

    Args:
        port: of the driver.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        arguments = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        options = {"binary": "/usr/bin/chromium", "args": [*arguments, "--disable-extensions"]}
        wanted: dict[str, Any] = {"alwaysMatch": {"goog:chromeOptions": options}}
        wanted["alwaysMatch"]["goog:loggingPrefs"] = {"browser": "ALL"}
        self._session = self._call("POST", "/session", {"capabilities": wanted})["sessionId"]

    def open(self, url: str) -> None:
        self._ask("/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """Return what a script in the page returns."""
        return self._ask("/execute/sync", {"script": script, "args": list(arguments)})

    @property
    def text(self) -> str:
        return str(self.run("return document.body.innerText"))

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.text, f"{text!r} in the browser")

    def press(self, key: str) -> None:
        """Press a key, for whatever has the focus."""
        code = KEYS.get(key, key)
        pressed = [{"type": "keyDown", "value": code}, {"type": "keyUp", "value": code}]
        self._ask("/actions", {"actions": [{"type": "key", "id": "keys", "actions": pressed}]})

    def devtools(self, command: str, **parameters: Any) -> Any:
        """Return what a command of the DevTools protocol returns."""
        return self._ask("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """Show pages in a window of this size, in dark mode or not."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, file: Path) -> None:
        """Write what the window shows, as PNG."""
        file.write_bytes(
            base64.b64decode(self._call("GET", f"/session/{self._session}/screenshot"))
        )

    @property
    def complaints(self) -> list[str]:
        """What the browser has logged: script errors, and what the content policy has refused."""
        return [entry["message"] for entry in self._ask("/se/log", {"type": "browser"})]

    @property
    def accessible(self) -> list[tuple[str, str]]:
        """Role and name of each node that a screen reader is told."""
        nodes = self.devtools("Accessibility.getFullAXTree")["nodes"]
        return [
            (node.get("role", {}).get("value", ""), node.get("name", {}).get("value", ""))
            for node in nodes
            if not node.get("ignored")
        ]

    def close(self) -> None:
        self._call("DELETE", f"/session/{self._session}")

    def _ask(self, path: str, content: Mapping[str, Any]) -> Any:
        return self._call("POST", f"/session/{self._session}{path}", content)

    def _call(self, method: str, path: str, content: Mapping[str, Any] | None = None) -> Any:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=120)
        try:
            body = None if content is None else json.dumps(content)
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = json.loads(connection.getresponse().read())["value"]
        finally:
            connection.close()
        if isinstance(answer, dict) and "error" in answer:
            raise AssertionError(f"{path}: {answer['error']}: {answer['message']}")
        return answer


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Run a browser for the length of the block.

    Raises:
        ConfigurationError: Chromium is missing and cannot be installed.
    """
    require_programs(PROGRAMS)
    with (
        # Chromium leaves directories behind, and ends a moment after its driver.
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryFile("w+") as out,
    ):
        own = os.environ | {"TMPDIR": folder, "HOME": folder}
        driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=out, stderr=out, env=own)
        try:
            ports: list[int] = []

            def listens() -> bool:
                out.seek(0)
                ports[:] = map(int, re.findall(r"successfully on port (\d+)", out.read()))
                assert driver.poll() is None, "the driver of Chromium ended"
                return bool(ports)

            wait_until(listens, "a driver of Chromium")
            browser = Browser(ports[0])
            try:
                yield browser
            finally:
                browser.close()
        finally:
            driver.terminate()
            driver.wait()
