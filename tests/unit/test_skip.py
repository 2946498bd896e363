"""Under overload every n-th frame of a continuous camera is taken; n follows the load without fluttering."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from inspectd.lane.everynth import EveryNth
from inspectd.lane.skip import QUARTERS, TRIAL_LATEST_S, SkipLevel, SkipPolicy

DEADLINE_S = 0.3
START_S = 2.0**32 / 1000
"""Milliseconds of 49.7 days have just wrapped."""
DAY_S = 86_400.0


@dataclass
class Played:
    """A camera of a steady rate and a device that takes one frame after the other, of constant duration."""

    inference_s: float
    fps: float = 30.0
    policy: SkipPolicy = field(default_factory=SkipPolicy)
    now: float = START_S
    inspected: int = 0
    changes: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.level = SkipLevel("top/defects", self.policy)
        self.frames = EveryNth()
        self._queue: deque[float] = deque()
        self._free_s = self.now

    def run(self, seconds: float) -> None:
        """Play; frames that are too old when their turn comes never reach the device."""
        for _ in range(round(seconds * self.fps)):
            self.now += 1 / self.fps
            if self.frames.refusal([self.level]) is None:
                self._queue.append(self.now)
            while self._queue and self._free_s <= self.now:
                self._begin(max(self._free_s, self._queue[0]))

    def _begin(self, at_s: float) -> None:
        offered_s = self._queue.popleft()
        if self.level.begun(offered_s, offered_s + DEADLINE_S, self.inference_s, at_s):
            self.changes.append((at_s, self.level.every))
        if not self._queue or at_s + self.inference_s < offered_s + DEADLINE_S:
            self._free_s = at_s + self.inference_s
            self.inspected += at_s + self.inference_s < offered_s + DEADLINE_S


@pytest.mark.parametrize("inference_s", [0.005, 0.02, 0.03])
def test_below_capacity_no_frame_is_skipped(inference_s: float) -> None:
    """At 15, 60 and 90 % of what the device can do."""
    line = Played(inference_s)
    line.run(600)
    assert line.frames.skipped == 0
    assert line.changes == []


@pytest.mark.parametrize("inference_s", [0.035, 0.036, 0.04, 0.05, 0.06, 0.08, 0.1, 0.16, 0.2])
def test_under_overload_n_settles_where_the_device_keeps_up(inference_s: float) -> None:
    """Within half a step of the load, and most of what the device could do at best is done: 85 %, trials included.

    With whole n a load of 1.2 left 62 %: every second frame was skipped where one of six had to be.
    """
    line = Played(inference_s)
    line.run(300)
    before = line.inspected
    line.run(600)
    assert abs(line.level.every - inference_s * line.fps) <= 0.75
    assert line.inspected - before >= 0.84 * 600 / inference_s


@pytest.mark.parametrize("inference_s", [0.034, 0.04, 0.06, 0.09, 0.16, 0.2, 0.25])
def test_at_a_steady_overload_n_changes_ever_less_often(inference_s: float) -> None:
    """It does not flutter: one trial and its end in each longest calm, near the edge of an n a few steps more."""
    line = Played(inference_s)
    line.run(300)
    settled = len(line.changes)
    line.run(3600)
    assert len(line.changes) - settled <= 6 * 3600 / TRIAL_LATEST_S


def test_when_the_overload_is_gone_every_frame_is_taken_again() -> None:
    """Ten times slower for a minute: met within seconds, gone within the longest calm and a few short ones."""
    line = Played(0.02)
    line.run(10)
    line.inference_s = 0.2
    line.run(10)
    assert line.level.every >= 5
    line.run(50)
    line.inference_s = 0.02
    line.run(TRIAL_LATEST_S + 8 * line.policy.fall_s)
    assert line.level.every == 1
    assert line.level.reason == ""
    skipped = line.frames.skipped
    line.run(60)
    assert line.frames.skipped == skipped


def test_one_slow_inference_skips_nothing() -> None:
    """A pause of half a second fills the queue with old frames once; that is no overload."""
    line = Played(0.02)
    line.run(10)
    line._free_s = line.now + 0.45
    line.run(20)
    assert line.frames.skipped == 0


def test_what_piled_up_without_a_child_is_no_overload() -> None:
    level = SkipLevel("top/defects", SkipPolicy())
    level.restarted(START_S + 10)
    for number in range(200):
        offered_s = START_S + number / 30
        assert not level.begun(offered_s, offered_s + DEADLINE_S, 0.02, START_S + 10 + number / 100)
    assert level.every == 1


def test_the_reason_says_n_and_numbers_and_stays_the_same_text() -> None:
    """Frames that are skipped for one reason in a row become one row of the journal."""
    level = SkipLevel("top/defects", SkipPolicy())
    for number in range(4):
        now = START_S + number * 0.25
        level.begun(now, now + 0.3, 0.1, now + 0.15)
    frames = EveryNth()
    refusals = [frames.refusal([level]) for _ in range(5)]
    share = "top/defects: overload: 2 of 3 frames are taken; "
    wanted = share + "frames waited 0.150 s of the 0.200 s that their deadline leaves"
    assert refusals == [None, wanted, None, None, wanted]


def test_a_deadline_shorter_than_the_inference_is_no_overload_while_nothing_waits() -> None:
    """Skipping cannot mend that: such a frame is told as late."""
    level = SkipLevel("top/defects", SkipPolicy())
    for number in range(1000):
        now = START_S + number / 30
        assert not level.begun(now, now + 0.005, 0.02, now)


def test_the_slowest_lane_decides_which_frames_all_lanes_get() -> None:
    """Lanes that chose for themselves at n = 2 and n = 3 would share one frame of six."""
    slow, slower = SkipLevel("top/defects", SkipPolicy()), SkipLevel("top/code", SkipPolicy())
    slow.quarters, slower.quarters, slower.reason = 2 * QUARTERS, 3 * QUARTERS, "slower"
    frames = EveryNth()
    assert [frames.refusal([slow, slower]) for _ in range(7)] == [None, "slower", "slower"] * 2 + [None]


@given(levels=st.lists(st.integers(QUARTERS, 16 * QUARTERS), max_size=400))
def test_after_a_taken_frame_no_more_are_skipped_than_n_allows(levels: list[int]) -> None:
    """With n changing at any frame: never more in a row than the present n allows, and the sum is exact."""
    frames, level, in_a_row = EveryNth(), SkipLevel("top/defects", SkipPolicy()), 0
    taken = 0
    for number, quarters in enumerate(levels):
        level.quarters, level.reason = quarters, "overload"
        if frames.refusal([level]) is None:
            assert number == 0 or in_a_row >= quarters // QUARTERS - 1
            in_a_row, taken = 0, taken + 1
        else:
            in_a_row += 1
            assert in_a_row <= -(-quarters // QUARTERS) - 1
    assert (frames.taken, frames.taken + frames.skipped) == (taken, len(levels))


@given(quarters=st.integers(QUARTERS, 16 * QUARTERS), periods=st.integers(1, 20))
def test_of_n_frames_one_is_taken_evenly_spread(quarters: int, periods: int) -> None:
    """At 1¼ four of five: in each window of a whole period exactly as many as n says."""
    frames, level = EveryNth(), SkipLevel("top/defects", SkipPolicy())
    level.quarters, level.reason = quarters, "overload"
    taken = [frames.refusal([level]) is None for _ in range(quarters * periods)]
    assert all(sum(taken[at : at + quarters]) == QUARTERS for at in range(len(taken) - quarters + 1))


def test_counting_goes_on_beyond_two_to_the_32_frames() -> None:
    frames, level = EveryNth(), SkipLevel("top/defects", SkipPolicy())
    frames.skipped, level.quarters, level.reason = 2**32 - 1, 4 * QUARTERS, "overload"
    assert [frames.refusal([level]) is None for _ in range(9)] == [True, False, False, False] * 2 + [True]
    assert frames.skipped == 2**32 + 5


def test_a_policy_of_one_never_skips() -> None:
    """For triggered cameras and for sources that wait."""
    line = Played(0.5, policy=SkipPolicy(most=1))
    line.run(60)
    assert line.frames.skipped == 0


class SkipMachine(RuleBasedStateMachine):
    """Any history of frames, ages and leaps of up to 60 days."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START_S
        self.policy = SkipPolicy(most=6)
        self.level = SkipLevel("top/defects", self.policy)
        self.changed_s = self.now
        self.last = 1

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.1, 0.5, 2.0, 30.0, DAY_S, 60 * DAY_S]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(
        age_s=st.floats(0, 1), room_s=st.floats(-0.1, 0.5), count=st.integers(1, 20), step_s=st.sampled_from([0.0, 0.2])
    )
    def frames_begin(self, age_s: float, room_s: float, count: int, step_s: float) -> None:
        for _ in range(count):
            self.now += step_s
            offered_s = self.now - age_s
            before = self.level.every
            changed = self.level.begun(offered_s, offered_s + room_s + 0.1, 0.1, self.now)
            assert changed == (self.level.every != before)
            if changed:
                assert offered_s >= self.changed_s or self.level.stats.rises + self.level.stats.falls == 1
                least_s = self.policy.rise_s if self.level.every > before else self.policy.fall_s
                assert self.level.stats.rises + self.level.stats.falls == 1 or self.now - self.changed_s >= least_s
                self.changed_s = self.now

    @rule()
    def child_admitted(self) -> None:
        self.level.restarted(self.now)

    @invariant()
    def n_stays_within_its_bounds_and_has_a_reason(self) -> None:
        assert 1 <= self.level.every <= self.policy.most
        assert (self.level.every == 1) == (self.level.reason == "")

    @invariant()
    def what_is_known_to_be_too_small_is_not_above_n(self) -> None:
        assert 0 <= self.level._too_small <= self.level.quarters
        assert 2 * self.policy.fall_s <= self.level._trial_s <= TRIAL_LATEST_S


TestSkip = SkipMachine.TestCase
TestSkip.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
