from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework.engine.stores.state_ports import StoreIdentity
from eosframework.state.manifest import StoreLabel, TaskLabel, shortened

names = st.text(max_size=20)
tasks = st.builds(TaskLabel, names, names, st.integers(1, 1000))
stores = st.builds(
    StoreLabel,
    names,
    st.integers(0, 100),
    st.integers(0, 2**62),
    st.floats(0, 2**40, allow_nan=False),
)


@given(tasks, stores)
def test_labels_are_read_as_they_were_written(task: TaskLabel, store: StoreLabel) -> None:
    assert TaskLabel.decode(task.encode()) == task
    assert StoreLabel.decode(store.encode()) == store
    assert task.difference(task) is None


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b'{"layout": 1}', b"[]", b"7"])
def test_what_is_no_label_is_refused(content: bytes) -> None:
    for label in (TaskLabel, StoreLabel):
        with pytest.raises(ValueError, match="is not a label"):
            label.decode(content)


def test_a_difference_names_what_was_found_and_what_is_wanted() -> None:
    label = StoreLabel("one", 1, position=3, written_at=4.0)

    assert label.difference(StoreIdentity("counts", "one", 1)) is None
    assert label.difference(StoreIdentity("counts", "two", 2)) == (
        "changelog is 'one' instead of 'two'; schema_version is 1 instead of 2"
    )


def test_another_layout_of_the_files_is_not_used() -> None:
    old = TaskLabel("a", "b-0", 4, layout=0)

    assert old.difference(TaskLabel("a", "b-0", 4)) == "layout is 0 instead of 1"


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ({"MANIFEST-000005": 100}, None),
        ({"MANIFEST-000005": 150}, None),
        ({"MANIFEST-000009": 10}, None),
        ({"MANIFEST-000005": 99}, "MANIFEST-000005 has 99 bytes of at least 100"),
    ],
)
def test_a_manifest_that_lost_its_end_is_told(there: dict[str, int], expected: str | None) -> None:
    assert shortened(b'{"MANIFEST-000005":100}', there) == expected
    assert shortened(None, there) is None
