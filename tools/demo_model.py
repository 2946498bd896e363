"""The demo model's network and its loss. Plain PyTorch; input 320 × 320, RGB, 0..1."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from demo_pictures import CLASSES, INPUT_PX
from inspectd.camera.boards.scene import BOARD_CLASS, DEFECT_CLASSES

BOARD = CLASSES.index(BOARD_CLASS)
FINE_STRIDE, COARSE_STRIDE = 8, 32
"""Defects are looked for in cells of 8 px, the board's outline in cells of 32 px."""
_OWN_CELLS = 1.05
"""How many cells a box's centre may be away from the middle of a cell that is to find it: about four cells do."""

Answer = tuple[Tensor, Tensor, Tensor, Tensor]
"""Logits [n, 6, 1600] and sides [n, 4, 1600] of the defects, [n, 1, 100] and [n, 4, 100] of the board."""


class _Conv(nn.Sequential):
    def __init__(self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> None:
        padding = (kernel - 1) // 2 if kernel % 2 else (kernel - stride) // 2
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False),
            nn.BatchNorm2d(outputs, momentum=0.05),
            nn.ReLU(inplace=True),
        )


class _Block(nn.Module):
    """Residual block with a waist."""

    def __init__(self, channels: int, waist: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_Conv(channels, waist), _Conv(waist, channels))

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = self.body(x)
        return x + change


class _Head(nn.Module):
    """Class logits, and distances to the four sides in px, per cell."""

    def __init__(self, inputs: int, hidden: int, classes: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.shared = _Conv(inputs, hidden)
        self.classes = _last(hidden, classes, -4.6)  # 1 %, or empty cells drown the rest
        self.sides = _last(hidden, 4, 1.0)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.shared(x)
        return self.classes(x).flatten(2), functional.softplus(self.sides(x)).flatten(2) * self.stride


def _last(inputs: int, outputs: int, bias: float) -> nn.Conv2d:
    conv = nn.Conv2d(inputs, outputs, 1)
    if conv.bias is not None:
        nn.init.constant_(conv.bias, bias)
    return conv


class Net(nn.Module):
    """Anchor-free detector; the fine head knows the six defects and sees 110 px, the coarse head knows the board."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(_Conv(3, 32, kernel=6, stride=4), _Block(32, 16))
        self.fine = nn.Sequential(_Conv(32, 64, stride=2), _Block(64, 32), _Block(64, 32))
        self.coarse = nn.Sequential(_Conv(64, 48, stride=2), _Conv(48, 64, stride=2), _Block(64, 32))
        self.fine_head = _Head(64, 48, len(DEFECT_CLASSES), FINE_STRIDE)
        self.coarse_head = _Head(64, 32, 1, COARSE_STRIDE)

    def forward(self, x: Tensor) -> Answer:
        """Look at pictures [n, 3, 320, 320]."""
        fine = self.fine(self.stem(x))
        return (*self.fine_head(fine), *self.coarse_head(self.coarse(fine)))


class Exported(nn.Module):
    """The network with its answer in the layout `yolo`: [1, 4 + 7, 1700], cx cy w h in px, then scores 0..1."""

    fine_cells: Tensor
    coarse_cells: Tensor

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("fine_cells", cell_centres(FINE_STRIDE))
        self.register_buffer("coarse_cells", cell_centres(COARSE_STRIDE))

    def forward(self, x: Tensor) -> Tensor:
        """Give [1, 11, 1700]."""
        defects, defect_sides, board, board_sides = self.net(x)
        boxes = torch.cat((_centred(self.fine_cells, defect_sides), _centred(self.coarse_cells, board_sides)), 2)
        defect_scores = functional.pad(defects.sigmoid(), (0, 0, 0, 1))
        board_scores = functional.pad(board.sigmoid(), (0, 0, BOARD, 0))
        scores = torch.cat((defect_scores, board_scores), 2)
        return torch.cat((boxes, scores), 1)


def cell_centres(stride: int) -> Tensor:
    """[2, cells]: x and y of each cell's centre in px, row by row."""
    steps = (torch.arange(INPUT_PX // stride) + 0.5) * stride
    y, x = torch.meshgrid(steps, steps, indexing="ij")
    return torch.stack((x.flatten(), y.flatten()))


def _centred(cells: Tensor, sides: Tensor) -> Tensor:
    left_top, right_bottom = sides[:, :2], sides[:, 2:]
    return torch.cat((cells + (right_bottom - left_top) / 2, left_top + right_bottom), 1)


def loss(answer: Answer, boxes: list[Tensor]) -> Tensor:
    """Score a batch; `boxes` per picture [k, 5]: class, x0, y0, x1, y1 in px of the input."""
    defects = _head_loss(answer[0], answer[1], [b[b[:, 0] != BOARD] for b in boxes], FINE_STRIDE)
    boards = [b[b[:, 0] == BOARD] - torch.tensor([BOARD, 0, 0, 0, 0]) for b in boxes]
    return defects + 0.5 * _head_loss(answer[2], answer[3], boards, COARSE_STRIDE)


def _head_loss(logits: Tensor, sides: Tensor, boxes: list[Tensor], stride: int) -> Tensor:
    """Focal loss of the classes and GIoU of the boxes, over the cells next to a box's centre."""
    cells = cell_centres(stride)
    target = torch.zeros_like(logits)
    owned, wanted, picture = [], [], []
    for number, truth in enumerate(boxes):
        if not len(truth):
            continue
        centres = (truth[:, 1:3] + truth[:, 3:5]) / 2
        nearest = torch.cdist(cells.T, centres).min(1)
        cell = torch.nonzero(nearest.values < _OWN_CELLS * stride)[:, 0]
        owner = nearest.indices[cell]
        target[number, truth[owner, 0].long(), cell] = 1.0
        owned.append(cell)
        wanted.append(truth[owner, 1:])
        picture.append(torch.full_like(cell, number))
    score = logits.sigmoid()
    focus = (target - score).abs().detach() ** 1.5
    count = max(1, int(target.sum()))
    classes = (functional.binary_cross_entropy_with_logits(logits, target, reduction="none") * focus).sum() / count
    if not owned:
        return 4 * classes
    cell, truth = torch.cat(owned), torch.cat(wanted)
    found = sides[torch.cat(picture), :, cell]
    at = cells.T[cell]
    return 4 * classes + 2 * (1 - _giou(torch.cat((at - found[:, :2], at + found[:, 2:]), 1), truth)).mean()


def _giou(a: Tensor, b: Tensor) -> Tensor:
    """Generalized IoU of corner boxes (Rezatofighi et al., 2019)."""
    overlap = (torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])).clamp(min=0).prod(1)
    hull = (torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])).prod(1)
    union = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - overlap
    return overlap / union - (hull - union) / hull
