"""Lays out one bare circuit board from a seed: a ground plane, footprints, tracks between them, silkscreen."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from inspectd.camera.boards.anchors import find_anchors
from inspectd.camera.boards.artwork import Anchor, Layout, Mark, Pad, Track, Via, ViaLook
from inspectd.camera.boards.routing import Grid, Node

_USED_SHARE = 0.72
"""Of the nodes; the rest stays free, so that stray copper has a place."""


def lay_out(rng: Random, width: float, height: float) -> Layout:
    """Place and route one board of `width` × `height` units."""
    grid = Grid(width, height)
    board = _Board(rng, grid)
    board.place_pour()
    board.place_chip("U1")
    board.place_chip("U2")
    for _ in range(max(2, grid.columns * grid.rows // 40)):
        board.place_passive()
    board.place_header()
    board.place_name()
    board.route()
    return Layout(
        width,
        height,
        tuple(Track(tuple(map(grid.at, path.nodes)), path.width) for path in grid.paths),
        tuple(board.pads),
        tuple(board.vias),
        tuple(board.pours),
        tuple(board.marks),
        find_anchors(grid, board.wide_copper),
    )


@dataclass(slots=True)
class _Board:
    """Places parts that still fit; a small board goes without those that do not."""

    rng: Random
    grid: Grid
    starts: list[tuple[Node, int, float]] = field(default_factory=list)
    """Where tracks leave the pads: node, direction, how much wider than a signal."""
    pads: list[Pad] = field(default_factory=list)
    vias: list[Via] = field(default_factory=list)
    pours: list[Pad] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    wide_copper: list[Anchor] = field(default_factory=list)
    """Room for a pinhole."""

    def place_pour(self) -> None:
        """Place a ground plane with a few vias in it."""
        block = self.grid.reserve(self.rng, 3 + int(self.rng.random() * 3), 2 + int(self.rng.random() * 2))
        if block is None:
            return
        (x0, y0), (x1, y1) = self.grid.at(block[0][0]), self.grid.at(block[-1][-1])
        self.pours.append(Pad((x0 + x1) / 2, (y0 + y1) / 2, x1 - x0 + 11, y1 - y0 + 11))
        for i, column in enumerate(block):
            for j, node in enumerate(column):
                self.grid.metal.add(node)
                if self.rng.random() < 0.25:
                    self._add_via(node, ("ring", "plugged"))  # a tented one looks like a pinhole there
                if i and j:
                    (x, y), (left, top) = self.grid.at(node), self.grid.at(block[i - 1][j - 1])
                    self.wide_copper.append(Anchor((x + left) / 2, (y + top) / 2, 0.0, 10.0, "pour"))

    def place_chip(self, name: str) -> None:
        """Place a chip's footprint: two rows of pads, outline and name between them."""
        block = self.grid.reserve(self.rng, 4, 3 + int(self.rng.random() * 3))
        if block is None:
            return
        for left, right in zip(block[0], block[3], strict=True):
            self._add_pad(left, 4, 12.0, 7.5)
            self._add_pad(right, 0, 12.0, 7.5)
        (x0, y0), (x1, y1) = self.grid.at(block[0][0]), self.grid.at(block[3][-1])
        self.marks.append(Mark((x0 + x1) / 2, (y0 + y1) / 2, x1 - x0 - 20, y1 - y0 + 6, name))

    def place_passive(self) -> None:
        """Place two large pads for a resistor or capacitor."""
        block = self.grid.reserve(self.rng, 3, 1)
        if block is None:
            return
        for (node,), direction in ((block[0], 4), (block[2], 0)):
            self._add_pad(node, direction, 14.0, 13.0, wider=2.0)
            self.wide_copper.append(Anchor(*self.grid.at(node), 0.0, 13.0, "pad"))
        self.marks.append(Mark(*self.grid.at(block[1][0]), 12.0, 9.0, ""))

    def place_header(self) -> None:
        """Place a row of through-hole pads."""
        block = self.grid.reserve(self.rng, min(4 + int(self.rng.random() * 3), self.grid.columns - 2), 1)
        direction = 2 if self.rng.random() < 0.5 else 6
        for (node,) in block or ():
            self._add_pad(node, direction, 12.0, 12.0, hole=3.4)

    def place_name(self) -> None:
        """Print the board's name on a free place."""
        block = self.grid.reserve(self.rng, 4, 1)
        if block is not None:
            (x0, y), (x1, _) = self.grid.at(block[0][0]), self.grid.at(block[3][0])
            name = f"A{10 + int(self.rng.random() * 90)} REV {'ABCD'[int(self.rng.random() * 4)]}"
            self.marks.append(Mark((x0 + x1) / 2, y, 0.0, 0.0, name))

    def route(self) -> None:
        """Draw tracks from the pads, then from vias on free nodes, until the board is full enough."""
        grid, signal = self.grid, 5.6 + self.rng.random()
        for node, direction, wider in self.starts:
            path = grid.walk(self.rng, node, direction, signal + wider)
            if path is not None:
                self._add_via(path.nodes[-1])
        for _ in range(6 * grid.columns * grid.rows):
            if len(grid.taken) > _USED_SHARE * grid.columns * grid.rows:
                return
            node = (int(self.rng.random() * grid.columns), int(self.rng.random() * grid.rows))
            if node in grid.taken or node in grid.beside:
                continue
            path = grid.walk(self.rng, node, int(self.rng.random() * 8), signal)
            if path is not None:
                self._add_via(path.nodes[0])
                self._add_via(path.nodes[-1])

    def _add_pad(
        self, node: Node, direction: int, w: float, h: float, *, hole: float = 0.0, wider: float = 0.0
    ) -> None:
        self.grid.metal.add(node)
        self.pads.append(Pad(*self.grid.at(node), w, h, hole))
        self.starts.append((node, direction, wider))

    def _add_via(self, node: Node, looks: tuple[ViaLook, ...] = ("ring", "ring", "plugged", "tented")) -> None:
        self.grid.metal.add(node)
        look = looks[int(self.rng.random() * len(looks))]
        self.vias.append(Via(*self.grid.at(node), 4.8 + 0.9 * self.rng.random(), look))
