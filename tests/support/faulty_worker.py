"""The `eosframework` command with faults armed: EOS_TEST_FAULTS, EOS_TEST_FAULT_DIRECTORY."""

from __future__ import annotations

import os
from pathlib import Path

from eosframework.cli import main
from eosframework.testing import Fault, arm

if __name__ == "__main__":
    texts = [text for text in os.environ.get("EOS_TEST_FAULTS", "").split(";") if text]
    arm((Fault.parse(text) for text in texts), Path(os.environ["EOS_TEST_FAULT_DIRECTORY"]))
    main()
