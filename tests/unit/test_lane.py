"""A lane finishes every offered frame exactly once, by its deadline, and never calls a given-up request free."""

from __future__ import annotations

import pytest

from inspectd.lane.inbox import CameraShare, WhenFull
from inspectd.lane.lane import Action, Cancel, Finish, Kill, Lane, LanePolicy, Release, Start
from inspectd.records import Code, Done, Dropped, Failed, Frame, TimedOut, Unavailable

DONE = Done((), 0.01)


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
