"""Cameras are served by weight, and how long one can be kept waiting follows from the weights alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspectd.lane.turns import DEMOTED_SHARE, Turns

WEIGHTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 100), min_size=1)


@given(weights=WEIGHTS, steps=st.lists(st.tuples(st.sets(st.sampled_from("abcdef")), st.booleans()), max_size=300))
def test_no_waiting_camera_is_passed_over_more_often_than_its_bound(
    weights: dict[str, int], steps: list[tuple[set[str], bool]]
) -> None:
    """Whatever cameras come and go: counted from when it begins to wait, and from its last turn while it waits on."""
    turns = Turns(weights)
    passed = dict.fromkeys(weights, 0)
    for some, everybody in steps:
        waiting = set(weights) if everybody else some & weights.keys()
        if not waiting:
            continue
        served = turns.take(waiting)
        assert served in waiting
        passed = {camera: passed[camera] + 1 if camera in waiting - {served} else 0 for camera in weights}
        assert all(passed[camera] <= turns.bound(camera) for camera in weights)
    assert all(turns.stats.longest_wait[camera] <= turns.bound(camera) for camera in weights)


@given(weights=WEIGHTS, demoted=st.sets(st.sampled_from("abcdef")))
def test_while_all_wait_each_is_served_by_its_weight_within_one_turn_of_each_other(
    weights: dict[str, int], demoted: set[str]
) -> None:
    """Serves per weight differ between any two cameras by at most one turn's worth; a demoted one has an eighth."""
    turns = Turns(weights)
    share = {camera: weight / (DEMOTED_SHARE if camera in demoted else 1) for camera, weight in weights.items()}
    for _ in range(400):
        turns.take(weights, demoted)
        done = turns.stats.served
        progress = {camera: done[camera] / share[camera] for camera in weights}
        for one in weights:
            for other in weights:
                assert progress[one] - progress[other] <= 1 / share[one] + 1e-9
    assert all(turns.stats.longest_wait[camera] <= turns.bound(camera, demoted) for camera in weights)


def test_a_camera_at_ten_times_its_rate_costs_the_others_nothing() -> None:
    """The flooding camera always waits; one that gives a frame in every fourth turn still never waits for two."""
    turns = Turns({"flood": 1, "calm": 1})
    waits = 0
    for turn in range(4000):
        waits += turn % 4 == 0
        served = turns.take({"flood", "calm"} if waits else {"flood"})
        waits -= served == "calm"
        assert waits <= 1
    assert turns.stats.served["calm"] == 1000
    assert turns.stats.longest_wait["calm"] <= turns.bound("calm") == 1


def test_a_camera_of_high_priority_is_served_first() -> None:
    """Priority 100 against three of 1: it has 100 turns of 103, and never waits for more than one of each other."""
    turns = Turns({"first": 100, "a": 1, "b": 1, "c": 1})
    order = [turns.take({"first", "a", "b", "c"}) for _ in range(1030)]
    assert order.count("first") >= 998
    assert turns.bound("first") == 3
    assert turns.bound("a") == 102


def test_who_stood_still_has_saved_up_no_turns() -> None:
    """A camera that reconnects after a night does not push the others away."""
    turns = Turns({"a": 1, "b": 1})
    for _ in range(10_000):
        turns.take({"a"})
    order = [turns.take({"a", "b"}) for _ in range(10)]
    assert order.count("b") == 5


def test_after_two_to_the_32_turns_it_still_takes_turns_exactly() -> None:
    """Whole numbers only: an order far along is the order from the start."""
    fresh, old = Turns({"a": 3, "b": 7}), Turns({"a": 3, "b": 7})
    old._mark = 2**40 * old._stride["a"]
    old._turn = 2**32
    assert [old.take({"a", "b"}) for _ in range(500)] == [fresh.take({"a", "b"}) for _ in range(500)]


def test_a_weight_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="give 1 or more"):
        Turns({"a": 0})
