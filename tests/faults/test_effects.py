"""Effects outside Kafka are journalled: a real service counts them while workers die and hang."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from eosframework.config import KafkaSettings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from tests.support.applications.pipeline import Pipeline, WorkerProcess, number_in, wait_until
from tests.support.processes.commands import here
from tests.support.servers.charging import Charges, charging

RECORDS = 400
PARTITIONS = 4

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  doubled:
    from: numbers
    on_error: ON_ERROR
    steps: [{STEP}]
    to: [{topic: NAME.doubled, value: json}]
  tripled:
    from: numbers
    steps: [{map_values: "tests.support.applications.functions:triple"}]
    to: [{topic: NAME.tripled, value: json}]
"""
HERE = "tests.support.applications.charging"
RETRY = "on_doubt: retry"
LOOK_UP = f'on_doubt: look_up, look_up: "{HERE}:look_up"'
DEAD_LETTER = "on_doubt: dead_letter"
SHORT = ["worker.session_timeout_seconds=6"]

MakePipeline = Callable[..., Pipeline]


def topology(options: str, function: str = "charge", on_error: str = "fail") -> str:
    step = f'call_once: {{call: "{HERE}:{function}", concurrency: 16, {options}}}'
    return TOPOLOGY.replace("STEP", step).replace("ON_ERROR", on_error)


def without_journal() -> str:
    step = f'map_async: {{call: "{HERE}:charge_without_journal", concurrency: 16}}'
    return TOPOLOGY.replace("STEP", step).replace("ON_ERROR", "fail")


def service(charges: Charges) -> dict[str, str]:
    return {"EOS_TEST_SERVICE": charges.url}


def made(make_pipeline: MakePipeline, text: str, partitions: int = PARTITIONS) -> Pipeline:
    """Return a pipeline with its internal topics."""
    pipeline = make_pipeline(topology=text, partitions=partitions)
    server = f"kafka.bootstrap_servers={pipeline.bootstrap_servers}"
    assert here("apply", str(pipeline.topology_file), "--set", server).exit_code == 0
    return pipeline


def killed(
    pipeline: Pipeline, charges: Charges, fault: str, settings: Sequence[str] = ()
) -> WorkerProcess:
    """Process the input with two workers, of which the fault kills one."""
    pipeline.feed(RECORDS)
    supervisor = pipeline.start_worker(
        *("--processes", "2"),
        instance="pair",
        faults=[fault],
        settings=settings,
        until_caught_up=True,
        environment=service(charges),
    )
    assert supervisor.wait() == 0, supervisor.log[-4000:]
    assert supervisor.fired(fault.partition("=")[0])
    return supervisor


def each_once(charges: Charges, numbers: int = RECORDS) -> None:
    assert charges.made == Counter(range(numbers))
    assert all(len(found) == 1 for found in charges.keys.values()), "a key is of one record"


@pytest.mark.parametrize(
    ("fault", "options", "kind"),
    [
        ("transaction.after_produce=kill@1", LOOK_UP, "plain"),
        pytest.param("effects.after_call=kill@3", LOOK_UP, "plain", marks=pytest.mark.exhaustive),
        *(
            pytest.param(f"{point}=kill@{hit}", options, kind, marks=pytest.mark.exhaustive)
            for options, kind in ((RETRY, "keys"), (LOOK_UP, "attempts"))
            for point, hit in (
                ("effects.before_write", 1),
                ("effects.before_write", 3),
                ("effects.after_write", 1),
                ("effects.after_write", 4),
                ("effects.before_call", 1),
                ("effects.before_call", 3),
                ("effects.after_call", 1),
                ("effects.after_call", 40),
                ("transaction.after_send_offsets", 5),
                ("transaction.before_commit", 6),
                ("transaction.after_commit", 7),
                ("ownership.after_entry", 1),
                ("ownership.after_fence", 1),
            )
        ),
    ],
)
def test_a_kill_at_a_step_repeats_no_effect(
    make_pipeline: MakePipeline, fault: str, options: str, kind: str
) -> None:
    with charging(kind) as charges:
        pipeline = made(make_pipeline, topology(options))
        killed(pipeline, charges, fault)
        each_once(charges)
        verdict = pipeline.verify()
    assert verdict.clean, verdict


@pytest.mark.parametrize("fault", ["transaction.after_produce=kill@1"])
def test_without_the_journal_the_same_kill_repeats_effects(
    make_pipeline: MakePipeline, fault: str
) -> None:
    with charging("plain") as charges:
        pipeline = made(make_pipeline, without_journal())
        killed(pipeline, charges, fault)
    assert set(charges.made) == set(range(RECORDS))
    assert max(charges.made.values()) > 1


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "fault",
    [
        "effects.after_call=kill@30",
        "effects.before_call=kill@2",
        "effects.after_write=kill@3",
        "transaction.before_commit=kill@6",
    ],
)
def test_with_a_plain_service_no_effect_is_made_twice_and_each_doubt_is_listed(
    make_pipeline: MakePipeline, fault: str
) -> None:
    with charging("plain") as charges:
        policy = "{dead_letter: NAME.dead}"
        pipeline = made(make_pipeline, topology(DEAD_LETTER, on_error=policy))
        killed(pipeline, charges, fault)
        doubled = Counter(number_in(m) // 2 for m in pipeline.read(f"{pipeline.name}.doubled"))
        dead = Counter(number_in(m) for m in pipeline.read(f"{pipeline.name}.dead"))
    assert max(charges.made.values()) == 1
    assert set(doubled) <= set(charges.made), "an output has an effect"
    assert doubled + dead == Counter(range(RECORDS)), "each record is committed or listed"
    assert len(dead) <= 4 * 16


def zombie_wakes(pipeline: Pipeline, charges: Charges) -> Counter[str]:
    """Suspend a worker between an intent and its call until another one has done its work."""
    point = "effects.before_call"
    zombie = pipeline.start_worker(
        instance="one",
        faults=[f"{point}=stop@3"],
        settings=[*SHORT, "worker.transaction_timeout_seconds=300"],
        environment=service(charges),
    )
    pipeline.feed_until_fault(zombie, point)
    successor = pipeline.start_worker(instance="two", settings=SHORT, environment=service(charges))
    successor.wait_for_event("task_assigned", PARTITIONS)
    wait_until(lambda: pipeline.committed() == pipeline.fed, "the successor's commit")
    zombie.signal(signal.SIGCONT)
    zombie.wait_until_displaced()
    pipeline.feed(RECORDS)
    wait_until(lambda: pipeline.committed() == pipeline.fed, "the rest")
    for worker in (zombie, successor):
        if worker.process.poll() is None:
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0, worker.log[-4000:]
    assert successor.events("effect_in_doubt"), "the zombie had committed intents"
    return Counter(str(event["event"]) for event in zombie.events("effects_left_in_doubt"))


@pytest.mark.exhaustive
@pytest.mark.parametrize(("options", "kind"), [(LOOK_UP, "attempts"), (RETRY, "keys")])
def test_a_zombie_that_wakes_between_intent_and_call_repeats_no_effect(
    make_pipeline: MakePipeline, options: str, kind: str
) -> None:
    with charging(kind) as charges:
        pipeline = made(make_pipeline, topology(options))
        pipeline.feed(RECORDS)
        zombie_wakes(pipeline, charges)
        each_once(charges, pipeline.fed)
        verdict = pipeline.verify()
    assert verdict.clean, verdict


@pytest.mark.exhaustive
def test_a_planned_stop_leaves_no_doubt(make_pipeline: MakePipeline) -> None:
    with charging("plain") as charges:
        policy = "{dead_letter: NAME.dead}"
        pipeline = made(make_pipeline, topology(DEAD_LETTER, on_error=policy))
        pipeline.feed(4000)
        worker = pipeline.start_worker(environment=service(charges))
        wait_until(lambda: charges.calls > 200, "calls")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log[-4000:]
        pipeline.finish(environment=service(charges))
        assert pipeline.read(f"{pipeline.name}.dead") == []
        each_once(charges, 4000)
        verdict = pipeline.verify()
    assert verdict.clean, verdict


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("function", "options", "wanted"),
    [
        ("charge_and_return_a_set", RETRY, "its result cannot be kept: TypeError"),
        ("charge_and_return_much", RETRY, "it has 10,000,002 bytes as JSON, and may have 262,144"),
        (
            "charge_and_fail_at_thirteen",
            f'on_doubt: look_up, look_up: "{HERE}:look_up_nowhere", retry: [100ms]',
            "look_up_nowhere could not tell: ConnectionRefusedError: nothing listens there",
        ),
    ],
)
def test_a_result_or_look_up_that_fails_is_one_message(
    make_pipeline: MakePipeline, function: str, options: str, wanted: str
) -> None:
    with charging("plain") as charges:
        pipeline = made(make_pipeline, topology(options, function), partitions=1)
        pipeline.feed(40)
        first: Any = None
        for _ in range(2):  # The second worker calls nothing again.
            worker = pipeline.start_worker(until_caught_up=True, environment=service(charges))
            assert worker.wait() == 1, worker.log[-4000:]
            assert wanted in worker.log
            assert "Traceback" not in worker.log
            assert not worker.events("transaction_aborted")
            assert first in (None, charges.made)
            first = Counter(charges.made)
    assert max(charges.made.values()) == 1


@pytest.mark.exhaustive
def test_a_call_that_lost_its_answer_is_looked_up(make_pipeline: MakePipeline) -> None:
    with charging("plain") as charges:
        options = f"{LOOK_UP}, retry: [100ms]"
        pipeline = made(make_pipeline, topology(options, "charge_and_fail_at_thirteen"))
        pipeline.feed(40)
        pipeline.finish(environment=service(charges))
        each_once(charges, 40)
        verdict = pipeline.verify()
    assert verdict.clean, verdict


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", ["effects.after_write=kill@6", "effects.after_call=kill@9"])
def test_a_kill_repeats_no_effect_where_each_partition_has_its_id(
    make_pipeline: MakePipeline, fault: str
) -> None:
    with charging("attempts") as charges:
        pipeline = made(make_pipeline, topology(LOOK_UP))
        killed(pipeline, charges, fault, ["worker.ids=partition"])
        each_once(charges)
        verdict = pipeline.verify()
    assert verdict.clean, verdict


@pytest.mark.exhaustive
def test_a_journal_that_was_deleted_is_refused_until_it_is_accepted(
    make_pipeline: MakePipeline,
) -> None:
    with charging("keys") as charges:
        pipeline = made(make_pipeline, topology(RETRY))
        pipeline.feed(40)
        pipeline.finish(environment=service(charges))
        settings = KafkaSettings(bootstrap_servers=pipeline.bootstrap_servers)
        admin = ClusterAdmin(settings)
        topic = f"{pipeline.name}-doubled-effects"
        admin.delete_topics([topic])
        wait_until(lambda: not admin.describe_topics([topic])[topic].exists, "its end")
        command = ("apply", str(pipeline.topology_file))
        server = ("--set", f"kafka.bootstrap_servers={pipeline.bootstrap_servers}")
        refused = here(*command, *server)
        assert refused.exit_code == 2
        assert "It is unknown which effects were made" in refused.error
        assert here(*command, "--accept", topic, *server).exit_code == 0
        pipeline.feed(40)
        pipeline.finish(environment=service(charges))
        each_once(charges, 80)
