"""The `eosframework` command with faults armed: EOS_TEST_FAULTS, EOS_TEST_FAULT_DIRECTORY.

With EOS_TEST_UNPROTECTED its producers are as a bare librdkafka's: no straggler is warded off.
With EOS_TEST_GROUP it is a member of that group, as a program would be that took over its ids.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from eosframework import runtime
from eosframework.cli import main
from eosframework.kafka.group import GroupSettings
from eosframework.kafka.outputs import KafkaOutputs
from eosframework.testing import Fault, arm

if __name__ == "__main__":
    texts = [text for text in os.environ.get("EOS_TEST_FAULTS", "").split(";") if text]
    arm((Fault.parse(text) for text in texts), Path(os.environ["EOS_TEST_FAULT_DIRECTORY"]))
    if "EOS_TEST_UNPROTECTED" in os.environ:
        vars(runtime)["KafkaOutputs"] = partial(KafkaOutputs, protection=False)
    if group := os.environ.get("EOS_TEST_GROUP"):
        of_application = GroupSettings.properties
        GroupSettings.properties = lambda self: {**of_application(self), "group.id": group}
    main()
