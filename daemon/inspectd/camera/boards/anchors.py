"""Finds where on a routed board each defect class makes sense: on straight tracks, between them, on free ground."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from inspectd.camera.boards.artwork import Anchor
from inspectd.camera.boards.routing import Grid, Node, Path

_Straight = Mapping[Node, tuple[Path, Node]]
"""Nodes through which a path goes straight, and its step there."""


def find_anchors(grid: Grid, wide_copper: Sequence[Anchor]) -> Mapping[str, tuple[Anchor, ...]]:
    """List the places by defect class; a small board may have none for some."""
    straight = {
        b: (path, _step(a, b))
        for path in grid.paths
        for a, b, c in zip(path.nodes, path.nodes[1:], path.nodes[2:], strict=False)
        if _step(a, b) == _step(b, c)
    }
    on_track = tuple(
        Anchor(*grid.at(node), _angle(grid, step), path.width, "track") for node, (path, step) in straight.items()
    )
    return {
        "open": on_track,
        "short": tuple(_bridges(grid, straight)),
        "mousebite": on_track,
        "spur": tuple(_edges(grid, straight)),
        "copper": tuple(Anchor(*grid.at(node), 0.0, 10.0, "free") for node in _islands(grid)),
        "pinhole": tuple(wide_copper),
    }


def _edges(grid: Grid, straight: _Straight) -> list[Anchor]:
    """Track edges with room for a spur; the room is towards +y of the anchor."""
    found = []
    for node, (path, step) in straight.items():
        for side in (1, -1):
            # beside a diagonal the clearance is too small: a spur there would be a short
            if _beside(node, step, side) not in grid.metal and not (step[0] and step[1]):
                turned = 0.0 if side == 1 else math.pi
                found.append(Anchor(*grid.at(node), _angle(grid, step) + turned, path.width, "track"))
    return found


def _bridges(grid: Grid, straight: _Straight) -> list[Anchor]:
    """Gaps between two different tracks that run side by side along x or y."""
    found = []
    for node, (path, step) in straight.items():
        neighbour = _beside(node, step, 1)
        other, other_step = straight.get(neighbour, (path, step))
        if other is path or (step[0] and step[1]) or abs(other_step[0]) != abs(step[0]):
            continue
        (x, y), (other_x, other_y) = grid.at(node), grid.at(neighbour)
        distance = math.hypot(other_x - x, other_y - y)
        share = 0.5 + (path.width - other.width) / (4 * distance)  # the gap's middle, the tracks being unequal
        middle = (x + (other_x - x) * share, y + (other_y - y) * share)
        found.append(Anchor(*middle, _angle(grid, step), distance - (path.width + other.width) / 2, "free"))
    return found


def _islands(grid: Grid) -> list[Node]:
    """Free nodes without a pad, via or plane next to them."""
    return [
        (i, j)
        for i in range(grid.columns)
        for j in range(grid.rows)
        if (i, j) not in grid.taken | grid.beside and not {(i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)} & grid.metal
    ]


def _step(a: Node, b: Node) -> Node:
    return b[0] - a[0], b[1] - a[1]


def _beside(node: Node, step: Node, side: int) -> Node:
    return node[0] - side * step[1], node[1] + side * step[0]


def _angle(grid: Grid, step: Node) -> float:
    (x0, y0), (x1, y1) = grid.at((0, 0)), grid.at(step)
    return math.atan2(y1 - y0, x1 - x0)
