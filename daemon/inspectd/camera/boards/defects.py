"""The shapes of the six defect classes, as polygons in units: x along the track, y across it, from the anchor."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random
from typing import Literal

from inspectd.camera.boards.artwork import Anchor, Point

Fill = Literal["copper", "bare", "laminate"]
"""What is seen there: masked copper, masked laminate, or laminate where a pad left the mask open."""
Shape = tuple[list[Point], Fill]


def shape_of(class_name: str, rng: Random, anchor: Anchor) -> Shape:
    """Draw one defect; its points are relative to the board's top left."""
    points, fill = _SHAPES[class_name](rng, anchor)
    cos, sin = math.cos(anchor.angle), math.sin(anchor.angle)
    return [(anchor.x + x * cos - y * sin, anchor.y + x * sin + y * cos) for x, y in points], fill


def _open(rng: Random, anchor: Anchor) -> Shape:
    return _bar(rng, _between(rng, 3.0, 5.0), anchor.width / 2 + 0.7), "bare"


def _short(rng: Random, anchor: Anchor) -> Shape:
    return _bar(rng, _between(rng, 2.0, 3.6), anchor.width / 2 + 0.8), "copper"


def _mousebite(rng: Random, anchor: Anchor) -> Shape:
    side = 1 if rng.random() < 0.5 else -1
    depth = anchor.width * _between(rng, 0.5, 0.68)
    return _blob(rng, (0.0, side * anchor.width / 2), _between(rng, 3.2, 4.8), depth), "bare"


def _spur(rng: Random, anchor: Anchor) -> Shape:
    half, length, lean = _between(rng, 1.6, 2.8), _between(rng, 4.4, 6.4), _between(rng, -1.2, 1.2)
    edge, tip = anchor.width / 2, half * _between(rng, 0.35, 0.75)
    points = [
        (-half - 0.6, edge - 1.0),
        (half + 0.6, edge - 1.0),
        (half, edge + 0.45 * length),
        (lean + tip, edge + length),
        (lean - tip, edge + length),
        (-half, edge + 0.5 * length),
    ]
    return points, "copper"


def _copper(rng: Random, _: Anchor) -> Shape:
    return _blob(rng, (0.0, 0.0), _between(rng, 3.6, 5.2), _between(rng, 3.6, 5.2)), "copper"


def _pinhole(rng: Random, anchor: Anchor) -> Shape:
    room = anchor.width / 2 - 4.2
    centre = (_between(rng, -room, room), _between(rng, -room, room))
    radius = _between(rng, 2.5, 3.4)
    points = _blob(rng, centre, radius, radius * _between(rng, 0.85, 1.15))
    return points, "laminate" if anchor.surface == "pad" else "bare"


_SHAPES: Mapping[str, Callable[[Random, Anchor], Shape]] = {
    "open": _open,
    "short": _short,
    "mousebite": _mousebite,
    "spur": _spur,
    "copper": _copper,
    "pinhole": _pinhole,
}


def _between(rng: Random, low: float, high: float) -> float:
    return low + (high - low) * rng.random()


def _blob(rng: Random, centre: Point, x_radius: float, y_radius: float) -> list[Point]:
    """Draw an uneven ellipse."""
    points = []
    for step in range(12):
        uneven, angle = _between(rng, 0.82, 1.12), step * math.pi / 6
        points.append(
            (centre[0] + x_radius * uneven * math.cos(angle), centre[1] + y_radius * uneven * math.sin(angle))
        )
    return points


def _bar(rng: Random, half_x: float, half_y: float) -> list[Point]:
    """Draw a bar along y whose two long sides are uneven."""
    return [
        (sign * half_x * _between(rng, 0.75, 1.1), sign * step * half_y)
        for sign in (1, -1)
        for step in (-1.0, -0.35, 0.35, 1.0)
    ]
