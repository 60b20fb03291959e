"""The topologies of the matrix, with inputs, and what has to come of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import orjson

from eosframework import Topology, tumbling
from eosframework.records import Record, TopicPartition, WindowResult
from eosframework.topology.dsl.declarations import dead_letter
from tests.support.memory.fault_plan import function_called
from tests.support.memory.faulty_kafka import FaultyKafka
from tests.unit.matrix import models
from tests.unit.matrix.judging import (
    compare_sent,
    compare_states,
    expect,
    inputs_of,
    number_by_text,
    seen,
    text_key,
    window_key,
)
from tests.unit.matrix.play import Scenario, World, Wrong

NOW: list[Callable[[], float]] = [lambda: 0.0]
"""The time, for functions that fail for a while."""


def wave(topic: str, *records: tuple[str, Any, int]) -> Callable[[FaultyKafka], None]:
    """Return what appends records: key, value, timestamp."""

    def append(log: FaultyKafka) -> None:
        NOW[0] = lambda: log.now
        for key, value, at in records:
            data = None if value is None else orjson.dumps(value)
            log.append((topic, data, key.encode(), -1, None, None, at, None))

    return append


def waves(*parts: Callable[[FaultyKafka], None]) -> Callable[[FaultyKafka], None]:
    """Return what appends several."""

    def append(log: FaultyKafka) -> None:
        for part in parts:
            part(log)

    return append


# --- no state -------------------------------------------------------------------------


def is_kept(value: int) -> bool:
    function_called()
    return value != 0


def double(value: int) -> int:
    function_called()
    if value == 13:
        raise ValueError("unlucky")
    return 2 * value


def plain() -> Topology:
    app = Topology("plain")
    numbers = app.stream("in", key=str, value="json", on_error=dead_letter("dead"))
    numbers.filter(is_kept).map_values(double).on_error(dead_letter("dead")).to("out", value="json")
    return app


NUMBERS = [("a", 1, 1), ("b", 13, 2), ("a", 0, 3), ("c", 4, 4), ("d", 5, 5), ("a", 6, 6)]
PLAIN = Scenario(
    "plain",
    plain,
    (
        wave("in", *NUMBERS, *((key, value + 20, 10 + at) for key, value, at in NUMBERS)),
        wave("in", ("a", 7, 20), ("d", 13, 21), ("e", 8, 22)),
    ),
    expect(models.plain),
    partitions=2,
    refuses=True,
)

# --- a store, and shared producers -----------------------------------------------------


def show(count: int) -> int:
    function_called()
    return count


def no_third(record: Record) -> tuple[str, int]:
    function_called()
    if record.value == 3 and record.key.startswith("b"):
        raise ValueError("a third")
    return record.key, record.value


def counts() -> Topology:
    app = Topology("counts")
    counted = app.stream("in", key=str, value="json", on_error=dead_letter("dead"))
    shown = counted.group_by_key().count(store="counts").map_values(show).map(no_third)
    shown.on_error(dead_letter("dead")).to("out", value="json")
    return app


KEYS = ["a", "b1", "c", "b1", "a", "b2", "d", "b1", "a", "e", "b1", "b2"]
COUNTED = wave("in", *((key, n, n) for n, key in enumerate(KEYS)))
MORE = wave("in", *((key, n, 50 + n) for n, key in enumerate(KEYS[3:9])))
COUNTS = Scenario(
    "counts",
    counts,
    (COUNTED, MORE),
    expect(models.counts, stores={"counts": number_by_text}),
    refuses=True,
    partitions=2,
)
SHARED = Scenario(
    "shared",
    counts,
    (COUNTED, MORE),
    expect(models.counts, stores={"counts": number_by_text}),
    refuses=True,
    partitions=4,
    has_own_id=True,
)


# --- emissions at the commit, behind a topic of the application's own -------------------


def word(record: Record) -> str:
    function_called()
    return record.value


def words() -> Topology:
    app = Topology("words")
    said = app.stream("in", key=str, value="json")
    moved = said.group_by(word, key=str, name="words")
    moved.count(store="tallies", emit="commit").map_values(show).to("out", value="json")
    return app


def judge_words(world: World) -> None:
    log = world.log
    [own] = {r.topic for r in world.graph.repartitions}
    said = [seen(m) for n in range(2) for m in inputs_of(log, ["in"], n)]
    wanted = Counter(value for _, _, value, _ in said)
    found = Counter(value_of(m) for p in log.partitions_of(own) for m in log.logs[p].messages)
    if wanted != found:
        raise Wrong(f"{own} holds {found}, expected {wanted}")
    reached: dict[int, int] = {}
    expected: list[models.Sent] = []
    for transaction in log.history:
        for position in transaction.positions:
            if position.topic != own:
                continue
            number = position.partition
            messages = log.logs[position.topic_partition].messages
            until = position.offset or 0
            before = [value_of(m) for m in messages if m.offset() < reached.get(number, 0)]
            after = [value_of(m) for m in messages if m.offset() < until]
            tallies = models.tallies(after)
            changed = {word for word in after if tallies[word] != models.tallies(before).get(word)}
            expected += [("out", word, tallies[word]) for word in sorted(changed)]
            reached[number] = until
    compare_sent(log, expected, ["out"])
    counted = [value_of(m) for n in range(2) for m in inputs_of(log, [own], n)]
    compare_states(world, {"tallies": models.tallies(counted)}, {"tallies": number_by_text})


def value_of(message: Any) -> Any:
    return orjson.loads(message.value())


SAID = ["x", "w", "x", "z", "v", "w", "x", "v"]
"""Of both partitions, as are the keys k0 and k4."""

WORDS = Scenario(
    "words",
    words,
    (
        wave("in", *((f"k{n % 2 * 4}", w, n) for n, w in enumerate(SAID))),
        wave("in", *((f"k{n % 2 * 4}", w, 20 + n) for n, w in enumerate(SAID[2:6]))),
    ),
    judge_words,
    partitions=2,
)

FIRST_DISORDER = (101, 301, 104, 305, 118, 322, 103, 309, 112, 360, 140, 344, 141, 401)
"""Times of two partitions by turns; some are late."""

# --- windows after a repartition topic: watermarks, times of writing ---------------------


def passed() -> Topology:
    app = Topology("passed")
    moved = app.stream("in", key=str, value="json").group_by(word, key=str, name="words")
    windowed = moved.window(tumbling("10ms"), grace="5ms")
    windowed.count(emit="close").map_values(told).to("out", value="json")
    return app


def written_in_time(log: Any) -> Counter[tuple[str, int, int]]:
    """Return key, start and count of each window, by the partitions of the input alone."""
    found: Counter[tuple[str, int]] = Counter()
    for number in range(2):
        latest = 0
        for message in log.logs[TopicPartition("in", number)].messages:
            time = message.timestamp()[1]
            latest = max(latest, time)
            start = time // 10 * 10
            if start + 15 > latest and value_of(message) != "end":
                found[value_of(message), start] += 1
    return Counter((word_, start, count) for (word_, start), count in found.items())


def judge_passed(world: World) -> None:
    """A window is sent once and whole, and each is sent in the end."""
    log = world.log
    sent = Counter(
        ((m.key() or b"").decode(), value_of(m)[0], value_of(m)[-1])
        for p in log.partitions_of("out")
        for m in log.logs[p].messages
    )
    wanted = written_in_time(log)
    if sent - wanted or (world.is_over and sent != wanted):
        raise Wrong(f"windows {sent}, expected {wanted}")


PASSED = Scenario(
    "passed",
    passed,
    (
        wave(
            "in",
            *((f"k{n % 2 * 4}", "xyz"[n % 3], at) for n, at in enumerate(FIRST_DISORDER)),
            ("k0", "end", 1000),
            ("k4", "end", 1000),
        ),
    ),
    judge_passed,
    partitions=2,
    is_done=lambda log, waves: (
        sum(len(log.logs[p].messages) for p in log.partitions_of("out"))
        >= written_in_time(log).total()
    ),
)

# --- windows --------------------------------------------------------------------------


def told(window: WindowResult) -> list[int]:
    function_called()
    return [window.start, window.end, window.value]


def windows(**options: Any) -> Topology:
    app = Topology("windows")
    keyed = app.stream("in", key=str, value="json").group_by_key()
    windowed = keyed.window(tumbling("10ms"), grace="5ms", late="late", **options)
    windowed.count(emit="close", store="w").map_values(told).on_error(dead_letter("dead")).to(
        "out", value="json"
    )
    return app


TIMES = [3, 8, 12, 9, 17, 24, 4, 26, 41, 30, 38, 55]
WINDOWED = [("ab"[n % 2], n, at) for n, at in enumerate(TIMES)]
WINDOWS = Scenario(
    "windows",
    windows,
    (wave("in", *WINDOWED), wave("in", ("a", 20, 60), ("b", 21, 44), ("c", 22, 90))),
    expect(models.windows, stores={"w": window_key}, blind={"dead"}),
    refuses=True,
)


def clock() -> Topology:
    return windows(close_when_idle="2s")


LATER = [("a", 20, 58), ("b", 21, 100), ("a", 22, 101), ("b", 23, 120)]
ENDS = {len(WINDOWED): 1, len(WINDOWED) + len(LATER): 2}


def closings(inputs: Any, waves_closed: int, refused: Any = ()) -> models.Expected:
    """After each wave the clock closes what is open."""
    closed = {end: wave <= waves_closed for end, wave in ENDS.items()}
    return models.windows(inputs, refused, closed)


def judge_clock(world: World) -> None:
    found: list[str] = []
    for closed in range(world.waves, -1, -1):
        try:
            judge = expect(
                lambda inputs, refused, n=closed: closings(inputs, n, refused),
                stores={"w": window_key},
                blind={"dead"},
            )
            judge(world)
        except Wrong as error:
            found.append(str(error))
        else:
            return
    raise Wrong("; or ".join(found))


def is_closed(log: FaultyKafka, waves_sent: int) -> bool:
    inputs = [seen(message) for message in inputs_of(log, ["in"], 0)]
    wanted = closings(inputs, waves_sent).sent
    count = sum(
        len(log.logs[p].messages) for t in ("out", "late", "dead") for p in log.partitions_of(t)
    )
    return count >= len(wanted)


CLOCK = Scenario(
    "clock",
    clock,
    (wave("in", *WINDOWED), wave("in", *LATER)),
    judge_clock,
    is_done=is_closed,
    by_clock=True,
    refuses=True,
)

# --- receipts -------------------------------------------------------------------------


def up_to(value: int) -> list[int]:
    function_called()
    if value == 13:
        raise ValueError("unlucky")
    return list(range(value % 3))


def receipts() -> Topology:
    app = Topology("receipts")
    numbers = app.stream("in", key=str, value="json", on_error=dead_letter("dead"))
    windowed = numbers.group_by_key().window(tumbling("10ms"), grace="5ms", late="late")
    windowed.count(emit="close", store="w").map_values(told).to("out", value="json")
    numbers.flat_map_values(up_to).on_error(dead_letter("dead")).to("parts")
    return app


def judge_receipts(world: World) -> None:
    """Each output tells its input, and the outputs of all inputs are numbered without a gap."""
    log = world.log
    inputs = inputs_of(log, ["in"], 0)
    healthy = [m for m in inputs if value_of(m) != 13]
    expected: list[tuple[int, ...]] = []
    last, closed = None, 0
    for message in inputs:
        if value_of(message) == 13:
            count = 1
        else:
            before = [seen(m) for m in healthy if m.offset() <= message.offset()]
            sent = len(models.windows(before).sent)
            count, closed = value_of(message) % 3 + sent - closed, sent
        at = message.offset()
        gap = 0 if last is None or not count else at - last
        number = len(expected)
        expected += [(at, index, count, number + index, gap) for index in range(count)]
        last = at if count else last
    found: list[tuple[int, ...]] = []
    for topic in ("out", "late", "parts", "dead"):
        for message in log.logs[log.partitions_of(topic)[0]].messages:
            [receipt] = [v for k, v in message.headers() or () if k == "__eos.receipt"]
            _, app, since, origin, partition, *numbers, _ = (receipt or b"").decode().split("/")
            if (app, since, origin, partition) != ("receipts", "0", "in", "0"):
                raise Wrong(f"receipt {receipt!r}")
            found.append(tuple(map(int, numbers)))
    if sorted(found) != expected:
        raise Wrong(f"receipts {sorted(found)}, expected {expected}")


RECEIPTS = Scenario(
    "receipts",
    receipts,
    (
        wave("in", *((k, 13 if n == 5 else n, at) for k, n, at in WINDOWED)),
        wave("in", ("a", 20, 60), ("b", 13, 61), ("b", 21, 44), ("c", 22, 90)),
    ),
    judge_receipts,
    receipts=True,
)

# --- timers, deduplication, lifetimes ------------------------------------------------------


def hear(record: Any, context: Any) -> Any:
    function_called()
    store = context.store("heard")
    before = store.get(record.key, {"n": 0})
    if "until" in before:
        context.cancel_timer(before["until"])
    until = record.timestamp + 100
    context.set_timer(until)
    store.put(record.key, {"n": before["n"] + 1, "until": until})
    if record.value == "boom":
        raise ValueError("boom")


def silent(key: str, at: int, context: Any) -> Any:
    function_called()
    store = context.store("heard")
    heard = store.get(key)
    store.delete(key)
    return [(key, {"records": heard["n"], "at": at})]


def timers() -> Topology:
    app = Topology("timers")
    clicks = app.stream("in", key=str, value="json")
    ended = clicks.process(hear, stores={"heard": "json"}, on_timer=silent).named("p")
    ended.on_error("skip").to("out", value="json")
    return app


CLICKS = [("a", 10), ("b", 30), ("a", 80), ("c", 140), ("b", 150), ("a", 185), ("c", 260)]
TIMERS = Scenario(
    "timers",
    timers,
    (
        wave("in", *((k, "boom" if at == 150 else "x", at) for k, at in CLICKS)),
        wave("in", ("d", "x", 390), ("a", "boom", 400), ("d", "x", 600)),
    ),
    expect(models.silences, stores={"p.heard": text_key}),
    refuses=True,
)


def identity(value: Any) -> Any:
    function_called()
    return value


def firsts() -> Topology:
    app = Topology("firsts")
    all_ = app.stream("in", key=str, value="json").map_values(identity)
    once = all_.group_by_key().deduplicate("100ms", late="late", store="once")
    once.to("out", value="json")
    return app


FIRST_TIMES = [5, 7, 50, 104, 107, 160, 90, 206, 306, 20, 500, 399, 501, 900]
FIRSTS = Scenario(
    "firsts",
    firsts,
    (
        wave("in", *(("ab"[n % 3 == 2], n, at) for n, at in enumerate(FIRST_TIMES))),
        wave("in", ("a", 50, 905), ("a", 51, 1000), ("b", 52, 1001)),
    ),
    expect(models.firsts),
)


def recent() -> Topology:
    app = Topology("recent")
    all_ = app.stream("in", key=str, value="json").map_values(identity)
    all_.group_by_key().count(store="recent", ttl="50ms").to("out", value="json")
    return app


RECENT = Scenario(
    "recent",
    recent,
    (
        wave("in", *((f"k{n % 4}", n, n * 13 % 90 + 10 * (n // 4)) for n in range(14))),
        wave("in", ("k0", 50, 160), ("k1", 51, 161), ("k0", 52, 170)),
    ),
    expect(models.recent),
)

# --- several sources of one task ------------------------------------------------------------


def both(one: Any, other: Any) -> list[Any]:
    function_called()
    return [one, other]


def pairs() -> Topology:
    app = Topology("pairs")
    orders = app.stream("orders", key=str, value="json")
    payments = app.stream("payments", key=str, value="json")
    met = orders.join_within(payments, both, "10ms", how="outer", grace="2ms", store="met")
    met.to("out", value="json")
    return app


PAIRS = Scenario(
    "pairs",
    pairs,
    (
        waves(
            wave("orders", ("a", 1, 3), ("b", 2, 6), ("a", 3, 30), ("a", 4, 33), ("c", 5, 60)),
            wave(
                "payments", ("a", 11, 5), ("a", 12, 9), ("b", 13, 19), ("a", 14, 38), ("d", 15, 58)
            ),
        ),
        waves(
            wave("orders", ("d", 6, 61), ("e", 7, 100)),
            wave("payments", ("c", 16, 62), ("e", 17, 91), ("f", 18, 140)),
        ),
    ),
    expect(models.pairs),
)


def priced() -> Topology:
    app = Topology("priced")
    orders = app.stream("orders", key=str, value="json", on_error=dead_letter("dead"))
    tiers = app.table("tiers", key=str, value="json", history="1h")
    orders.join(tiers, both, how="left").to("out", value="json")
    return app


PRICED = Scenario(
    "priced",
    priced,
    (
        waves(
            wave("orders", ("a", 1, 1), ("a", 2, 5), ("b", 3, 9), ("a", 4, 20)),
            wave("tiers", ("a", "new", 3), ("b", "old", 8), ("a", None, 12), ("a", "gold", 15)),
        ),
        waves(wave("orders", ("b", 5, 30), ("a", 6, 34)), wave("tiers", ("b", "none", 32))),
    ),
    expect(models.priced),
    refuses=True,
)


def first_of() -> list[Any]:
    function_called()
    return []


def further(so_far: list[Any], value: Any) -> list[Any]:
    function_called()
    return [*so_far, value]


def stories() -> Topology:
    app = Topology("stories")
    one = app.stream("one", key=str, value="json", on_error=dead_letter("dead"))
    two = app.stream("two", key=str, value="json", on_error=dead_letter("dead"))
    told_ = one.merge(two).group_by_key()
    told_.aggregate(first_of, further, store="stories").to("out", value="json")
    return app


STORIES = Scenario(
    "stories",
    stories,
    (
        waves(
            wave("one", *(("ab"[n % 2], n, 10 * n + 1) for n in range(6))),
            wave("two", *(("ab"[n % 2], 100 + n, 7 * n + 2) for n in range(8))),
        ),
        waves(
            wave("one", ("a", 20, 80), ("b", 21, 91)), wave("two", ("b", 120, 85), ("a", 121, 90))
        ),
    ),
    expect(models.stories, stores={"stories": text_key}),
    refuses=True,
)

# --- second chances -------------------------------------------------------------------------


def flaky(value: dict[str, Any]) -> dict[str, Any]:
    function_called()
    if value["kind"] == "poison" or (value["kind"] == "later" and NOW[0]() < 1.5):
        raise ValueError(value["kind"])
    return value


def chances() -> Topology:
    app = Topology("chances")
    tried = app.stream("in", key=str, value="json").map_values(flaky)
    tried.on_error(dead_letter("dead", retry=["1s", "2s"])).to("out", value="json")
    return app


def judge_chances(world: World) -> None:
    """Each record is in one place: it went out, is a dead letter, or waits."""
    log = world.log
    tried = [value_of(m)["id"] for m in inputs_of(log, ["in"], 0)]
    at: Counter[int] = Counter()
    again = sorted(t for t in world.plan.topics if t != "in")
    for topic in ("out", "dead", *again):
        for partition in log.partitions_of(topic):
            position = log.positions.get(partition)
            since = 0 if position is None or topic not in again else position.offset or 0
            at.update(
                value_of(m)["id"] for m in log.logs[partition].messages if m.offset() >= since
            )
    if at != Counter(tried):
        raise Wrong(f"places of records: {at}, expected one for each of {tried}")
    kinds = {i: kind for i, kind in enumerate(KINDS)}
    dead = {value_of(m)["id"] for p in log.partitions_of("dead") for m in log.logs[p].messages}
    if healthy := {i for i in dead if kinds[i] != "poison"}:
        raise Wrong(f"healthy records are dead letters: {healthy}")


KINDS = ["fine", "later", "fine", "poison", "fine", "later", "fine", "fine", "fine"]
CHANCES = Scenario(
    "chances",
    chances,
    (
        wave("in", *(("k", {"id": n, "kind": kind}, n) for n, kind in enumerate(KINDS[:7]))),
        wave("in", *(("k", {"id": n, "kind": "fine"}, n) for n in (7, 8))),
    ),
    judge_chances,
    by_clock=True,
)

ALL = (
    PLAIN,
    COUNTS,
    SHARED,
    WORDS,
    PASSED,
    WINDOWS,
    CLOCK,
    RECEIPTS,
    TIMERS,
    FIRSTS,
    RECENT,
    PAIRS,
    PRICED,
    STORIES,
    CHANCES,
)
