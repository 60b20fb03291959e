"""Free memory is the least that the machine, its containers and the process's limit leave."""

from __future__ import annotations

import resource
from pathlib import Path

import psutil
import pytest

from eosframework.process.memory import free_bytes

MIB = 2**20


def test_this_machine_has_free_memory() -> None:
    found = free_bytes()
    assert found is not None
    assert 0 < found <= psutil.virtual_memory().total


def test_without_any_report_it_is_unknown(tmp_path: Path) -> None:
    assert free_bytes(tmp_path) is None


def system(root: Path, *, available_mib: int, groups: dict[str, tuple[str, int, int]]) -> Path:
    """Write what a system reports: of each cgroup its limit, and MiB in use and of page cache."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(
        f"MemTotal: 99999999 kB\nMemAvailable: {available_mib * 1024} kB\nHugePages_Free: 0\n"
    )
    (root / "proc/self/cgroup").write_text("1:name=systemd:/x\n0::/pod/container\n")
    for name, (limit, used_mib, cache_mib) in groups.items():
        directory = root / "sys/fs/cgroup" / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "memory.max").write_text(f"{limit}\n")
        (directory / "memory.current").write_text(f"{used_mib * MIB}\n")
        (directory / "memory.stat").write_text(f"anon 5\nfile {cache_mib * MIB}\n")
    return root


@pytest.mark.parametrize(
    ("groups", "left_mib"),
    [
        ({}, 900),
        ({"pod/container": ("max", 300, 0)}, 900),
        ({"pod/container": (str(500 * MIB), 300, 100)}, 300),
        ({"pod": (str(400 * MIB), 300, 0), "pod/container": (str(500 * MIB), 300, 0)}, 100),
        # In a container its own cgroup is the top, whatever path /proc has.
        ({"": (str(256 * MIB), 56, 0)}, 200),
        ({"": (str(256 * MIB), 300, 0)}, 0),
    ],
)
def test_the_least_limit_counts_and_page_cache_does_not(
    tmp_path: Path, groups: dict[str, tuple[str, int, int]], left_mib: int
) -> None:
    assert free_bytes(system(tmp_path, available_mib=900, groups=groups)) == left_mib * MIB


def test_the_limit_of_the_process_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = system(tmp_path, available_mib=900, groups={})
    (root / "proc/self/status").write_text("VmPeak:\t 9 kB\nVmData:\t 204800 kB\n")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (250 * MIB, 250 * MIB))
    assert free_bytes(root) == 50 * MIB
