"""A camera is demoted by a timeout and restored by frames in time, counted in frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspectd.lane.demotion import Demotion
from inspectd.records import Code, Done, Dropped, Failed, Outcome, TimedOut, Unavailable

DONE = Done((), 0.01)
LATE = TimedOut(0.15, 1, "too late")
CUT_SHORT = TimedOut(0.15, 1, "the frame's deadline passed", deadline=True)
SILENT: list[Outcome] = [
    CUT_SHORT,
    Failed(Code.MODEL_ERROR, "x"),
    Dropped(Code.QUEUE_FULL, "x"),
    Unavailable("x"),
]


@given(
    history=st.lists(
        st.tuples(st.sampled_from(["top", "side"]), st.sampled_from([DONE, DONE, DONE, LATE, *SILENT])), max_size=200
    ),
    in_time=st.integers(1, 5),
)
def test_a_camera_is_demoted_exactly_while_enough_frames_in_time_are_missing(
    history: list[tuple[str, Outcome]], in_time: int
) -> None:
    """After each step: demoted if there was a timeout and fewer than `in_time` frames in time since. Each by itself."""
    tested = Demotion("defects", ["top", "side"], in_time)
    wanted = {"top": 0, "side": 0}
    for camera, outcome in history:
        before = tested.demoted
        changed = tested.ended(camera, outcome)
        if outcome is LATE:
            wanted[camera] = in_time
        elif isinstance(outcome, Done):
            wanted[camera] = max(0, wanted[camera] - 1)
        assert tested.demoted == {name for name, left in wanted.items() if left}
        assert changed == (tested.demoted != before)
        assert tested.why.keys() == tested.demoted
        assert tested.stats.demoted - tested.stats.restored == len(tested.demoted)


def test_the_reason_names_camera_model_and_limit() -> None:
    tested = Demotion("defects", ["top"])
    tested.ended("top", LATE)
    assert tested.why == {
        "top": "top/defects: gives way to other cameras until 20 frames in a row are in time (no result within 0.150 s)"
    }


@pytest.mark.parametrize("outcome", SILENT)
def test_what_has_no_duration_of_its_own_demotes_nobody(outcome: Outcome) -> None:
    """An attempt cut short by its frame's deadline may only have begun late: that is the queue's fault."""
    tested = Demotion("defects", ["top"])
    assert not tested.ended("top", outcome)
    assert not tested.demoted


def test_a_camera_is_restored_after_two_to_the_32_frames_as_after_the_first() -> None:
    tested = Demotion("defects", ["top"], 2**32)
    tested.ended("top", LATE)
    tested._left["top"] = 1
    assert tested.ended("top", DONE)
    assert not tested.demoted


def test_a_count_that_would_never_end_is_refused() -> None:
    with pytest.raises(ValueError, match="give 1 or more"):
        Demotion("defects", ["top"], 0)
