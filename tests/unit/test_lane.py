"""A lane finishes every offered frame exactly once, by its deadline, and never calls a given-up request free."""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import replace

import pytest

from inspectd.lane.actions import Action, Cancel, Finish, Kill, Release, Start, Tell
from inspectd.lane.everynth import EveryNth
from inspectd.lane.inbox import CameraShare, Job, WhenFull
from inspectd.lane.lane import Lane
from inspectd.lane.policy import LanePolicy
from inspectd.records import Code, Done, Dropped, Failed, Frame, TimedOut, Unavailable

DONE = Done((), 0.01)
FAILED = Failed(Code.MODEL_ERROR, "out of order")
DEADLINE_S = 0.3
MILLISECONDS_WRAP_S = 2.0**32 / 1000
"""A counter of milliseconds in 32 bits wraps here, after 49.7 days."""


def frame(number: int, camera: str = "top") -> Frame:
    return Frame(camera, number, 1, number % 8, number, 64, 64, captured_s=0.0, captured_wall_s=0.0)


def lane(requests: int = 2, *, depth: int = 2, retries: int = 1, when_full: str = "drop_oldest") -> Lane:
    shares = {"top": CameraShare(depth, weight=1), "side": CameraShare(depth, weight=3)}
    built = Lane(LanePolicy("defects", 0.1, 0.5, retries, WhenFull(when_full), shares))
    if requests:
        built.child_ready(requests, 0.0)
    return built


def started(actions: list[Action]) -> list[int]:
    return [action.attempt for action in actions if isinstance(action, Start)]


def finished(actions: list[Action]) -> list[tuple[int, object]]:
    return [(action.frame.frame_id, action.outcome) for action in actions if isinstance(action, Finish)]


def fail_in_a_row(tested: Lane, now: float = 0.0) -> None:
    """The breaker is open after it."""
    for number in range(1, 6):
        [attempt] = started(tested.offer(frame(number), now + 9.0, now))
        tested.answer(attempt, FAILED, now)


class Line:
    """Cameras of steady rates and a device that takes one frame after the other, under a clock of its own."""

    def __init__(
        self,
        fps: dict[str, float],
        inference_s: float,
        *,
        timeout_s: float = 9.0,
        weights: dict[str, int] | None = None,
        start_s: float = 0.0,
        first: int = 1,
    ) -> None:
        shares = {camera: CameraShare(8, (weights or {}).get(camera, 1)) for camera in fps}
        self.lane = Lane(LanePolicy("defects", timeout_s, 9.0, 0, WhenFull.DROP_OLDEST, shares))
        self.inference_s, self.now = inference_s, start_s
        self.ends: dict[str, Counter[type]] = {camera: Counter() for camera in fps}
        self.latest_s = dict.fromkeys(fps, 0.0)
        """By camera: longest time from offer to outcome."""
        self.told: list[Tell] = []
        self._period_s = {camera: 1 / rate for camera, rate in fps.items()}
        self._next_s = {camera: start_s + self._period_s[camera] * (at + 1) / len(fps) for at, camera in enumerate(fps)}
        self._frames = {camera: EveryNth() for camera in fps}
        self._number, self._offered_s = first - 1, dict[int, float]()
        self._busy: deque[tuple[float, int]] = deque()
        self._act(self.lane.child_ready(1, start_s))

    def run(self, seconds: float) -> None:
        """Cameras give frames for so long; then what is under way ends."""
        left = {camera: round(seconds / period_s) for camera, period_s in self._period_s.items()}
        while any(left.values()) or self._busy:
            camera = min(self._next_s, key=lambda name: self._next_s[name] if left[name] else math.inf)
            next_s = self._next_s[camera] if left[camera] else math.inf
            due_s = self.lane.next_due_s() or math.inf
            answer_s = self._busy[0][0] if self._busy else math.inf
            at_s = min(next_s, due_s, answer_s)
            self.now = max(self.now, at_s)
            if at_s == answer_s:
                _, attempt = self._busy.popleft()
                self._act(self.lane.answer(attempt, Done((), self.inference_s), self.now))
            elif at_s == due_s:
                self._act(self.lane.tick(self.now))
            else:
                left[camera] -= 1
                self._next_s[camera] += self._period_s[camera]
                self._offer(camera)

    def leap(self, seconds: float) -> None:
        """Nothing was called for so long."""
        self.now += seconds
        self._next_s = {camera: self.now + period_s for camera, period_s in self._period_s.items()}

    def _offer(self, camera: str) -> None:
        if self._frames[camera].refusal([self.lane.levels[camera]]) is not None:
            self.lane.note_skipped()
            self.ends[camera][Dropped] += 1
            return
        self._number += 1
        self._offered_s[self._number] = self.now
        given = replace(frame(self._number, camera), captured_s=self.now)
        self._act(self.lane.offer(given, self.now + DEADLINE_S, self.now))

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Start(attempt, _):
                    free_s = self._busy[-1][0] if self._busy else self.now
                    self._busy.append((max(free_s, self.now) + self.inference_s, attempt))
                case Finish(given, outcome):
                    self.ends[given.camera][type(outcome)] += 1
                    waited_s = self.now - self._offered_s.pop(given.frame_id, self.now)
                    self.latest_s[given.camera] = max(self.latest_s[given.camera], waited_s)
                case Tell():
                    self.told.append(action)


def test_a_frame_is_started_at_once_when_a_request_is_free_and_done_when_the_child_answers() -> None:
    tested = lane()
    assert tested.offer(frame(1), 1.0, 0.0) == [Start(1, frame(1))]
    assert tested.answer(1, DONE, 0.02) == [Release(1, frame(1)), Finish(frame(1), Done((), 0.01, attempts=1))]
    assert tested.busy == 0


def test_a_full_inbox_gives_the_oldest_waiting_frame_back() -> None:
    """drop_oldest: the newest picture of a line is worth most."""
    tested = lane(requests=1, depth=1)
    tested.offer(frame(1), 1.0, 0.0)
    tested.offer(frame(2), 1.0, 0.0)
    [(number, outcome)] = finished(tested.offer(frame(3), 1.0, 0.0))
    assert number == 2
    assert isinstance(outcome, Dropped)
    assert outcome.code is Code.QUEUE_FULL


def test_a_full_inbox_refuses_the_newest_frame_when_told_so() -> None:
    tested = lane(requests=1, depth=1, when_full="drop_newest")
    tested.offer(frame(1), 1.0, 0.0)
    tested.offer(frame(2), 1.0, 0.0)
    assert [number for number, _ in finished(tested.offer(frame(3), 1.0, 0.0))] == [3]


def test_one_cameras_overload_drops_only_its_own_frames() -> None:
    tested = lane(requests=1, depth=1)
    tested.offer(frame(1, "side"), 1.0, 0.0)
    tested.offer(frame(2, "side"), 1.0, 0.0)
    dropped = [item for number in range(1, 9) for item in finished(tested.offer(frame(number), 1.0, 0.0))]
    assert [number for number, _ in dropped] == list(range(1, 8))


def test_cameras_are_served_in_weighted_turn() -> None:
    """With weights 3 and 1 both waiting, four turns serve three of one and one of the other."""
    tested = lane(requests=1, depth=8)
    tested.offer(frame(100), 9.0, 0.0)
    for number in range(1, 5):
        tested.offer(frame(number), 9.0, 0.0)
        tested.offer(frame(number, "side"), 9.0, 0.0)
    order, attempt = [], 1
    for _ in range(4):
        [start] = [a for a in tested.answer(attempt, DONE, 0.01) if isinstance(a, Start)]
        order.append(start.frame.camera)
        attempt = start.attempt
    assert sorted(order) == ["side", "side", "side", "top"]


def test_a_late_attempt_is_cancelled_and_tried_again_on_another_request() -> None:
    tested = lane()
    tested.offer(frame(1), 1.0, 0.0)
    actions = tested.tick(0.1)
    assert actions == [Cancel(1), Start(2, frame(1))]
    assert tested.lost == 1
    [release, finish] = tested.answer(2, DONE, 0.15)
    assert release == Release(2, frame(1))
    assert finish == Finish(frame(1), Done((), 0.01, attempts=2))


def test_an_answer_after_its_time_limit_frees_the_request_and_is_not_used() -> None:
    """A late answer must not become a second outcome of the frame."""
    tested = lane(requests=1, retries=0)
    tested.offer(frame(1), 1.0, 0.0)
    [(_, outcome)] = finished(tested.tick(0.1))
    assert isinstance(outcome, TimedOut)
    assert not outcome.deadline
    assert "top/defects: no result within 0.100 s (attempt 1 of 1)" in outcome.reason
    assert started(tested.offer(frame(2), 1.0, 0.12)) == []
    late = tested.answer(1, DONE, 0.2)
    assert finished(late) == []
    assert late[0] == Release(1, frame(1))
    assert started(late) == [2]


def test_no_attempt_is_made_when_the_deadline_leaves_no_room_for_a_typical_inference() -> None:
    tested = lane()
    tested.offer(frame(1), 1.0, 0.0)
    tested.answer(1, Done((), 0.08), 0.08)
    tested.offer(frame(2), 0.15, 0.0)
    actions = tested.tick(0.1)
    assert started(actions) == []
    assert [number for number, _ in finished(actions)] == [2]


def test_the_frames_deadline_ends_an_attempt_before_its_own_limit() -> None:
    tested = lane()
    tested.offer(frame(1), 0.05, 0.0)
    assert tested.next_due_s() == 0.05
    [(_, outcome)] = finished(tested.tick(0.05))
    assert isinstance(outcome, TimedOut)
    assert outcome.deadline


def test_a_waiting_frame_ends_at_its_deadline() -> None:
    tested = lane(requests=1)
    tested.offer(frame(1), 1.0, 0.0)
    tested.offer(frame(2), 0.03, 0.0)
    assert tested.next_due_s() == 0.03
    [(number, outcome)] = finished(tested.tick(0.03))
    assert number == 2
    assert isinstance(outcome, TimedOut)
    assert outcome.deadline


def test_a_frame_that_is_too_old_when_its_turn_comes_never_reaches_the_device() -> None:
    """Also where main is late itself: the answer before it is read ahead of the timer."""
    tested = lane(requests=1)
    tested.offer(frame(1), 1.0, 0.0)
    tested.offer(frame(2), 0.03, 0.0)
    actions = tested.answer(1, DONE, 0.04)
    assert started(actions) == []
    [_, (number, outcome)] = finished(actions)
    assert number == 2
    assert isinstance(outcome, TimedOut)
    assert outcome.deadline


def test_a_request_that_does_not_come_back_kills_the_child_once() -> None:
    tested = lane(retries=0)
    tested.offer(frame(1), 1.0, 0.0)
    tested.tick(0.1)
    assert tested.next_due_s() == pytest.approx(0.6)
    [kill] = tested.tick(0.6)
    assert isinstance(kill, Kill)
    assert "frame 1 was cancelled and its request has not come back within 0.5 s" in kill.reason
    assert tested.tick(0.7) == []
    assert started(tested.offer(frame(2), 9.0, 0.7)) == [], "a child that is being killed gets nothing more"


def test_a_dead_childs_frames_are_tried_again_on_the_next_child() -> None:
    tested = lane()
    tested.offer(frame(1), 1.0, 0.0)
    assert tested.child_gone("was ended by SIGKILL", 0.05) == [Release(1, frame(1))]
    assert started(tested.child_ready(2, 0.3)) == [2]


def test_a_dead_childs_frames_fail_with_its_reason_when_no_attempt_is_left() -> None:
    tested = lane(retries=0)
    tested.offer(frame(1), 1.0, 0.0)
    [(_, outcome)] = finished(tested.child_gone("was ended by SIGSEGV", 0.05))
    assert outcome == Failed(Code.MODEL_ERROR, "was ended by SIGSEGV", attempts=1)


def test_frames_wait_for_a_child_that_is_being_replaced_until_their_deadline() -> None:
    tested = lane(requests=0)
    assert tested.offer(frame(1), 0.5, 0.0) == []
    [(_, outcome)] = finished(tested.tick(0.5))
    assert isinstance(outcome, Unavailable)


def test_without_hope_of_a_child_frames_are_answered_at_once() -> None:
    """Unavailable is never waited for."""
    tested = lane(requests=0)
    tested.offer(frame(1), 9.0, 0.0)
    assert [n for n, o in finished(tested.give_up("no process")) if isinstance(o, Unavailable)] == [1]
    assert [n for n, o in finished(tested.offer(frame(2), 9.0, 0.0)) if isinstance(o, Unavailable)] == [2]
    tested.child_ready(1, 1.0)
    assert started(tested.offer(frame(3), 9.0, 1.0)) == [1]


def test_an_answer_that_would_only_be_repeated_is_not_tried_again() -> None:
    tested = lane()
    tested.offer(frame(1), 1.0, 0.0)
    [(_, outcome)] = finished(tested.answer(1, Failed(Code.MODEL_OUTPUT, "NaN"), 0.01, again=False))
    assert outcome == Failed(Code.MODEL_OUTPUT, "NaN", attempts=1)


def test_an_unknown_attempts_answer_is_ignored() -> None:
    """Left over in the channel from a child before this one."""
    assert lane().answer(99, DONE, 0.0) == []


def test_a_triggered_frame_that_cannot_be_in_time_is_late_and_not_left_out() -> None:
    """Its part goes by all the same: 300. 303 is for frames of which another one follows."""
    shares = {"top": CameraShare(8, may_skip=False), "side": CameraShare(8)}
    tested = Lane(LanePolicy("defects", 0.1, 0.5, 1, WhenFull.DROP_OLDEST, shares))
    tested.child_ready(1, 0.0)
    tested.offer(frame(1), 1.0, 0.0)
    tested.answer(1, Done((), 0.08), 0.08)
    tested.offer(frame(2), 1.0, 0.1)
    for camera in ("top", "side", "side"):
        tested.offer(frame(3, camera), 0.2, 0.1)
    outcomes = [outcome for _, outcome in finished(tested.answer(2, Done((), 0.05), 0.15))]
    assert isinstance(outcomes[0], Done)
    [late] = [outcome for outcome in outcomes if isinstance(outcome, TimedOut)]
    assert (late.deadline, late.attempts) == (True, 0)
    assert [outcome.code for outcome in outcomes if isinstance(outcome, Dropped)] == [Code.SKIPPED_BY_POLICY]
    assert tested.levels.keys() == {"side"}


def test_a_model_that_only_fails_is_not_asked_and_nothing_waits_for_it() -> None:
    """Unavailable at once, with the reason, also for what already waited; after open_s one attempt finds out."""
    tested = lane(requests=1, retries=0, depth=3)
    told: list[Tell] = []
    for number in range(1, 6):
        tested.offer(frame(number), 9.0, 0.0)
        tested.offer(frame(10 * number, "side"), 0.0, 0.0)
        actions = tested.answer(number, FAILED, 0.01)
        told += [action for action in actions if isinstance(action, Tell)]
    assert [(tell.text, tell.is_good) for tell in told] == [(tested.breaker.reason, False)]
    assert "stopped asking after 5 failures in a row, the last: out of order" in tested.breaker.reason
    assert tested.waiting == 0
    [(number, outcome)] = finished(tested.offer(frame(7), 9.0, 5.0))
    assert (number, outcome) == (7, Unavailable(tested.breaker.reason))
    assert started(tested.offer(frame(8), 9.0, 5.01)) == [6]
    [(_, outcome)] = finished(tested.offer(frame(9), 9.0, 5.01))
    assert isinstance(outcome, Unavailable), "while one finds out, nobody waits"
    [_, tell, _] = tested.answer(6, DONE, 5.02)
    assert tell == Tell("defects: answers again", is_good=True)
    assert started(tested.offer(frame(10), 9.0, 5.03)) == [7]


def test_what_waits_when_the_breaker_opens_is_answered_too() -> None:
    tested = lane(requests=1, retries=0, depth=8)
    for number in range(1, 9):
        tested.offer(frame(number), 9.0, 0.0)
    for attempt in range(1, 5):
        tested.answer(attempt, FAILED, 0.01)
    outcomes = dict(finished(tested.answer(5, FAILED, 0.01)))
    assert [type(outcomes[number]) for number in range(5, 9)] == [Failed, Unavailable, Unavailable, Unavailable]


def test_only_one_attempt_finds_out_whether_the_model_answers_again() -> None:
    """Although the other requests are free; what came in the same moment is answered at once."""
    tested = lane(requests=4, retries=0, depth=8)
    fail_in_a_row(tested)
    tested.hold()
    for number in range(10, 13):
        tested._inbox.put(Job(frame(number), 99.0))
    actions = tested.child_ready(4, 9.0)
    assert started(actions) == [6]
    assert [type(outcome) for _, outcome in finished(actions)] == [Unavailable, Unavailable]


def test_a_probe_that_fails_replaces_the_child_and_the_next_one_is_asked_at_once() -> None:
    """Waiting alone has not helped. Frames do not wait for the new child either."""
    tested = lane(requests=1, retries=0)
    fail_in_a_row(tested)
    assert started(tested.offer(frame(6), 99.0, 6.0)) == [6]
    kills = [action for action in tested.answer(6, FAILED, 6.01) if isinstance(action, Kill)]
    assert kills == [Kill(tested.breaker.reason)]
    tested.child_gone("was killed", 6.1)
    [(_, outcome)] = finished(tested.offer(frame(7), 99.0, 20.0))
    assert outcome == Unavailable(tested.breaker.reason), "open_s is over, but there is nobody to be asked"
    tested.child_ready(1, 21.0)
    assert started(tested.offer(frame(8), 99.0, 21.0)) == [7]


def test_a_device_that_stands_still_once_does_not_open_the_breaker() -> None:
    """Eight requests that time out together are one failure, and what fails in the camera's slot is none."""
    tested = lane(requests=8, retries=0, depth=8)
    for number in range(1, 9):
        tested.offer(frame(number), 9.0, 0.0)
    tested.tick(0.1)
    for attempt in range(1, 9):
        tested.answer(attempt, DONE, 0.3)
    for number in range(10, 30):
        [attempt] = started(tested.offer(frame(number), 9.0, 0.3))
        tested.answer(attempt, FAILED, 0.31, again=False, blameless=True)
    assert started(tested.offer(frame(30), 9.0, 0.4)) == [29]


def test_a_demoted_camera_has_one_attempt_per_frame_and_gives_way() -> None:
    """`on_timeout: demote`: its slow pictures do not take the device from the others; in time again, it is restored."""
    shares = {"slow": CameraShare(50), "top": CameraShare(50)}
    tested = Lane(LanePolicy("defects", 0.1, 9.0, 1, WhenFull.DROP_OLDEST, shares, demotes=True))
    tested.child_ready(2, 0.0)
    tested.offer(frame(1, "slow"), 9.0, 0.0)
    actions = tested.tick(0.1)
    assert [action.text for action in actions if isinstance(action, Tell)] == [
        "slow/defects: gives way to other cameras until 20 frames in a row are in time (no result within 0.100 s)"
    ]
    assert started(actions) == [], "no second attempt"
    tested.answer(1, DONE, 0.11)
    running = [number for n in range(20) for number in started(tested.offer(frame(n), 9.0, 0.11))]
    for number in range(2, 22):
        running += started(tested.offer(frame(number, "slow"), 9.0, 0.11))
    order: list[str] = []
    tells: list[Tell] = []
    for step in range(40):
        actions = tested.answer(running.pop(0), DONE, 0.12 + step / 1000)
        running += started(actions)
        order += [action.frame.camera for action in actions if isinstance(action, Finish)]
        tells += [action for action in actions if isinstance(action, Tell)]
    assert order[:18].count("slow") <= 3
    assert order.count("slow") == 20
    assert tells == [Tell("slow/defects: has its place among the cameras again", is_good=True)]


@pytest.mark.parametrize(("inference_s", "is_done"), [(0.002, True), (0.02, False)])
def test_a_limit_of_five_milliseconds_works(inference_s: float, is_done: bool) -> None:
    """Quick answers are in time; slow ones end at 5 ms, and a model that is always too slow is told with its limit."""
    line = Line({"top": 30.0}, inference_s, timeout_s=0.005, start_s=MILLISECONDS_WRAP_S)
    line.run(10)
    assert line.ends["top"].total() == 300
    assert (line.ends["top"][Done] == 300) == is_done
    assert line.latest_s["top"] <= (0.002 if is_done else 0.005) + 1e-6
    if not is_done:
        assert line.ends["top"][TimedOut] >= 5
        assert "the last: top/defects: no result within 0.005 s (attempt 1 of 1)" in line.lane.breaker.reason


@pytest.mark.parametrize("weights", [{}, {"a": 3}, {"flood": 2, "a": 2, "b": 2, "c": 2}])
def test_one_camera_at_ten_times_its_rate_costs_the_others_nothing(weights: dict[str, int]) -> None:
    """Not one frame, and at most a turn each in time: as long as their part of the turns covers what they give."""
    usual = {"flood": 10.0, "a": 10.0, "b": 10.0, "c": 10.0}
    quiet = Line(usual, 0.02, weights=weights)
    quiet.run(30)
    flooded = Line(usual | {"flood": 100.0}, 0.02, weights=weights)
    flooded.run(30)
    for camera in ("a", "b", "c"):
        assert flooded.ends[camera] == quiet.ends[camera] == Counter({Done: 300})
        assert flooded.lane.levels[camera].every == 1
        assert flooded.latest_s[camera] <= 0.1
    assert flooded.ends["flood"].total() == 3000
    assert flooded.ends["flood"][Done] >= 0.95 * 30 * (1 / 0.02 - 30), "it has what the others leave"
    assert quiet.ends["flood"] == Counter({Done: 300})


def test_overload_is_met_by_skipping_evenly_and_told_once() -> None:
    """Twice what the device can do: n settles beside 2, what is taken is done in time, and the log has one line."""
    line = Line({"top": 30.0}, 1 / 15)
    line.run(300)
    assert 1.75 <= line.lane.levels["top"].every <= 2.75
    assert line.ends["top"][Done] >= 0.8 * 300 * 15
    assert line.latest_s["top"] <= DEADLINE_S + 1e-6
    assert [tell.is_good for tell in line.told] == [False]
    line.inference_s = 0.005
    line.run(60)
    assert line.lane.levels["top"].every == 1
    assert [tell.is_good for tell in line.told] == [False, True]
    stats = line.lane.stats
    assert stats.submitted == 30 * 360 == stats.done + stats.dropped + stats.timed_out
    assert stats.dropped == stats.skipped > 0


@pytest.mark.parametrize("start_s", [2.0**32 / 1000 - 5, 2.0**31 / 1000 - 5, 60 * 86_400.0, 2.0**32])
def test_wraps_of_other_peoples_counters_mean_nothing_here(start_s: float) -> None:
    """2³¹ and 2³² ms (49.7 days), 60 days, frame and attempt numbers above 2³²: nothing special."""
    line = Line({"top": 30.0}, 0.1, start_s=start_s, first=2**32 - 20)
    line.lane._next_attempt = 2**32 - 9
    line.run(60)
    assert 2.5 <= line.lane.levels["top"].every <= 4
    assert line.ends["top"].total() == 1800
    assert line.ends["top"][Done] >= 0.85 * 60 / 0.1


def test_a_leap_of_sixty_days_ends_everything_at_once_and_work_goes_on() -> None:
    """A PC that was suspended: what waited is late, the child that hung is replaced, nothing is counted twice."""
    line = Line({"top": 30.0}, 0.02)
    line.run(5)
    assert len(started(line.lane.offer(frame(998), line.now + 0.3, line.now))) == 1
    assert line.lane.offer(frame(999), line.now + 0.3, line.now) == []
    line.leap(60 * 86_400.0)
    ends = finished(line.lane.tick(line.now))
    assert [(number, type(outcome)) for number, outcome in ends] == [(998, TimedOut), (999, TimedOut)]
    line.lane.answer(line.lane._next_attempt - 1, DONE, line.now)
    line.run(5)
    assert line.ends["top"] == Counter({Done: 300})


def test_under_overload_no_attempt_is_begun_that_must_end_too_late() -> None:
    """Capacity 12/s, 30 frames a second, deadline 0.3 s: most of what the device does must still be in time.

    Attempts that end after the deadline had taken it from the frames behind them: 34 of 1800 were inspected.
    """
    tested = lane(requests=2, depth=8)
    tested.policy = LanePolicy("defects", 0.3, 1.0, 0, WhenFull.DROP_OLDEST, tested.policy.shares)
    busy: list[tuple[float, int]] = []
    done, now = 0, 0.0
    for number in range(600):
        now = number / 30
        while busy and busy[0][0] <= now:
            ends_s, attempt = busy.pop(0)
            actions = tested.answer(attempt, Done((), 0.16), ends_s)
            done += sum(isinstance(outcome, Done) for _, outcome in finished(actions))
            busy += [(ends_s + 0.16, started_now) for started_now in started(actions)]
        actions = tested.tick(now) + tested.offer(frame(number + 1), now + 0.3, now)
        busy += [(now + 0.16, started_now) for started_now in started(actions)]
    assert done > 0.8 * 600 / 30 * 2 / 0.16
