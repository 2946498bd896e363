"""The parts of one bare board's artwork, as plain values.

Lengths are in units: 1 unit is 1 px at the model's input of 320 px, whatever the picture's own size. Points are
(x, y) from the board's top left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Point = tuple[float, float]
Surface = Literal["track", "pad", "pour", "free"]
ViaLook = Literal["ring", "plugged", "tented"]


@dataclass(frozen=True, slots=True)
class Track:
    """A copper line."""

    points: tuple[Point, ...]
    width: float


@dataclass(frozen=True, slots=True)
class Pad:
    """A copper area, by its centre; `hole` is the drill's radius, 0 for none."""

    x: float
    y: float
    w: float
    h: float
    hole: float = 0.0


@dataclass(frozen=True, slots=True)
class Via:
    """A plated hole between layers."""

    x: float
    y: float
    radius: float
    look: ViaLook


@dataclass(frozen=True, slots=True)
class Mark:
    """Silkscreen, by its centre: an outline if it has a size, and a text if that is not empty."""

    x: float
    y: float
    w: float
    h: float
    text: str


@dataclass(frozen=True, slots=True)
class Anchor:
    """A place for a defect: `angle` in radians along the track, `width` of the copper or of the gap there."""

    x: float
    y: float
    angle: float
    width: float
    surface: Surface


@dataclass(frozen=True, slots=True)
class Layout:
    """One board."""

    width: float
    height: float
    tracks: tuple[Track, ...]
    pads: tuple[Pad, ...]
    """Bare metal."""
    vias: tuple[Via, ...]
    pours: tuple[Pad, ...]
    """Copper planes under the solder mask."""
    marks: tuple[Mark, ...]
    anchors: Mapping[str, tuple[Anchor, ...]]
    """By defect class."""
