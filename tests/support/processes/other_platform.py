"""The command line as another platform's Python would run it, as far as that can be imitated.

python -m tests.support.processes.other_platform PLATFORM ARGUMENT …

`darwin`: there is no prctl, and no program asks for /proc. `win32`: there are also no fork and none
of the modules and signals that only POSIX has.
"""

from __future__ import annotations

import builtins
import os
import signal
import sys
import sysconfig
from pathlib import Path
from typing import Any

_MODULES = ("fcntl", "grp", "pwd", "resource", "termios")
_FUNCTIONS = ("fork", "geteuid", "getuid", "killpg", "setsid")
_SIGNALS = ("SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGSTOP", "pthread_sigmask")


def imitate(platform: str) -> None:
    """Take away what the platform lacks."""
    sysconfig.get_config_vars()  # read once, from a file that the real platform names
    sys.platform = platform
    _refuse_proc()
    if platform == "win32":
        modules: dict[str, Any] = sys.modules
        modules.update(dict.fromkeys(_MODULES))
        for owner, names in ((os, _FUNCTIONS), (signal, _SIGNALS)):
            for name in names:
                delattr(owner, name)


def _refuse_proc() -> None:
    opened = builtins.open

    def open_elsewhere(file: Any, *arguments: Any, **named: Any) -> Any:
        if isinstance(file, (str, Path)) and str(file).startswith("/proc/"):
            raise FileNotFoundError(2, "there is no /proc here", str(file))
        return opened(file, *arguments, **named)

    builtins.open = open_elsewhere


def main() -> None:
    _, platform, *arguments = sys.argv
    imitate(platform)
    sys.argv = ["eosframework", *arguments]
    from eosframework.__main__ import main as run

    run()


if __name__ == "__main__":
    main()
