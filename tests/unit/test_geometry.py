"""Letterbox: where a picture lies in a model's input, and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inspectd.decode.geometry import Placement, letterbox

SIDES = st.integers(1, 9000)
INPUTS = st.integers(32, 2048)
SHARES = st.floats(-0.5, 1.5)


@settings(deadline=None)
@given(SIDES, SIDES, INPUTS, INPUTS, SHARES, SHARES, SHARES, SHARES)
def test_a_box_comes_back_from_the_input_exactly(
    width_px: int, height_px: int, input_width_px: int, input_height_px: int, a: float, b: float, c: float, d: float
) -> None:
    """For any picture and input, boxes half outside the picture too."""
    placement = letterbox(width_px, height_px, input_width_px, input_height_px)
    boxes = np.array([[a * width_px, b * height_px, c * width_px, d * height_px]])
    back = placement.to_picture(placement.to_input(boxes))
    assert np.allclose(back, boxes, rtol=0, atol=1e-8 * max(width_px, height_px))


@settings(deadline=None)
@given(SIDES, SIDES, INPUTS, INPUTS)
def test_the_picture_lies_inside_the_input_and_touches_two_sides(
    width_px: int, height_px: int, input_width_px: int, input_height_px: int
) -> None:
    """Nothing is cut off, nothing is wasted, and the rest is divided so that the smaller half is left and above."""
    placement = letterbox(width_px, height_px, input_width_px, input_height_px)
    right = input_width_px - placement.scaled_width_px - placement.left_px
    below = input_height_px - placement.scaled_height_px - placement.top_px
    assert placement.scaled_width_px >= 1
    assert placement.scaled_height_px >= 1
    assert 0 <= right - placement.left_px <= 1
    assert 0 <= below - placement.top_px <= 1
    assert placement.scaled_width_px == input_width_px or placement.scaled_height_px == input_height_px


@settings(deadline=None)
@given(SIDES, SIDES)
def test_the_corners_of_the_picture_are_the_corners_of_the_pasted_area(width_px: int, height_px: int) -> None:
    """The gain is that of the rounded size, per axis."""
    placement = letterbox(width_px, height_px, 640, 384)
    corners = placement.to_input(np.array([[0.0, 0.0, width_px, height_px]]))[0]
    right_px, bottom_px = placement.left_px + placement.scaled_width_px, placement.top_px + placement.scaled_height_px
    assert np.allclose(corners, (placement.left_px, placement.top_px, right_px, bottom_px))


@pytest.mark.parametrize(
    ("picture", "expected"),
    [
        ((640, 640), (640, 640, 0, 0)),
        ((1920, 1080), (640, 360, 0, 140)),
        ((460, 1130), (261, 640, 189, 0)),
        ((645, 1540), (268, 640, 186, 0)),
        ((3, 9000), (1, 640, 319, 0)),
    ],
)
def test_the_letterbox_is_that_of_ultralytics(picture: tuple[int, int], expected: tuple[int, int, int, int]) -> None:
    """Sizes and padding as its LetterBox gives them; an odd rest of 379 px is 189 left and 190 right."""
    placement = letterbox(*picture, 640, 640)
    got = placement.scaled_width_px, placement.scaled_height_px, placement.left_px, placement.top_px
    assert got == expected


@pytest.mark.parametrize("size", [(640, 640), (460, 1130), (1920, 1080), (7, 5)])
def test_paste_writes_the_picture_and_nothing_else(size: tuple[int, int]) -> None:
    """The padding is written only when the geometry changes, so paste must leave it alone."""
    placement: Placement = letterbox(*size, 640, 384)
    target = np.full((384, 640, 3), 114, dtype=np.uint8)
    pixels = np.full((size[1], size[0], 3), 7, dtype=np.uint8)
    pixels.flags.writeable = False
    placement.paste(pixels, target)
    inside = np.zeros((384, 640), dtype=np.bool_)
    right_px, bottom_px = placement.left_px + placement.scaled_width_px, placement.top_px + placement.scaled_height_px
    inside[placement.top_px : bottom_px, placement.left_px : right_px] = True
    assert (target[inside] == 7).all()
    assert (target[~inside] == 114).all()
