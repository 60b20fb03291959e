"""Every worker computes the same keepers of copies: the next owners of the task."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eosframework.engine.restoration.standby_assignment import Member, owners, standby_members

MEMBERS = st.lists(
    st.builds(Member, st.text("abc01.", min_size=1, max_size=4), st.sampled_from(["h", "i", "j"])),
    unique_by=lambda member: member.instance,
    max_size=6,
)


def of(*names: str) -> list[Member]:
    return [Member(name, name) for name in names]


def test_tasks_go_to_members_in_the_order_of_their_names_the_first_have_one_more() -> None:
    a, b, c = of("a", "b", "c")
    assert owners([c, a, b], 7) == [a, a, a, b, b, c, c]
    assert owners([b, a], 1) == [a]
    assert owners([], 3) == []


@given(MEMBERS, st.integers(1, 12), st.integers(1, 3))
def test_keepers_are_others_and_the_same_for_whoever_computes_them(
    members: list[Member], tasks: int, copies: int
) -> None:
    chosen = standby_members(members, tasks, copies)
    assert chosen == standby_members(
        sorted(members, key=lambda m: (m.host, m.instance)), tasks, copies
    )
    for owner, kept in zip(owners(members, tasks), chosen, strict=True):
        assert owner not in kept
        assert len(kept) == len(set(kept)) == min(len(kept), copies)
        assert bool(kept) == (len(members) > 1)


@given(MEMBERS, st.integers(1, 12))
def test_with_two_copies_whoever_gets_a_task_has_one_if_its_owner_or_its_machine_goes(
    members: list[Member], tasks: int
) -> None:
    chosen = standby_members(members, tasks, 2)
    for gone in members:
        for left in (
            [m for m in members if m != gone],
            [m for m in members if m.host != gone.host],
        ):
            present, then = owners(members, tasks), owners(left, tasks)
            for partition, successor in enumerate(then):
                if present[partition] == gone:
                    assert successor in chosen[partition]


@given(MEMBERS, st.integers(1, 12))
def test_one_copy_is_where_the_task_goes_when_the_machine_of_its_owner_goes(
    members: list[Member], tasks: int
) -> None:
    chosen = standby_members(members, tasks, 1)
    for partition, owner in enumerate(owners(members, tasks)):
        left = owners([m for m in members if m.host != owner.host], tasks)
        if left:
            assert chosen[partition] == [left[partition]]
