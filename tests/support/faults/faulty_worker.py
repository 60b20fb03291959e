"""The `eosframework` command with faults armed: EOS_TEST_FAULTS, EOS_TEST_FAULT_DIRECTORY.

With EOS_TEST_UNPROTECTED its producers are as a bare librdkafka's: no straggler is warded off.
With EOS_TEST_STOPPED_CHILDREN those that a supervisor starts stand still before they do anything.
With EOS_TEST_TAKEN_BACK a commit after so many changes of stores is reported and never sent.
With EOS_TEST_BEFORE_JOBS its start looked at the registry before a backfill job was there.
With EOS_TEST_TURN_SECONDS a turn may take that long, and a probe has as long again.
With EOS_TEST_DATA_BYTES it can have that much memory (RLIMIT_DATA, `ulimit -d`).
With EOS_TEST_HEAP it reports its heap into a file in that directory, under its process id.
With EOS_TEST_CLOSED a transaction has that many results of closing windows at most.
With EOS_TEST_WITHOUT a rule of decisions is left out: see `without_rule`.
With EOS_TEST_GROUP_PROTOCOL=consumer it joins groups of KIP-848: see `incremental_group`.
With EOS_TEST_UNTRIMMED its allocator keeps what it would return.
"""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from eosframework import __main__
from eosframework.testing import Fault, arm
from tests.support.faults.heap_report import report_heap


def replace(module: ModuleType, name: str, other: Any) -> None:
    """Give a name of a module another meaning; a name that it has no more is an error."""
    if name not in module.__dict__:
        raise AssertionError(f"{module.__name__} has no {name}: a test would replace nothing")
    setattr(module, name, other)


def without_protection() -> None:
    """Make producers that recycle nothing."""
    from eosframework.kafka import worker_clients
    from eosframework.kafka.producer.producer_pool import ProducerPool

    replace(worker_clients, "ProducerPool", partial(ProducerPool, protection=False))


def with_stopped_children() -> None:
    """Let the children of a supervisor begin with a SIGSTOP to themselves."""
    from eosframework.process.supervisor import Supervisor

    make = Supervisor.__init__

    def make_stopped(self: Supervisor, run_child: Callable[[str], int], *rest: Any) -> None:
        def stand_still(instance: str) -> int:
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
            return run_child(instance)

        make(self, stand_still, *rest)

    setattr(Supervisor, "__init__", make_stopped)  # noqa: B010 - its type differs


def before_jobs() -> None:
    """Let a worker start as one that looked before the job was registered."""
    from eosframework.application import start_checks as guards

    replace(guards, "refuse_unfinished_jobs", lambda *_: None)


def with_a_commit_taken_back(number: int) -> None:
    """Report a commit as done that is never sent, and be killed once stores have its changes.

    The successor's init has its abort markers written, as an administrator may by hand.
    """
    from eosframework.engine.task.open_state import OpenState
    from eosframework.kafka.producer.transactional import TransactionalProducer
    from eosframework.kafka.taxonomy import Call
    from eosframework.transactions import failpoints

    of_librdkafka, of_stores = TransactionalProducer._call, OpenState.changelog
    changed = 0

    def changelog(self: OpenState, stream_time: int) -> Any:
        nonlocal changed
        outputs = of_stores(self, stream_time)
        changed += bool(outputs)
        return outputs

    def call(self: TransactionalProducer, call: Call, *rest: Any, **options: Any) -> Any:
        if call is not Call.COMMIT or changed < number:
            return of_librdkafka(self, call, *rest, **options)
        failpoints.arm("state.after_write", lambda _: os.kill(os.getpid(), signal.SIGKILL))
        return None

    setattr(OpenState, "changelog", changelog)  # noqa: B010 - its type differs
    setattr(TransactionalProducer, "_call", call)  # noqa: B010 - its type differs


def with_short_turns(seconds: float) -> None:
    """Let the worker count as stuck early; the sum of all timeouts takes minutes."""
    from eosframework.application.composition import worker_start as runtime

    replace(runtime, "turn_seconds", lambda _: seconds)
    replace(runtime, "PROBE_SECONDS", seconds)


def with_few_results(number: int) -> None:
    """Let a transaction take few results of what is due."""
    from eosframework.engine.task import task_windows

    replace(task_windows, "MOST_STEPS", number)


def without_rule(rule: str) -> None:
    """Leave a rule of decisions out (`engine/worker/settlement`, ADR 33).

    Args:
        rule: `replay`: V6 produces nothing again. `comparison`: V6 compares nothing, and always
            does. `fence`: V2 checks neither epoch nor offsets. `others`: V4 to V6 are done for the
            own ids only.
    """
    from eosframework.engine.worker import settlement
    from eosframework.postgres.database.tables import decisions

    match rule:
        case "replay":
            replace(settlement, "_is_before", lambda *_: False)
        case "comparison":
            replace(settlement, "_is_before", lambda *_: True)
        case "fence":
            decide = decisions._queries.decide

            def decide_under_any_epoch(connection: Any, **given: Any) -> Any:
                return decide(connection, **given) or given["epoch"]

            decisions._queries.decide = decide_under_any_epoch
            decisions._queries.advance_offsets = lambda _, *, topics, partitions, **given: zip(
                topics, partitions, strict=True
            )
        case "others":
            setattr(settlement.Settlement, "settle_others", lambda *_: None)  # noqa: B010
        case _:
            raise AssertionError(f"there is no rule {rule!r}")


def without_trimming() -> None:
    """Let the allocator keep freed memory."""
    from eosframework.process import memory as allocator

    replace(allocator, "_malloc_trim", None)
    replace(allocator, "_mallopt", None)


def main() -> None:
    """Run the command line with what the environment asks for.

    Imports that take long are left to the command, which a Ctrl-C ends without a traceback.
    """
    texts = [text for text in os.environ.get("EOS_TEST_FAULTS", "").split(";") if text]
    arm((Fault.parse(text) for text in texts), Path(os.environ["EOS_TEST_FAULT_DIRECTORY"]))
    if "EOS_TEST_UNPROTECTED" in os.environ:
        without_protection()
    if "EOS_TEST_STOPPED_CHILDREN" in os.environ:
        with_stopped_children()
    if number := os.environ.get("EOS_TEST_TAKEN_BACK"):
        with_a_commit_taken_back(int(number))
    if "EOS_TEST_BEFORE_JOBS" in os.environ:
        before_jobs()
    if seconds := os.environ.get("EOS_TEST_TURN_SECONDS"):
        with_short_turns(float(seconds))
    if number := os.environ.get("EOS_TEST_CLOSED"):
        with_few_results(int(number))
    if rule := os.environ.get("EOS_TEST_WITHOUT"):
        without_rule(rule)
    if os.environ.get("EOS_TEST_GROUP_PROTOCOL") == "consumer":
        from tests.support.faults.incremental_group import join_incrementally

        join_incrementally()
    if "EOS_TEST_UNTRIMMED" in os.environ:
        without_trimming()
    if data_bytes := os.environ.get("EOS_TEST_DATA_BYTES"):
        resource.setrlimit(resource.RLIMIT_DATA, (int(data_bytes), int(data_bytes)))
    if directory := os.environ.get("EOS_TEST_HEAP"):
        report_heap(Path(directory))
    __main__.main()


if __name__ == "__main__":
    main()
