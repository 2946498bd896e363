"""The simulated line: what it shows, its truth, its pace."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from inspectd.camera import Ended, Nothing, Picture
from inspectd.camera.boards.drawing import draw, draw_scene
from inspectd.camera.boards.scene import BOARD_CLASS, DEFECT_CLASSES, TrueBox, scene, truth
from inspectd.camera.simulator import Simulator
from inspectd.errors import SourceError

SIZES_PX = [(640, 640), (320, 240), (1920, 1080), (641, 483), (240, 600)]


class Time:
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.waits_s: list[float] = []

    def clock(self) -> float:
        return self.now_s

    def wait(self, for_s: float) -> None:
        self.waits_s.append(for_s)
        self.now_s += for_s


def simulator(time: Time, *, fps: float = 10.0, lossless: bool = False, count: int | None = None) -> Simulator:
    return Simulator(
        "top",
        seed=5,
        width_px=160,
        height_px=120,
        fps=fps,
        lossless=lossless,
        count=count,
        clock=time.clock,
        wall_clock=lambda: 1_700_000_000.0 + time.now_s,
        wait=time.wait,
    )


def defects_of(seed: int, frames: int, width_px: int, height_px: int) -> list[TrueBox]:
    return [box for frame_id in range(frames) for box in truth(seed, frame_id, width_px, height_px)[1:]]


def test_the_same_seed_and_number_draw_the_same_picture() -> None:
    """A child that was replaced shows what its predecessor would have shown."""
    first, boxes = draw(7, 12, 320, 240)
    draw(8, 0, 320, 240)
    draw(9, 0, 320, 240)
    again, boxes_again = draw(7, 12, 320, 240)
    assert boxes == boxes_again
    assert np.array_equal(first, again)


def test_other_seeds_and_numbers_draw_other_pictures() -> None:
    pictures = [draw(seed, frame_id, 320, 240)[0] for seed, frame_id in ((1, 1), (1, 2), (2, 1))]
    assert not np.array_equal(pictures[0], pictures[1])
    assert not np.array_equal(pictures[0], pictures[2])


def test_truth_is_what_draw_returns() -> None:
    """The demo asks for the truth of a frame without drawing it again."""
    for frame_id in range(30):
        assert truth(3, frame_id, 320, 240) == draw(3, frame_id, 320, 240)[1]


def test_a_defect_changes_the_picture_inside_its_box_only() -> None:
    """Against the same board without it: every true box shows a change, and nothing changes elsewhere."""
    seen = set()
    for frame_id in range(60):
        shown = scene(11, frame_id, 640, 640)
        if shown.board is None or not shown.board.defects:
            continue
        good = draw_scene(replace(shown, board=replace(shown.board, defects=())), 11, 640, 640)
        change = np.abs(draw_scene(shown, 11, 640, 640).astype(int) - good).max(2)
        for box in shown.truth[1:]:
            seen.add(box.class_name)
            part = change[int(box.y) : int(box.y + box.h) + 1, int(box.x) : int(box.x + box.w) + 1]
            assert (part > 12).sum() > 25, box
            part[:] = 0
        assert change.max() == 0
    assert seen == set(DEFECT_CLASSES)


def test_all_six_classes_occur_about_equally_often() -> None:
    counts = Counter(box.class_name for box in defects_of(21, 1500, 640, 640))
    assert set(counts) == set(DEFECT_CLASSES)
    assert min(counts.values()) > 0.5 * max(counts.values())


def test_about_half_of_the_boards_are_good_and_some_places_are_empty() -> None:
    boxes = [truth(4, frame_id, 640, 640) for frame_id in range(2000)]
    boards = [found for found in boxes if found]
    assert 0.4 < sum(len(found) == 1 for found in boards) / len(boards) < 0.6
    assert 0.02 < 1 - len(boards) / len(boxes) < 0.10
    assert all([box.class_name for box in found].count(BOARD_CLASS) == 1 for found in boards)


def test_an_empty_place_shows_the_belt_alone() -> None:
    """Nothing in it is as bright or as colourful as a board."""
    frame_id = next(number for number in range(200) if not truth(4, number, 640, 640))
    pixels, boxes = draw(4, frame_id, 640, 640)
    assert boxes == ()
    assert pixels.max() < 140
    assert int(np.abs(pixels[..., 0].mean() - pixels[..., 2].mean())) < 3


@pytest.mark.parametrize(("width_px", "height_px"), SIZES_PX)
def test_defects_have_at_least_ten_px_at_the_models_input(width_px: int, height_px: int) -> None:
    """The letterbox into 320 × 320 shrinks by the longer side."""
    gain = 320 / max(width_px, height_px)
    found = defects_of(2, 300, width_px, height_px)
    assert len(found) > 50
    assert min(min(box.w, box.h) * gain for box in found) >= 10


@pytest.mark.parametrize(("width_px", "height_px"), SIZES_PX)
def test_boxes_lie_inside_the_picture_and_defects_on_the_board(width_px: int, height_px: int) -> None:
    for frame_id in range(300):
        for box in truth(6, frame_id, width_px, height_px):
            board = truth(6, frame_id, width_px, height_px)[0]
            assert 0 <= board.x <= box.x < box.x + box.w <= board.x + board.w <= width_px
            assert 0 <= board.y <= box.y < box.y + box.h <= board.y + board.h <= height_px


@pytest.mark.parametrize(("width_px", "height_px"), SIZES_PX)
def test_any_usual_size_is_drawn(width_px: int, height_px: int) -> None:
    pixels, _ = draw(1, 1, width_px, height_px)
    assert pixels.shape == (height_px, width_px, 3)
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    assert pixels.flags.owndata


@pytest.mark.parametrize(("width_px", "height_px"), [(100, 100), (1920, 400)])
def test_a_size_without_room_for_a_board_is_refused_with_its_numbers(width_px: int, height_px: int) -> None:
    camera = Simulator("top", seed=1, width_px=width_px, height_px=height_px, fps=1.0)
    with pytest.raises(SourceError, match=rf"top: .*{width_px} × {height_px} px.*change width or height"):
        camera.open(1, 1)


def test_it_says_what_it_is() -> None:
    facts = simulator(Time(), count=3).open(1, 1)
    assert (facts.camera, facts.kind, facts.simulated, facts.finite) == ("top", "simulator", True, True)
    assert (facts.width_px, facts.height_px, facts.serial) == (160, 120, "5")
    assert not simulator(Time()).open(1, 1).finite


def test_a_counted_line_ends_after_so_many_numbers() -> None:
    camera = simulator(Time(), lossless=True, count=3)
    camera.open(41, 41)
    kinds = [type(camera.grab(frame_id, 0.5)) for frame_id in (41, 42, 43, 44, 44)]
    assert kinds == [Picture, Picture, Picture, Ended, Ended]


def test_a_new_child_goes_on_where_the_line_was() -> None:
    """The numbers before it count; its pictures are those of their numbers."""
    camera = simulator(Time(), lossless=True, count=3)
    camera.open(41, 43)
    third = camera.grab(43, 0.5)
    assert isinstance(third, Picture)
    assert np.array_equal(third.pixels, draw(5, 43, 160, 120)[0])
    assert camera.grab(44, 0.5) == Ended()


def test_pictures_come_at_the_pace_of_fps() -> None:
    time = Time()
    camera = simulator(time, fps=10.0)
    camera.open(1, 1)
    taken = [camera.grab(frame_id, 0.5) for frame_id in range(1, 6)]
    times_s = [picture.captured_s for picture in taken if isinstance(picture, Picture)]
    assert times_s == pytest.approx([100.0, 100.1, 100.2, 100.3, 100.4])


def test_a_picture_has_both_clocks_times_of_when_it_was_taken() -> None:
    time = Time()
    camera = simulator(time)
    camera.open(1, 1)
    camera.grab(1, 0.5)
    picture = camera.grab(2, 0.5)
    assert isinstance(picture, Picture)
    assert picture.captured_wall_s - 1_700_000_000.0 == pytest.approx(picture.captured_s)


def test_a_picture_that_is_not_due_is_nothing_after_the_time_given() -> None:
    """No wait is longer than asked; asked again, the same number comes on time."""
    time = Time()
    camera = simulator(time, fps=1.0)
    camera.open(1, 1)
    camera.grab(1, 0.3)
    kinds = [type(camera.grab(2, 0.3)) for _ in range(4)]
    assert kinds == [Nothing, Nothing, Nothing, Picture]
    assert max(time.waits_s) <= 0.3
    assert time.now_s == pytest.approx(101.0)


def test_a_late_caller_gets_no_burst() -> None:
    """After a pause of several periods one picture comes at once, the next a whole period later."""
    time = Time()
    camera = simulator(time, fps=10.0)
    camera.open(1, 1)
    camera.grab(1, 0.5)
    time.now_s += 0.75
    late = [camera.grab(frame_id, 0.5) for frame_id in (2, 3, 4)]
    times_s = [picture.captured_s for picture in late if isinstance(picture, Picture)]
    assert times_s == pytest.approx([100.75, 100.85, 100.95])


def test_being_a_little_late_does_not_slow_the_line_down() -> None:
    """Less than a period late: the schedule stays, so that the rate is kept on average."""
    time = Time()
    camera = simulator(time, fps=10.0)
    camera.open(1, 1)
    camera.grab(1, 0.5)
    time.now_s += 0.16
    late = [camera.grab(frame_id, 0.5) for frame_id in (2, 3)]
    times_s = [picture.captured_s for picture in late if isinstance(picture, Picture)]
    assert times_s == pytest.approx([100.16, 100.2])


def test_a_lossless_line_never_waits() -> None:
    time = Time()
    camera = simulator(time, lossless=True)
    camera.open(1, 1)
    assert all(isinstance(camera.grab(frame_id, 0.0), Picture) for frame_id in range(1, 20))
    assert time.waits_s == []
    camera.close()
