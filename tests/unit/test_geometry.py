"""Where a picture lies in a model's input, and back: all four ways, for any size."""

from __future__ import annotations

from typing import get_args

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.shared import shared

from inspectd.camera.files import read_picture
from inspectd.decode.geometry import Area, place
from inspectd.decode.preparation import Resize

SIDES = st.integers(1, 9000)
INPUTS = st.integers(32, 2048)
SHARES = st.floats(-0.5, 1.5)
RESIZES = st.sampled_from(get_args(Resize))


@settings(deadline=None)
@given(RESIZES, SIDES, SIDES, INPUTS, INPUTS, SHARES, SHARES, SHARES, SHARES)
def test_a_box_comes_back_from_the_input_exactly(
    resize: Resize,
    width_px: int,
    height_px: int,
    input_width_px: int,
    input_height_px: int,
    a: float,
    b: float,
    c: float,
    d: float,
) -> None:
    """For any picture and input, boxes half outside the picture too."""
    placement = place(resize, width_px, height_px, input_width_px, input_height_px)
    boxes = np.array([[a * width_px, b * height_px, c * width_px, d * height_px]])
    back = placement.to_picture(placement.to_input(boxes))
    assert np.allclose(back, boxes, rtol=0, atol=1e-8 * max(width_px, height_px))


@settings(deadline=None)
@given(RESIZES, SIDES, SIDES, INPUTS, INPUTS)
def test_what_is_seen_lies_in_the_picture_and_what_is_filled_in_the_input(
    resize: Resize, width_px: int, height_px: int, input_width_px: int, input_height_px: int
) -> None:
    """And the corners of the one become the corners of the other: the gain is that of the rounded size, per axis."""
    placement = place(resize, width_px, height_px, input_width_px, input_height_px)
    sizes = ((placement.seen, width_px, height_px), (placement.filled, input_width_px, input_height_px))
    for area, most_width_px, most_height_px in sizes:
        assert min(area.width_px, area.height_px) >= 1
        assert min(area.left_px, area.top_px) >= 0
        assert area.left_px + area.width_px <= most_width_px
        assert area.top_px + area.height_px <= most_height_px
    assert np.allclose(placement.to_input(corners(placement.seen)), corners(placement.filled))
    assert np.allclose(placement.to_picture(corners(placement.filled)), corners(placement.seen))


@settings(deadline=None)
@given(SIDES, SIDES, INPUTS, INPUTS)
def test_a_letterbox_shows_all_of_the_picture_and_touches_two_sides(
    width_px: int, height_px: int, input_width_px: int, input_height_px: int
) -> None:
    """Nothing is cut off, nothing is wasted, and the rest is divided so that the smaller half is left and above."""
    placement = place("letterbox", width_px, height_px, input_width_px, input_height_px)
    filled = placement.filled
    assert placement.seen == Area(0, 0, width_px, height_px)
    assert 0 <= input_width_px - filled.width_px - 2 * filled.left_px <= 1
    assert 0 <= input_height_px - filled.height_px - 2 * filled.top_px <= 1
    assert filled.width_px == input_width_px or filled.height_px == input_height_px
    at_top_left = place("letterbox_topleft", width_px, height_px, input_width_px, input_height_px)
    assert at_top_left.filled == Area(0, 0, filled.width_px, filled.height_px)


@settings(deadline=None)
@given(SIDES, SIDES, INPUTS, INPUTS)
def test_a_stretch_and_a_crop_fill_the_input(
    width_px: int, height_px: int, input_width_px: int, input_height_px: int
) -> None:
    """A crop keeps one side whole, is in the middle, and keeps the aspect as far as whole px can."""
    whole = Area(0, 0, input_width_px, input_height_px)
    assert place("stretch", width_px, height_px, input_width_px, input_height_px).filled == whole
    crop = place("crop", width_px, height_px, input_width_px, input_height_px)
    assert crop.filled == whole
    assert crop.seen.width_px == width_px or crop.seen.height_px == height_px
    assert 0 <= width_px - crop.seen.width_px - 2 * crop.seen.left_px <= 1
    assert 0 <= height_px - crop.seen.height_px - 2 * crop.seen.top_px <= 1
    aspect = input_width_px / input_height_px
    assert abs(crop.seen.width_px - crop.seen.height_px * aspect) <= max(1.0, aspect)


@pytest.mark.parametrize(
    ("picture", "expected"),
    [
        ((640, 640), (0, 0, 640, 640)),
        ((1920, 1080), (0, 140, 640, 360)),
        ((460, 1130), (189, 0, 261, 640)),
        ((645, 1540), (186, 0, 268, 640)),
        ((3, 9000), (319, 0, 1, 640)),
    ],
)
def test_the_letterbox_is_that_of_ultralytics(picture: tuple[int, int], expected: tuple[int, int, int, int]) -> None:
    """Sizes and padding as its LetterBox gives them; an odd rest of 379 px is 189 left and 190 right."""
    assert place("letterbox", *picture, 640, 640).filled == Area(*expected)


@pytest.mark.parametrize("resize", get_args(Resize))
@pytest.mark.parametrize("size", [(640, 640), (460, 1130), (1920, 1080), (7, 5)])
def test_paste_writes_the_picture_and_nothing_else(resize: Resize, size: tuple[int, int]) -> None:
    """The padding is written only when the geometry changes, so paste must leave it alone."""
    placement = place(resize, *size, 640, 384)
    target = np.full((384, 640, 3), 114, dtype=np.uint8)
    pixels = np.full((size[1], size[0], 3), 7, dtype=np.uint8)
    pixels.flags.writeable = False
    placement.paste(pixels, target)
    inside = np.zeros((384, 640, 3), dtype=np.uint8)
    placement.filled.of(inside)[...] = 1
    assert (target[inside == 1] == 7).all()
    assert (target[inside == 0] == 114).all()


@pytest.mark.shared
@pytest.mark.parametrize("resize", get_args(Resize))
def test_a_mark_on_a_tall_picture_is_found_where_it_was_drawn(resize: Resize) -> None:
    """Through the true resize, not only through the formula: within one px of the input, either way."""
    path = min(shared("data/tall/images").iterdir())
    pixels = read_picture(path) // 4
    height_px, width_px = pixels.shape[:2]
    assert height_px != width_px
    box = np.array([[width_px * 0.4, height_px * 0.45, width_px * 0.6, height_px * 0.55]]).round()
    x1, y1, x2, y2 = box[0].astype(int)
    cv2.rectangle(pixels, (x1, y1), (x2 - 1, y2 - 1), (255, 255, 255), -1)
    placement = place(resize, width_px, height_px, 640, 640)
    target = np.zeros((640, 640, 3), dtype=np.uint8)
    placement.paste(pixels, target)
    rows, columns = np.nonzero((target > 160).all(axis=2))
    found = np.array([[columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]])
    assert np.abs(placement.to_input(box) - found).max() <= 1.0
    assert (np.abs(placement.to_picture(found) - box) <= np.array(placement.gain * 2) ** -1 + 1e-9).all()


def corners(area: Area) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """[1, 4] x1 y1 x2 y2."""
    right_px, bottom_px = area.left_px + area.width_px, area.top_px + area.height_px
    return np.array([[area.left_px, area.top_px, right_px, bottom_px]], dtype=np.float64)
