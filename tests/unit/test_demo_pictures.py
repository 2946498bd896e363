"""The demo model's training pictures: a crowded board is a board of the line, and its boxes say what was changed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tools.demo_pictures import CLASSES, CROWD, Sample, crowded, letterboxed, plain

from inspectd.camera.boards.drawing import draw, draw_scene
from inspectd.camera.boards.scene import scene

SEED, SIDE_PX = 31, 640
BOARD = CLASSES.index("board")


def good(frame_id: int) -> np.ndarray:
    """The same picture without any defect."""
    shown = scene(SEED, frame_id, SIDE_PX, SIDE_PX)
    assert shown.board is not None
    clean = replace(shown, board=replace(shown.board, defects=()))
    return letterboxed(draw_scene(clean, SEED, SIDE_PX, SIDE_PX))


def crowd(frame_id: int) -> Sample:
    return crowded(SEED, frame_id, SIDE_PX, SIDE_PX)


@pytest.mark.parametrize("frame_id", range(4))
def test_every_change_of_a_crowded_board_lies_in_a_box_and_every_box_shows_one(frame_id: int) -> None:
    """Defects are moved from other pictures of the line, from boards that may lie the other way round."""
    sample = crowd(frame_id)
    defects = sample.boxes[sample.boxes[:, 0] != BOARD]
    assert 5 <= len(defects) <= CROWD
    changed = (sample.pixels.astype(int) != good(frame_id)).any(axis=2)
    outside = changed.copy()
    for _, x0, y0, x1, y1 in defects:
        area = np.s_[int(y0) : int(np.ceil(y1)) + 1, int(x0) : int(np.ceil(x1)) + 1]
        assert changed[area].sum() >= 6
        outside[area] = False
    assert not outside.any()


def test_a_crowded_board_is_the_same_each_time() -> None:
    first, again = crowd(1), crowd(1)
    assert np.array_equal(first.pixels, again.pixels)
    assert np.array_equal(first.boxes, again.boxes)


def test_a_plain_picture_is_what_the_daemon_gives_to_the_net() -> None:
    pixels, truth = draw(SEED, 2, 640, 480)
    sample = plain(SEED, 2, 640, 480)
    assert np.array_equal(sample.pixels, letterboxed(pixels))
    assert (sample.pixels[:40] == 114).all()
    board = sample.boxes[0]
    assert board[0] == BOARD
    assert board[1:] == pytest.approx(
        [truth[0].x / 2, truth[0].y / 2 + 40, (truth[0].x + truth[0].w) / 2, (truth[0].y + truth[0].h) / 2 + 40]
    )
