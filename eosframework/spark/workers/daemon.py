"""Spark's Python daemon, with the modules of a worker (`spark.python.daemon.module`).

Spark starts one daemon on each executor, with the first task, and forks it for each Python task. So
a worker that is placed on an executor whose daemon runs starts without imports, which take seconds
of processor time.
"""

from __future__ import annotations

from importlib import import_module

PRELOADED = (
    "eosframework.process.supervisor",
    "eosframework.application.composition.worker",
    "eosframework.spark.workers.slot",
)
"""None of them starts a thread or a client at its import."""


def main() -> None:
    """Run the daemon; Spark names the module of its tasks in the first argument."""
    for module in PRELOADED:
        import_module(module)
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
