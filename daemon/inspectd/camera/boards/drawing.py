"""Draws the simulated line's pictures: boards painted once per line, then pasted, damaged and lit.

Per picture only whole-array OpenCV calls and a few small patches, for a budget of 2 ms of CPU at 640 × 640.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from random import Random

import cv2
import numpy as np

from inspectd.camera import Pixels
from inspectd.camera.boards.artwork import Point
from inspectd.camera.boards.paint import BLUR, Canvas, Grain, Palette, choose_palette, paint_board
from inspectd.camera.boards.scene import Defect, Placed, Scene, TrueBox, layouts, scene
from inspectd.camera.boards.size import board_size_px, unit_px

_NOISE_SHARE = 0.045
"""Standard deviation of the sensor's noise, in shares of the light: one pass applies both."""
_SHADOW = (14, 14, 14)


@dataclass(frozen=True, slots=True)
class _Line:
    """What is painted once for one line and size."""

    boards: tuple[Pixels, ...]
    palettes: tuple[Palette, ...]
    grain: Grain
    belt: Pixels
    """An eighth larger than the picture, as is the exposure."""
    exposure: Pixels
    """The lamp's light times the sensor's noise; 128 = as it is."""


def draw(seed: int, frame_id: int, width_px: int, height_px: int) -> tuple[Pixels, tuple[TrueBox, ...]]:
    """Draw picture `frame_id` of the line `seed` (BGR, H × W × 3) with its true boxes.

    Raises ValueError for a size that has no room for a board. The first picture of a line paints its boards (0.3 s).
    """
    shown = scene(seed, frame_id, width_px, height_px)
    return draw_scene(shown, seed, width_px, height_px), shown.truth


def draw_scene(shown: Scene, seed: int, width_px: int, height_px: int) -> Pixels:
    """Draw what is given as a scene of the line `seed`."""
    line = _line(seed, width_px, height_px)
    pixels = _window(line.belt, shown.light.belt, width_px, height_px).copy()
    if shown.board is not None:
        unit = unit_px(width_px, height_px)
        _paste(pixels, line.boards[shown.board.look], shown.board, unit)
        for defect in shown.board.defects:
            _damage(pixels, defect, line.palettes[shown.board.look], line.grain, unit)
    exposure = _window(line.exposure, shown.light.exposure, width_px, height_px)
    cv2.multiply(pixels, exposure, dst=pixels, scale=shown.light.gain / 128)
    return pixels


def prepare(seed: int, width_px: int, height_px: int) -> None:
    """Paint the line's boards now rather than with the first picture."""
    _line(seed, width_px, height_px)


@lru_cache(maxsize=2)
def _line(seed: int, width_px: int, height_px: int) -> _Line:
    unit = unit_px(width_px, height_px)
    rng = np.random.default_rng(abs(seed))
    designs = layouts(seed, width_px, height_px)
    palettes = tuple(choose_palette(Random(f"{seed}/palette/{look}")) for look in range(len(designs)))
    grain = _grain(rng, *board_size_px(width_px, height_px), unit)
    large_w_px, large_h_px = width_px + width_px // 8, height_px + height_px // 8
    return _Line(
        tuple(paint_board(layout, palette, grain, unit) for layout, palette in zip(designs, palettes, strict=True)),
        palettes,
        grain,
        _belt(rng, large_w_px, large_h_px, unit),
        _exposure(rng, large_w_px, large_h_px),
    )


def _grain(rng: np.random.Generator, width_px: int, height_px: int, unit: float) -> Grain:
    """Weave of the laminate, and a cloudy mask."""
    fine = rng.standard_normal((height_px, width_px), np.float32) * 3.0
    coarse = rng.standard_normal((height_px // 24 + 2, width_px // 24 + 2), np.float32) * 3.5
    clouds = cv2.resize(coarse, (width_px, height_px), interpolation=cv2.INTER_CUBIC)
    x, y = np.arange(width_px)[None, :], np.arange(height_px)[:, None]
    weave = 1.6 * np.sin(2.1 * x / unit) * np.sin(2.1 * y / unit)
    return np.asarray(np.round(cv2.GaussianBlur(fine, (0, 0), BLUR * unit) + clouds + weave), np.int8)


def _belt(rng: np.random.Generator, width_px: int, height_px: int, unit: float) -> Pixels:
    """Dark rubber with ribs and dust."""
    ribs = 5 * np.sin(0.55 * np.arange(width_px) / unit)[None, :]
    dust = cv2.GaussianBlur(rng.standard_normal((height_px, width_px), np.float32) * 9, (0, 0), 0.6 * unit)
    rubber = np.clip(46 + ribs + dust, 0, 255).astype(np.uint8)
    return np.repeat(rubber[:, :, None], 3, axis=2)


def _exposure(rng: np.random.Generator, width_px: int, height_px: int) -> Pixels:
    """A lamp over the middle; a window of it has its brightest point anywhere, and other noise each time."""
    x = np.linspace(-1, 1, width_px, dtype=np.float32)[None, :, None]
    y = np.linspace(-1, 1, height_px, dtype=np.float32)[:, None, None]
    noise = rng.standard_normal((height_px, width_px, 3), np.float32)
    light = (140 - 42 * (x**2 + y**2)) * (1 + _NOISE_SHARE * noise)
    return np.clip(light, 0, 255).astype(np.uint8)


def _window(large: Pixels, offset: Point, width_px: int, height_px: int) -> Pixels:
    """Cut a picture's size out of a larger one, at `offset` (0..1) of the room that there is."""
    y = int(offset[1] * (large.shape[0] - height_px))
    x = int(offset[0] * (large.shape[1] - width_px))
    return large[y : y + height_px, x : x + width_px]


def _paste(pixels: Pixels, board: Pixels, placed: Placed, unit: float) -> None:
    """Lay the board on the belt, with its shadow and chamfered corners."""
    h, w = board.shape[:2]
    x, y = placed.x_px, placed.y_px
    shadow_px, cut_px = max(1, round(1.5 * unit)), round(3 * unit)
    lower_right = (x + w + shadow_px, y + h + shadow_px)
    cv2.rectangle(pixels, (x + shadow_px, y + shadow_px), lower_right, _SHADOW, shadow_px)
    target = pixels[y : y + h, x : x + w]
    ends = (slice(0, cut_px), slice(-cut_px, None))
    belt = [target[rows, columns].copy() for rows in ends for columns in ends]
    if placed.turned:
        cv2.flip(board, -1, dst=target)
    else:
        np.copyto(target, board)
    off = np.add.outer(np.arange(cut_px), np.arange(cut_px)) < cut_px
    cut = (off, off[:, ::-1], off[::-1], off[::-1, ::-1])
    for (rows, columns), kept, mask in zip(((r, c) for r in ends for c in ends), belt, cut, strict=True):
        np.copyto(target[rows, columns], kept, where=mask[:, :, None])


def _damage(pixels: Pixels, defect: Defect, palette: Palette, grain: Grain, unit: float) -> None:
    """Fill the defect's polygon with what it lays bare or adds, with a board's grain and blur."""
    box = defect.box
    left, top = int(box.x), int(box.y)
    patch = pixels[top : int(box.y + box.h) + 1, left : int(box.x + box.w) + 1]
    shape = Canvas(np.zeros(patch.shape, np.uint8), 1.0)
    shape.polygon([(x - left, y - top) for x, y in defect.polygon], (255, 255, 255))
    share = cv2.GaussianBlur(shape.pixels, (0, 0), BLUR * unit) / np.float32(255)
    colour = {"copper": palette.copper, "bare": palette.bare, "laminate": palette.laminate}[defect.fill]
    surface = np.asarray(colour, np.float32) + grain[: patch.shape[0], : patch.shape[1], None]
    patch[:] = np.clip(patch + (surface - patch) * share, 0, 255).astype(np.uint8)
