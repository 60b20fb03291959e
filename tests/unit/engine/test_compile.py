"""The generated code of a topology, run over records."""

from __future__ import annotations

import re
import signal
from asyncio import CancelledError
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework import Topology, errors
from eosframework.engine.codegen.compiler import RUN_RECORDS
from eosframework.engine.conversions import TopicChoice
from eosframework.engine.failures.failure_handler import (
    STACK_TRACE_BYTES,
    FailureHandler,
    stack_trace,
    summary,
)
from eosframework.errors import RecordFailed
from eosframework.process.signals import handled
from eosframework.records import Record, as_milliseconds
from eosframework.serialization.serdes import JSON
from eosframework.topology.graph.graph import Function, Operator, Step
from eosframework.topology.resolve.resolve import resolve
from tests.unit.engine.messages import (
    DEAD,
    FAIL,
    SKIP,
    Sent,
    compiled,
    json_messages,
    run,
    sink,
    step,
)


def values(out: list[Any]) -> list[Any]:
    return [(o[0], o[1]) for o in out]


def test_an_output_keeps_key_timestamp_and_headers_of_its_input() -> None:
    target = compiled(step(Operator.MAP_VALUES, lambda v: v * 2, sink()))
    message = Sent(b"21", key_=b"key", time=77, headers_=[("h", b"1")])
    assert run(target, [message]) == [("out", b"42", b"key", -1, None, None, 77, [("h", b"1")])]


def test_filter_drops_what_does_not_match() -> None:
    target = compiled(step(Operator.FILTER, lambda v: v > 1, sink()))
    assert values(run(target, json_messages(1, 2, 3))) == [("out", b"2"), ("out", b"3")]


def test_flat_map_values_gives_each_value_in_order() -> None:
    target = compiled(step(Operator.FLAT_MAP_VALUES, lambda v: v, sink()))
    assert values(run(target, json_messages([1, 2], [], [3]))) == [
        ("out", b"1"),
        ("out", b"2"),
        ("out", b"3"),
    ]


def test_children_run_in_declared_order_for_each_record() -> None:
    seen: list[Any] = []
    target = compiled(
        step(Operator.PEEK, seen.append, sink("a")),
        step(Operator.MAP_VALUES, lambda v: -v, sink("b")),
    )
    assert values(run(target, json_messages(1, 2))) == [
        ("a", b"1"),
        ("b", b"-1"),
        ("a", b"2"),
        ("b", b"-2"),
    ]
    assert seen == [1, 2]


def test_a_branch_gives_each_record_to_the_first_predicate_that_holds() -> None:
    branch = Step(
        "branch",
        "s",
        Operator.BRANCH,
        Function("branch", lambda v: v),
        FAIL,
        [],
        (
            (Function("small", lambda v: v < 10), [sink("small")]),
            (Function("even", lambda v: v % 2 == 0), [sink("even")]),
            (None, [sink("rest")]),
        ),
    )
    assert values(run(compiled(branch), json_messages(2, 12, 13))) == [
        ("small", b"2"),
        ("even", b"12"),
        ("rest", b"13"),
    ]


@pytest.mark.parametrize(
    ("operator", "result"),
    [
        (Operator.MAP, lambda r: (b"new", r.value + 1)),
        (Operator.MAP, lambda r: r.replace(key=b"new", value=r.value + 1)),
        (Operator.FLAT_MAP, lambda r: [(b"new", r.value + 1)]),
        (Operator.PROCESS, lambda r: [r.replace(key=b"new", value=r.value + 1)]),
    ],
)
def test_record_operators_take_records_or_pairs(operator: Operator, result: Any) -> None:
    [out] = run(compiled(step(operator, result, sink())), json_messages(1))
    assert out[:3] == ("out", b"2", b"new")
    assert out[6] == 1000


def test_record_operators_see_the_coordinates() -> None:
    seen: list[Record] = []
    run(compiled(step(Operator.PROCESS, seen.append)), [Sent(b"5", 9, headers_=[("h", b"x")])])
    assert seen == [Record(b"k", 5, 1000, [("h", b"x")], "in", 3, 9)]


def test_select_key_encodes_the_new_key() -> None:
    target = compiled(step(Operator.SELECT_KEY, lambda r: r.value["id"], sink(key=str)))
    assert run(target, json_messages({"id": "x"}))[0][2] == b"x"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("app-control", "internal topic of application 'app'"),
        ("other-x.count-changelog", "internal topic of application 'other'"),
        ("other-ownership", "internal topic of application 'other'"),
        ("__consumer_offsets", "keep for themselves"),
        ("no such topic!", "cannot be a topic"),
        ("a\0b", "cannot be a topic"),
        ("..", "cannot be a topic"),
        ("x" * 250, "cannot be a topic"),
        ("", "returns a topic's name"),
        (None, "returns a topic's name"),
    ],
)
def test_a_topic_that_nobody_may_choose_is_an_error_of_the_record(name: Any, why: str) -> None:
    choose = TopicChoice()
    for _ in range(2):
        with pytest.raises((TypeError, ValueError), match=why):
            choose(name)
    assert choose("out") == "out"


def test_a_topic_that_does_not_exist_is_an_error_of_the_record_until_it_does() -> None:
    there: set[str] = set()
    choose = TopicChoice(is_missing=lambda name: name not in there)
    for _ in range(2):
        with pytest.raises(ValueError, match="'later', which does not exist; create it"):
            choose("later")
    there.add("later")
    assert choose("later") == "later"


def test_topics_of_the_application_s_own_are_closed_to_functions() -> None:
    app = Topology("app")
    counted = app.stream("in", key=str, value="json").group_by(lambda r: r.key, key=str)
    counted.count(store="kept").to("out")
    closed = resolve(app.loaded()).internal_topics
    assert {"app-control"} < closed
    assert any("changelog" in topic for topic in closed)
    assert any("repartition" in topic for topic in closed)
    assert not closed & {"in", "out"}


def test_a_sink_can_choose_its_topic_for_each_record() -> None:
    target = compiled(sink(lambda r: f"out.{r.value}"))
    assert [o[0] for o in run(target, json_messages(1, 2))] == ["out.1", "out.2"]


def test_tombstones_pass_without_a_serde() -> None:
    assert run(compiled(sink()), [Sent(None, key_=None)])[0][1:3] == (None, None)


def test_event_time_comes_from_the_extractor() -> None:
    moment = datetime(2013, 1, 1, tzinfo=UTC)
    target = compiled(sink(), timestamp=lambda v: moment)
    out: list[Any] = []
    stream_time = target.run(json_messages(1), out, 5, lambda *_: None)
    assert out[0][6] == stream_time == 1356998400000


@given(st.lists(st.integers(0, 10**6)), st.integers(0, 10**6))
def test_stream_time_never_goes_back(times: list[int], before: int) -> None:
    target = compiled(sink())
    messages = [Sent(b"1", i, time=t) for i, t in enumerate(times)]
    assert target.run(messages, [], before, lambda *_: None) == max([before, *times])


def test_a_failed_record_leaves_nothing_but_its_dead_letter() -> None:
    def positive(value: int) -> int:
        if value < 0:
            raise ValueError(f"{value} is negative")
        return value

    target = compiled(
        sink("first", on_error=DEAD),
        step(Operator.MAP_VALUES, positive, sink("second"), on_error=DEAD),
    )
    failures = FailureHandler()
    out = run(target, json_messages(1, -1, 2), failures)
    assert values(out) == [
        ("first", b"1"),
        ("second", b"1"),
        ("dead", b"-1"),
        ("first", b"2"),
        ("second", b"2"),
    ]
    assert failures.dead_letters == 1
    headers = dict(out[2][7])
    assert int(headers.pop("__eos.errors.failed")) > 0
    trace = headers.pop("__streams.errors.stacktrace").decode()
    assert "in positive\n" in trace, "of the function that failed"
    assert trace.endswith("ValueError: -1 is negative\n")
    assert headers == {
        "__streams.errors.message": b"-1 is negative",
        "__streams.errors.topic": b"in",
        "__streams.errors.partition": b"3",
        "__streams.errors.offset": b"1",
        "__streams.errors.exception": b"ValueError: -1 is negative",
        "__eos.errors.step": b"map_values(positive)",
    }


def test_skip_drops_only_the_failed_record() -> None:
    failures = FailureHandler()
    out = run(compiled(sink(), on_error=SKIP), [Sent(b"{"), Sent(b"1")], failures)
    assert values(out) == [("out", b"1")]
    assert failures.skipped == 1


OF_THE_FRAMEWORK = [
    error
    for error in vars(errors).values()
    if isinstance(error, type)
    and issubclass(error, (errors.RunError, errors.InstanceFenced, errors.TransactionError))
    and error not in (errors.DataRejected, errors.RowsRefused, errors.RecordFailed)
]


@pytest.mark.parametrize("policy", [SKIP, DEAD], ids=["skip", "dead letter"])
@pytest.mark.parametrize("error", OF_THE_FRAMEWORK, ids=lambda error: error.__name__)
def test_what_the_framework_raises_in_a_step_is_no_records_fault(
    error: type[errors.EosError], policy: Any
) -> None:
    """A damaged store had healthy records skipped, and committed past them."""

    def meet_damage(value: int) -> int:
        raise error("the store cannot be read")

    failures = FailureHandler()
    target = compiled(step(Operator.MAP_VALUES, meet_damage, sink(), on_error=policy))
    with pytest.raises(error, match="cannot be read"):
        run(target, json_messages(1), failures)
    assert (failures.skipped, failures.dead_letters) == (0, 0)


def test_fail_names_record_step_error_and_what_to_do() -> None:
    target = compiled(step(Operator.MAP_VALUES, lambda v: 1 / v, sink()))
    with pytest.raises(RecordFailed) as failed:
        run(target, json_messages(1, 0), FailureHandler())
    assert failed.value.offset == 1
    assert re.search(r"in\[3\]@1 .*map_values.*ZeroDivisionError.*on_error", str(failed.value))


@pytest.mark.parametrize(
    ("result", "expected"),
    [(7, "int"), ((1, 2, 3), "tuple"), (Record(b"k", 1, -5), "event time")],
)
def test_a_wrong_result_of_map_is_named(result: Any, expected: str) -> None:
    target = compiled(step(Operator.MAP, lambda r: result, sink()))
    with pytest.raises(TypeError, match=expected):
        run(target, json_messages(1))


@pytest.mark.parametrize("header", [("h", 1), "h", (1, b"x")])
def test_a_wrong_header_is_named(header: Any) -> None:
    target = compiled(step(Operator.MAP, lambda r: r.replace(headers=[header]), sink()))
    with pytest.raises(TypeError, match="header"):
        run(target, json_messages(1))


def test_a_value_that_is_not_bytes_needs_a_serde() -> None:
    with pytest.raises(TypeError, match="serde is bytes"):
        run(compiled(sink(value=bytes)), json_messages({"a": 1}))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("wrap", [lambda n: n, lambda n: {"a": n}, lambda n: {"a": [{"b": n}]}])
def test_a_number_that_json_does_not_have_is_an_error_of_the_sink(wrap: Any, number: float) -> None:
    failed: list[str] = []
    target = compiled(step(Operator.MAP_VALUES, lambda v: wrap(number) if v else v, sink("o")))
    out: list[Any] = []
    target.run(json_messages(0, 1), out, 0, lambda site, *_: failed.append(site.name))
    assert (values(out), failed) == ([("o", b"0")], ["to(o)"])


@given(st.recursive(st.none() | st.floats(-9, 9) | st.sampled_from(["null", ""]), st.lists))
def test_a_sink_writes_json_as_its_serde_does_and_none_as_a_tombstone(value: Any) -> None:
    target = compiled(step(Operator.MAP_VALUES, lambda _: value, sink()))
    written = None if value is None else JSON.encode and JSON.encode(value)
    assert values(run(target, json_messages(0))) == [("out", written)]


def test_a_node_with_two_parents_runs_for_each() -> None:
    merged = step(Operator.MAP_VALUES, lambda v: v, sink())
    target = compiled(
        step(Operator.FILTER, lambda v: v > 0, merged),
        step(Operator.FILTER, lambda v: v > 1, merged),
    )
    assert values(run(target, json_messages(1, 2))) == [("out", b"1"), ("out", b"2"), ("out", b"2")]


def test_many_records_are_run_in_parts_but_for_batch_operators() -> None:
    messages = json_messages(*range(2 * RUN_RECORDS + 1))
    by_record = compiled(step(Operator.MAP_VALUES, lambda v: v, sink()))
    runs = list(by_record.in_runs(messages))
    assert [len(run) for run in runs] == [RUN_RECORDS, RUN_RECORDS, 1]
    assert [m for run in runs for m in run] == messages
    by_batch = replace(by_record, takes_all_at_once=True)
    assert list(by_batch.in_runs(messages)) == [messages]


@pytest.mark.parametrize(
    "moment", [-1, 2**63, 253_402_300_800_000, 1_700_000_000_000_000, "x", None]
)
def test_an_event_time_that_no_record_can_have_is_an_error_of_the_record(moment: Any) -> None:
    """More than 63 bits ended the worker in produce; microseconds are a thousand times too late."""
    with pytest.raises(TypeError, match=r"up to the year 9999, or a datetime, not"):
        as_milliseconds(moment)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("half \ud800 and\nNUL \0"), "ValueError: half \\ud800 and NUL \\x00"),
        (Mute(), "Mute: it has no text"),
        (KeyError(), "KeyError"),
        (ValueError("x" * 400), "ValueError: " + "x" * 297 + "..."),
    ],
)
def test_an_error_is_one_line_that_every_encoding_takes(error: Exception, expected: str) -> None:
    """The text of a user's exception ended the worker when its dead letter was encoded."""
    assert summary(error) == expected
    summary(error).encode()


def test_a_stack_trace_has_a_bounded_length_and_ends_with_the_error() -> None:
    def deeper(depth: int) -> None:
        try:
            deeper(depth - 1) if depth else [][0]
        except LookupError as error:
            raise LookupError(f"\u4e2d{depth}" * 100) from error

    for error in (Mute(), ValueError("half \ud800 and NUL \0"), ValueError("\u4e2d" * 5000)):
        assert len(stack_trace(error)) <= STACK_TRACE_BYTES
        assert "\0" not in stack_trace(error).decode()
    with pytest.raises(LookupError) as raised:
        deeper(30)
    found = stack_trace(raised.value).decode()
    assert len(found.encode()) <= STACK_TRACE_BYTES
    assert found.startswith("...")
    assert found.endswith("30\n")
    assert "Mute" in stack_trace(Mute()).decode()


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, CancelledError, GeneratorExit])
def test_a_function_that_raises_no_exception_fails_its_record_and_ends_nobody(
    kind: type[BaseException],
) -> None:
    def leave(value: Any) -> Any:
        if value == 2:
            raise kind(f"{value} is enough")
        return value

    target = compiled(step(Operator.MAP_VALUES, leave, sink(), on_error=DEAD))
    with handled(lambda *_: None):
        out = run(target, json_messages(1, 2, 3), FailureHandler())
    assert [o[0] for o in out] == ["out", "dead", "out"]
    assert dict(out[1][7])["__streams.errors.exception"] == f"{kind.__name__}: 2 is enough".encode()


def test_a_ctrl_c_passes_where_python_handles_it() -> None:
    """So pytest and a notebook can be stopped in the middle of a function."""

    def interrupted(value: Any) -> Any:
        signal.raise_signal(signal.SIGINT)

    target = compiled(step(Operator.MAP_VALUES, interrupted, sink(), on_error=DEAD))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        run(target, json_messages(1), FailureHandler())


@pytest.mark.parametrize(("time", "written"), [(-1, 1), (0, 1), (1, 1), (1700, 1700)])
def test_no_output_has_a_time_that_librdkafka_takes_for_the_present(
    time: int, written: int
) -> None:
    [out] = run(compiled(sink()), [Sent(b"{}", time=time)])
    assert out[6] == written
