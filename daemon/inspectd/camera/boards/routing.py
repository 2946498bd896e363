"""The grid on which a board is routed: which nodes are taken, and tracks that walk over the free ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from inspectd.camera.boards.artwork import Point

PITCH = 16.5
"""Least distance of nodes: a track of 6, and 10 clear, so that a bridge over the gap is still 10 px."""
RIM = 13.0
"""Free rim of the board."""

Node = tuple[int, int]

_STEPS: tuple[Node, ...] = ((1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1))
"""By direction: turns of 45° from x to y; the odd ones are diagonal."""


@dataclass(frozen=True, slots=True)
class Path:
    """One track, from node to node."""

    nodes: tuple[Node, ...]
    width: float


@dataclass(slots=True)
class Grid:
    """A board of `width` × `height` units while it is laid out."""

    width: float
    height: float
    columns: int = field(init=False)
    rows: int = field(init=False)
    taken: set[Node] = field(default_factory=set)
    metal: set[Node] = field(default_factory=set)
    """Under pads, vias and pours: no diagonal may pass beside them."""
    beside: set[Node] = field(default_factory=set)
    """Beside a diagonal: tracks may use them, vias are too fat."""
    diagonals: set[frozenset[Node]] = field(default_factory=set)
    paths: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.columns = int((self.width - 2 * RIM) // PITCH) + 1
        self.rows = int((self.height - 2 * RIM) // PITCH) + 1

    def at(self, node: Node) -> Point:
        """Where a node lies, in units."""
        x_pitch = (self.width - 2 * RIM) / (self.columns - 1)
        y_pitch = (self.height - 2 * RIM) / (self.rows - 1)
        return RIM + node[0] * x_pitch, RIM + node[1] * y_pitch

    def reserve(self, rng: Random, columns: int, rows: int) -> list[list[Node]] | None:
        """Take a free block inside the outermost nodes; its nodes by column, or None after 30 tries."""
        if columns > self.columns - 2 or rows > self.rows - 2:
            return None
        for _ in range(30):
            left = 1 + int(rng.random() * (self.columns - columns - 1))
            top = 1 + int(rng.random() * (self.rows - rows - 1))
            block = [[(left + i, top + j) for j in range(rows)] for i in range(columns)]
            nodes = {node for column in block for node in column}
            if not nodes & self.taken:
                self.taken |= nodes
                return block
        return None

    def walk(self, rng: Random, start: Node, direction: int, width: float) -> Path | None:
        """Lead a track from `start` until it is long enough or blocked; None (and nothing taken) if it is too short."""
        nodes = [start]
        for step in range(3 + int(rng.random() * 8)):
            turn = 1 if rng.random() < 0.5 else -1
            bends = step > 1 and rng.random() < 0.2
            tries = (direction + turn, direction) if bends else (direction, direction + turn, direction - turn)
            chosen = next((d % 8 for d in tries if self._is_free(nodes, d % 8)), None)
            if chosen is None:
                break
            direction = chosen
            nodes.append(_next(nodes[-1], direction))
        while nodes and nodes[-1] in self.beside:
            nodes.pop()  # no room for the via at its end
        if len(nodes) < 3:
            return None
        self.taken.update(nodes)
        for a, b in pairwise(nodes):
            if a[0] != b[0] and a[1] != b[1]:
                self.diagonals.add(frozenset((a, b)))
                self.beside |= {(a[0], b[1]), (b[0], a[1])}
        path = Path(tuple(nodes), width)
        self.paths.append(path)
        return path

    def _is_free(self, nodes: list[Node], direction: int) -> bool:
        (x0, y0), (x, y) = nodes[-1], _next(nodes[-1], direction)
        if not (0 <= x < self.columns and 0 <= y < self.rows) or (x, y) in self.taken or (x, y) in nodes:
            return False
        corners = {(x0, y), (x, y0)}
        return not direction % 2 or (frozenset(corners) not in self.diagonals and not corners & self.metal)


def _next(node: Node, direction: int) -> Node:
    return node[0] + _STEPS[direction][0], node[1] + _STEPS[direction][1]
