"""Every benchmark runs, with all its contestants, at the smallest size at which it can measure."""

from __future__ import annotations

import sys
from pathlib import Path

import orjson
import pytest

from benchmarks.__main__ import BENCHMARKS
from tests.support.processes.programs import RunningProgram, start_command

DEFAULT_RECORDS = 200_000
"""With fewer a fast contestant is done within one commit."""

RECORDS = {
    **dict.fromkeys(("batch", "operators", "stages", "stores", "watermarks"), 20_000),
    # Runs for 4 s, however fast it is.
    "eos-vs-alo": 1_000_000,
}
LONGEST_SECONDS = 3600


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(LONGEST_SECONDS + 60)
@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_runs_at_its_smallest_size(name: str, tmp_path: Path) -> None:
    size = ["--records", str(RECORDS.get(name, DEFAULT_RECORDS)), "--rounds=1", "--seconds=1"]
    command = [sys.executable, "-m", "benchmarks", name, *size, "--out", str(tmp_path)]
    log = tmp_path / "log"
    program = RunningProgram(start_command(command, out=log), log)
    try:
        code = program.wait(LONGEST_SECONDS)
    finally:
        program.process.terminate()
        program.process.wait()
    # `check` judges costs, which the other tests on this machine change.
    assert code in ((0, 1) if name == "check" else (0,)), program.log
    assert " is absent" not in program.log
    results = orjson.loads((tmp_path / "results.json").read_bytes())
    assert results
    assert all(result["rows"] for result in results.values())
    text = (tmp_path / "results.json").read_text()
    assert text.count('"absent":') == text.count('"absent": {}')
