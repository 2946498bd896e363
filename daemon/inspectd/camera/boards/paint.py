"""Paints one whole board from its layout: solder mask over copper, bare pads, vias, silkscreen, grain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

import cv2
import numpy as np
from numpy.typing import NDArray

from inspectd.camera import Pixels
from inspectd.camera.boards.artwork import Layout, Mark, Pad, Point, Via

Colour = tuple[int, int, int]
"""BGR."""
Grain = NDArray[np.int8]
"""Height × width, about ±6, added to the plain colours."""

BLUR = 0.35
"""The lens: standard deviation in units."""
_DRILL: Colour = (15, 17, 17)
_LAMINATE: Colour = (58, 84, 96)
_MASKS: tuple[tuple[Colour, Colour, Colour], ...] = (
    ((38, 74, 18), (66, 138, 54), (225, 232, 232)),
    ((30, 56, 30), (70, 118, 62), (220, 226, 226)),
    ((92, 44, 14), (158, 104, 44), (230, 232, 232)),
    ((22, 22, 104), (56, 62, 172), (226, 232, 232)),
    ((30, 28, 28), (78, 78, 74), (214, 218, 218)),
    ((78, 24, 62), (134, 66, 112), (226, 228, 230)),
    ((22, 86, 102), (44, 140, 166), (40, 44, 44)),
)
"""Solder mask on laminate, the same on copper, and the silkscreen that goes with it."""
_FINISHES: tuple[Colour, ...] = ((92, 176, 214), (196, 204, 204), (104, 146, 196))
"""Gold, tin, bare copper."""


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of one board."""

    bare: Colour
    copper: Colour
    metal: Colour
    laminate: Colour
    silk: Colour


def choose_palette(rng: Random) -> Palette:
    """Choose one maker's colours, a little off."""
    bare, copper, silk = _MASKS[int(rng.random() * len(_MASKS))]
    metal = _FINISHES[int(rng.random() * len(_FINISHES))]
    tint = [rng.random() * 16 - 8 for _ in range(3)]

    def vary(colour: Colour) -> Colour:
        b, g, r = (min(255, max(0, round(value + shift))) for value, shift in zip(colour, tint, strict=True))
        return b, g, r

    return Palette(vary(bare), vary(copper), vary(metal), _LAMINATE, silk)


def paint_board(layout: Layout, palette: Palette, grain: Grain, unit: float) -> Pixels:
    """Paint a board as large as `grain`, with `unit` px per unit of the layout."""
    canvas = Canvas(np.empty((*grain.shape, 3), np.uint8), unit)
    canvas.pixels[:] = palette.bare
    for pour in layout.pours:
        canvas.polygon(_chamfered(pour, 4.0), palette.copper)
    for track in layout.tracks:
        for a, b in pairwise(track.points):
            canvas.polygon(_bar(a, b, track.width), palette.copper)
            canvas.disc(b, track.width / 2, palette.copper)
    for via in layout.vias:
        _paint_via(canvas, via, palette)
    for pad in layout.pads:
        _paint_pad(canvas, pad, palette)
    for mark in layout.marks:
        _print_mark(canvas, mark, palette.silk)
    surface = np.clip(canvas.pixels.astype(np.int16) + grain[:, :, None], 0, 255).astype(np.uint8)
    return np.asarray(cv2.GaussianBlur(surface, (0, 0), BLUR * unit), np.uint8)


@dataclass(frozen=True, slots=True)
class Canvas:
    """Draws smooth shapes, given in units, into pixels."""

    pixels: Pixels
    unit: float

    def polygon(self, points: Sequence[Point], colour: Colour) -> None:
        """Fill a polygon."""
        cv2.fillPoly(self.pixels, [np.array([self.fixed(point) for point in points])], colour, cv2.LINE_AA, _SHIFT)

    def disc(self, centre: Point, radius: float, colour: Colour) -> None:
        """Fill a circle."""
        cv2.circle(self.pixels, self.fixed(centre), self.fixed((radius, 0))[0], colour, -1, cv2.LINE_AA, _SHIFT)

    def fixed(self, point: Point) -> tuple[int, int]:
        """Give a point in OpenCV's fixed-point px."""
        return round(point[0] * self.unit * 2**_SHIFT), round(point[1] * self.unit * 2**_SHIFT)


_SHIFT = 4
"""Bits behind OpenCV's fixed point."""


def _paint_via(canvas: Canvas, via: Via, palette: Palette) -> None:
    centre = (via.x, via.y)
    canvas.disc(centre, via.radius, palette.copper if via.look == "tented" else palette.metal)
    if via.look == "ring":
        canvas.disc(centre, 0.48 * via.radius, _DRILL)
    elif via.look == "tented":
        b, g, r = (round(0.55 * c + 0.45 * m) for c, m in zip(palette.copper, palette.bare, strict=True))
        canvas.disc(centre, 0.4 * via.radius, (b, g, r))


def _paint_pad(canvas: Canvas, pad: Pad, palette: Palette) -> None:
    """Paint the mask's opening, which shows a rim of laminate, and the metal in it."""
    if pad.hole:
        canvas.disc((pad.x, pad.y), pad.w / 2, palette.laminate)
        canvas.disc((pad.x, pad.y), pad.w / 2 - 0.8, palette.metal)
        canvas.disc((pad.x, pad.y), pad.hole, _DRILL)
    else:
        canvas.polygon(_chamfered(pad, 0.8), palette.laminate)
        canvas.polygon(_chamfered(Pad(pad.x, pad.y, pad.w - 1.6, pad.h - 1.6), 0.8), palette.metal)


def _print_mark(canvas: Canvas, mark: Mark, colour: Colour) -> None:
    thick_px = max(1, round(0.8 * canvas.unit))
    if mark.w and mark.h:
        corner = canvas.fixed((mark.x - mark.w / 2, mark.y - mark.h / 2))
        opposite = canvas.fixed((mark.x + mark.w / 2, mark.y + mark.h / 2))
        cv2.rectangle(canvas.pixels, corner, opposite, colour, thick_px, cv2.LINE_AA, _SHIFT)
    if mark.text:
        font, size = cv2.FONT_HERSHEY_SIMPLEX, 9.0 * canvas.unit / 22  # 9 units high; capitals have 22 px at size 1
        (w_px, h_px), _ = cv2.getTextSize(mark.text, font, size, thick_px)
        at = (round(mark.x * canvas.unit - w_px / 2), round(mark.y * canvas.unit + h_px / 2))
        cv2.putText(canvas.pixels, mark.text, at, font, size, colour, thick_px, cv2.LINE_AA)


def _bar(a: Point, b: Point, width: float) -> list[Point]:
    length = ((b[0] - a[0]) ** 2 + (b[1] - a[1]) ** 2) ** 0.5
    nx, ny = -(b[1] - a[1]) / length * width / 2, (b[0] - a[0]) / length * width / 2
    return [(a[0] + nx, a[1] + ny), (b[0] + nx, b[1] + ny), (b[0] - nx, b[1] - ny), (a[0] - nx, a[1] - ny)]


def _chamfered(area: Pad, cut: float) -> list[Point]:
    left, right, top, bottom = area.x - area.w / 2, area.x + area.w / 2, area.y - area.h / 2, area.y + area.h / 2
    upper = [(left, top + cut), (left + cut, top), (right - cut, top), (right, top + cut)]
    lower = [(right, bottom - cut), (right - cut, bottom), (left + cut, bottom), (left, bottom - cut)]
    return upper + lower
