"""The record once more, under Python's debugger."""

from __future__ import annotations

import pdb

from eosframework.operations.why.explanation import Explanation
from eosframework.operations.why.scene import Scene
from eosframework.topology.graph.code_places import breakpoints_of
from eosframework.topology.graph.walk import nodes_of


def debug(scene: Scene, found: Explanation) -> None:
    """Run a record in pdb, which stops at the first line of each function of its steps.

    Raises:
        RecordFailed: a function fails, and its policy is to fail.
    """
    debugger = pdb.Pdb(nosigint=True)
    names = {step.name for step in found.steps}
    nodes = [node for node in nodes_of(scene.code.part) if node.name in names]
    for file, line, function in breakpoints_of(nodes):
        debugger.set_break(file, line, funcname=function)
    # `runcall` stops at its first line, which is not the user's.
    debugger.rcLines.append("continue")
    debugger.runcall(scene.outputs)
