"""A shell that keeps what was exported, as a reader's terminal does while a page is followed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def blocks(page: Path, language: str = "sh") -> list[str]:
    """What a page has between ```sh and ```."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


class Terminal:
    """Runs blocks of commands, each to its end, in one shell that gives up at the first failure."""

    def __init__(self, shell: subprocess.Popen[str], directory: Path) -> None:
        self._shell = shell
        self._directory = directory
        self._count = 0

    def run(self, block: str) -> str:
        """Return what the commands printed, on either output."""
        self._count += 1
        end = f"<end of block {self._count}>"
        file = self._directory / f"block{self._count}.sh"
        file.write_text(block)
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        # What was printed need not end with a line; the end begins one of its own.
        self._shell.stdin.write(f". {file} < /dev/null; echo; echo '{end}'\n")
        self._shell.stdin.flush()
        printed: list[str] = []
        for line in self._shell.stdout:
            if line.strip() == end:
                return "".join(printed).removesuffix("\n")
            printed.append(line)
        raise AssertionError(f"failed:\n{block}\nwith:\n{''.join(printed)[-6000:]}")


@contextmanager
def terminal(
    working_directory: Path, own_directory: Path, environment: Mapping[str, str]
) -> Iterator[Terminal]:
    """Open a shell in a directory; `own_directory` is for the terminal's files."""
    own_directory.mkdir(exist_ok=True)
    with subprocess.Popen(
        ["bash", "-euo", "pipefail"],
        cwd=working_directory,
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as shell:
        try:
            yield Terminal(shell, own_directory)
        finally:
            shell.kill()
