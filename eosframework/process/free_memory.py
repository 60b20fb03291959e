"""The memory that this process can still get: from its limits, its container and the machine."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path("/")


def free_bytes(root: Path = ROOT) -> int | None:
    """Return the least of what each limit leaves; None: this system reports none.

    Page cache counts as free: the kernel reclaims it before it refuses memory or kills a process.

    Args:
        root: of the file systems /proc and /sys.
    """
    left = [*_of_machine(root), *_of_container(root), *_of_process(root)]
    return max(min(left), 0) if left else None


def _of_machine(root: Path) -> Iterator[int]:
    if (found := _numbers(root / "proc/meminfo").get("MemAvailable:")) is not None:
        yield found * 1024


def _of_container(root: Path) -> Iterator[int]:
    """Yield what cgroups of version 2 leave, this process's own and those above it."""
    with suppress(OSError, ValueError):
        line = (root / "proc/self/cgroup").read_text().splitlines()[-1]
        top = root / "sys/fs/cgroup"
        group = top / line.partition("::")[2].lstrip("/")
        # In a container its own cgroup is mounted as the top.
        for directory in {top, group, *group.parents}:
            if directory.is_relative_to(top):
                yield from _of_cgroup(directory)


def _of_cgroup(directory: Path) -> Iterator[int]:
    with suppress(OSError, ValueError):
        limit = (directory / "memory.max").read_text().strip()
        if limit != "max":
            used = int((directory / "memory.current").read_text())
            cache = _numbers(directory / "memory.stat").get("file", 0)
            yield int(limit) - used + cache


def _of_process(root: Path) -> Iterator[int]:
    """Yield what RLIMIT_DATA (`ulimit -d`) leaves; it counts the stacks of threads as a whole."""
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    used = _numbers(root / "proc/self/status").get("VmData:")
    if limit != resource.RLIM_INFINITY and used is not None:
        yield limit - used * 1024


def _numbers(path: Path) -> dict[str, int]:
    """Return the lines of a file that begin with a name and a number."""
    try:
        words = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {found[0]: int(found[1]) for found in words if len(found) > 1 and found[1].isdigit()}
