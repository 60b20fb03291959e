"""`make audit-dependencies` asks for every locked package, and fails for one that is vulnerable.

The feed is written by hand in OSV's format and served on this machine: which real advisories there
are today is for a run with a real feed to say.
"""

from __future__ import annotations

import http.server
import json
import re
import shlex
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes.programs import REPOSITORY

VULNERABLE = "orjson"
PINS = dict(
    re.findall(
        r"^([a-z0-9-]+)==(\S+)",
        (REPOSITORY / "requirements" / "users.lock").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
)
ADVISORY = {
    "id": "PYSEC-0000-1",
    "summary": "a made-up advisory",
    "affected": [
        {
            "package": {"name": VULNERABLE, "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "9999"}]}],
        }
    ],
}


@contextmanager
def feed(answers: dict[str, Any], *, status: int = 200) -> Generator[tuple[str, dict[str, str]]]:
    """Serve advisories by name of a package; give the address and what was asked for."""
    asked: dict[str, str] = {}

    class Feed(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            name = query["package"]["name"]
            asked[name] = query["version"]
            content = json.dumps(answers.get(name, {})).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Feed) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1/query", asked
        finally:
            server.shutdown()


def audit(address: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """Run what the target runs, without what makes the environment."""
    options = f"--vulnerability-service osv --osv-url {address} --cache-dir {cache}"
    dry = ["make", "--no-print-directory", "--dry-run", "--assume-old=.venv/complete"]
    shown = subprocess.run(
        [*dry, "audit-dependencies", f"AUDIT={options}"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    [command] = shown.stdout.replace("\\\n", " ").splitlines()
    return subprocess.run(
        shlex.split(command), cwd=REPOSITORY, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize(
    ("answers", "exit_code", "said"),
    [({}, 0, "No known vulnerabilities"), ({VULNERABLE: {"vulns": [ADVISORY]}}, 1, "PYSEC-0000-1")],
    ids=["clean", "vulnerable"],
)
def test_every_locked_package_is_asked_for_and_a_vulnerable_one_fails(
    answers: dict[str, Any], exit_code: int, said: str, tmp_path: Path
) -> None:
    with feed(answers) as (address, asked):
        done = audit(address, tmp_path)
    assert done.returncode == exit_code, done.stderr
    assert said in done.stdout + done.stderr
    assert len(asked) > 100
    assert (
        asked.items()
        >= {VULNERABLE: PINS[VULNERABLE], "confluent-kafka": PINS["confluent-kafka"]}.items()
    )


def test_a_feed_that_fails_is_no_clean_bill(tmp_path: Path) -> None:
    with feed({}, status=500) as (address, _):
        assert audit(address, tmp_path).returncode != 0
