"""Timelines: segments and marks lie where their times are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from eosframework.operations.console.timelines import transaction_timeline, windows_timeline


def test_a_traced_transaction_has_a_lane_for_each_partition() -> None:
    start = datetime(2026, 1, 31, 6, tzinfo=UTC)
    place = {"topic": "out", "partition": 1}
    moments = [start + timedelta(seconds=n) for n in range(4)]
    timeline = transaction_timeline(
        {
            "states": [
                {"state": "Ongoing", "time": moments[0], "joined": [place]},
                {"state": "PrepareCommit", "time": moments[2], "joined": []},
                {"state": "CompleteCommit", "time": moments[3], "joined": []},
            ],
            "markers": [{**place, "offset": 7, "time": moments[3], "committed": True}],
        }
    )
    assert timeline is not None
    coordinator, partition = timeline.lanes
    assert [round(segment.width, 1) for segment in coordinator.segments] == [66.7, 33.3]
    assert [mark.style for mark in partition.marks] == ["joined", "committed"]
    assert [mark.x for mark in partition.marks] == [0, 100]
    assert transaction_timeline({"states": [], "markers": []}) is None


def test_windows_of_a_key_lie_where_their_times_are() -> None:
    rows = [{"start": 0, "end": 1000, "value": 1}, {"start": 3000, "end": 4000, "value": 2}]
    timeline = windows_timeline(rows)
    assert timeline is not None
    assert [(s.x, s.width) for lane in timeline.lanes for s in lane.segments] == [
        (0, 25),
        (75, 25),
    ]
    assert windows_timeline([{"count": 1}]) is None
